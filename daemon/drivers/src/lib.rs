// SPDX-License-Identifier: Apache-2.0
//! Device drivers, which translate an [`Op`] to a protocol and replies to an [`Outcome`].
//!
//! ```text
//!   Op ─▶ Dialect ─▶ Session (one request in flight, bounded input) ─▶ bytes ─▶ TCP, serial line
//!   Outcome ◀──────────┘                                             ◀─ bytes ◀─┘
//! ```
//!
//! To add a protocol, write its [`Dialect`] and register it in the daemon's `protocol.rs`.

pub mod conversation;
#[cfg(feature = "gnmi")]
pub mod gnmi;
pub mod module;
pub mod ocstrx;
mod ports;
pub mod scpi;
pub mod sonic;
pub mod tender;
pub mod tl1;

use std::collections::VecDeque;

use conversation::Conversation;
use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};
use module::Module;

/// Maximum number of received bytes without a complete reply. A longer input is treated as garbage.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub bytes: Vec<u8>,
    pub awaits: Awaits,
    pub number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    Identity,
    Size,
    Positions,
    Power,
    Armed,
    Done,
    Errors,
    Neighbours,
    Registers,
    Events,
    Claim,
    Holder,
}

#[derive(Clone, Debug, Default)]
pub struct Input {
    pub bytes: Vec<u8>,
    pub noise: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Wait,
    Answered,
    Ended(Outcome),
    Lost(String),
}

pub trait Dialect: Send {
    fn hello(&mut self) -> Vec<Request>;
    /// Returns the requests of an operation, in order. After an error, nothing is sent.
    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String>;
    fn after_hello(&mut self) -> Vec<Request> {
        Vec::new()
    }
    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress;
    fn hide(&self, heard: &str) -> String {
        heard.to_owned()
    }
    fn finish(&mut self, op: &Op) -> Outcome;
    fn identity(&self) -> String;
    fn promise(&self) -> Option<Promise> {
        None
    }
    fn look(&mut self) -> Option<Vec<Request>> {
        None
    }
    fn module(&self) -> Option<Module> {
        None
    }
    fn unasked(&mut self, input: &mut Input) {
        if !input.bytes.is_empty() {
            input.noise += 1;
            input.bytes.clear();
        }
    }
    fn foreign(&mut self) -> Vec<Foreign> {
        Vec::new()
    }
    fn signals(&mut self) -> Vec<Signal> {
        Vec::new()
    }
    fn broken(&mut self) -> Option<String> {
        None
    }
    fn acknowledge(&mut self, _out: &mut Vec<u8>) {}
}

#[derive(Debug)]
pub struct Session<D> {
    dialect: D,
    input: Input,
    waiting: VecDeque<Request>,
    doing: Doing,
    greeted: bool,
    foreign: Vec<Foreign>,
    signals: Vec<Signal>,
    was_asked_again: bool,
    heard: Vec<u8>,
}

const HEARD_BYTES: usize = 160;

#[derive(Debug, PartialEq, Eq)]
enum Doing {
    Closed,
    Hello,
    Idle,
    Op(Op),
    Look,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    Ready(String),
    Ended(Outcome),
    Lost(String),
}

impl<D: Dialect + Clone> Session<D> {
    pub fn new(dialect: D) -> Self {
        let (input, waiting) = (Input::default(), VecDeque::new());
        let (foreign, signals) = (Vec::new(), Vec::new());
        Self {
            dialect,
            input,
            waiting,
            doing: Doing::Closed,
            greeted: false,
            foreign,
            signals,
            was_asked_again: false,
            heard: Vec::new(),
        }
    }

    fn take_in(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Reached> {
        self.input.bytes.extend_from_slice(bytes);
        let room = HEARD_BYTES.saturating_sub(self.heard.len());
        self.heard.extend(bytes.iter().take(room));
        while let Some(request) = self.waiting.front() {
            match self.dialect.reply(request, &mut self.input) {
                Progress::Wait if self.input.bytes.len() > INPUT_BYTES_MAX => {
                    return Some(self.lost("an unterminated reply".into()));
                }
                Progress::Wait => return None,
                Progress::Answered => {
                    self.waiting.pop_front();
                    if self.waiting.is_empty() && self.doing == Doing::Hello && !self.greeted {
                        self.greeted = true;
                        self.waiting = self.dialect.after_hello().into();
                    }
                    if self.waiting.is_empty() {
                        return Some(self.all_answered());
                    }
                    self.send(out);
                }
                Progress::Ended(outcome) => return Some(self.ended(outcome)),
                Progress::Lost(why) => return Some(self.lost(why)),
            }
        }
        self.dialect.unasked(&mut self.input);
        if self.input.bytes.len() > INPUT_BYTES_MAX {
            return Some(self.lost("an unterminated message".into()));
        }
        None
    }

    fn collect(&mut self) {
        self.foreign.extend(self.dialect.foreign());
        self.signals.extend(self.dialect.signals());
    }

    fn all_answered(&mut self) -> Reached {
        match std::mem::replace(&mut self.doing, Doing::Idle) {
            Doing::Op(op) => Reached::Ended(self.dialect.finish(&op)),
            Doing::Look => Reached::Ended(Outcome::Done(None)),
            Doing::Hello | Doing::Idle | Doing::Closed => Reached::Ready(self.dialect.identity()),
        }
    }

    fn ended(&mut self, outcome: Outcome) -> Reached {
        self.waiting.clear();
        match std::mem::replace(&mut self.doing, Doing::Idle) {
            Doing::Op(_) | Doing::Look => Reached::Ended(outcome),
            doing @ (Doing::Hello | Doing::Idle | Doing::Closed) => {
                self.doing = doing;
                self.lost(format!("it does not identify itself: {outcome:?}"))
            }
        }
    }

    fn lost(&mut self, why: String) -> Reached {
        let why = match self.doing {
            Doing::Hello => format!("{why}; {}", self.heard()),
            _ => why,
        };
        self.input.noise += 1;
        self.closed();
        Reached::Lost(why)
    }

    fn send(&self, out: &mut Vec<u8>) {
        if let Some(request) = self.waiting.front() {
            out.extend_from_slice(&request.bytes);
        }
    }
}

impl<D: Dialect + Clone> Conversation for Session<D> {
    fn connected(&mut self, out: &mut Vec<u8>) -> Option<Reached> {
        self.input.bytes.clear();
        self.heard.clear();
        self.waiting = self.dialect.hello().into();
        (self.doing, self.greeted, self.was_asked_again) = (Doing::Hello, false, false);
        self.send(out);
        None
    }

    fn start(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
        if self.doing != Doing::Idle {
            return Some(Outcome::Unknown("not connected".into()));
        }
        match self.dialect.requests(op) {
            Err(why) => Some(Outcome::Refused(why)),
            Ok(requests) if requests.is_empty() => Some(self.dialect.finish(op)),
            Ok(requests) => {
                self.waiting = requests.into();
                self.doing = Doing::Op(op.clone());
                self.send(out);
                None
            }
        }
    }

    fn ask_again(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
        let is_numbered = self.waiting.front().is_some_and(|request| request.number != 0);
        if !is_numbered || !matches!(self.doing, Doing::Op(_)) {
            return Some(Outcome::Unknown("the reply to an earlier request is outstanding".into()));
        }
        (self.doing, self.was_asked_again) = (Doing::Idle, true);
        self.start(op, out)
    }

    fn look(&mut self, out: &mut Vec<u8>) -> Result<(), Box<Outcome>> {
        if self.doing != Doing::Idle {
            return Err(Outcome::Unknown("not connected".into()).into());
        }
        let Some(requests) = self.dialect.look() else {
            return Err(Outcome::Refused(module::NO_MODULE.into()).into());
        };
        self.waiting = requests.into();
        self.doing = Doing::Look;
        self.send(out);
        Ok(())
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Reached> {
        let noise = self.input.noise;
        let reached = self.take_in(bytes, out);
        if self.input.noise > noise && self.was_asked_again {
            self.was_asked_again = false;
            self.signals.push(Signal::Alive);
        }
        let reached = match (reached, self.dialect.broken()) {
            (None, Some(why)) => Some(self.lost(why)),
            (reached, _) => reached,
        };
        self.dialect.acknowledge(out);
        self.collect();
        reached
    }

    fn closed(&mut self) {
        self.doing = Doing::Closed;
        self.waiting.clear();
        self.input.bytes.clear();
    }

    fn noise(&self) -> u64 {
        self.input.noise
    }

    fn heard(&self) -> String {
        if self.heard.is_empty() {
            return "it sent nothing".to_owned();
        }
        let shown = self.dialect.hide(&String::from_utf8_lossy(&self.heard));
        format!("it sent `{}`", shown.escape_debug())
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        self.collect();
        std::mem::take(&mut self.foreign)
    }

    fn signals(&mut self) -> Vec<Signal> {
        self.collect();
        std::mem::take(&mut self.signals)
    }

    fn module(&self) -> Option<Module> {
        self.dialect.module()
    }

    fn promise(&self) -> Option<Promise> {
        self.dialect.promise()
    }

    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
        let mut dialect = self.dialect.clone();
        let mut bytes = Vec::new();
        for op in ops {
            bytes.extend(dialect.requests(op)?.into_iter().map(|request| request.bytes));
        }
        Ok(bytes)
    }
}

/// Removes Telnet negotiation, but keeps an incomplete command at the end.
pub(crate) fn without_telnet(input: &mut Vec<u8>) {
    const COMMAND: u8 = 255;
    let mut from = 0;
    while let Some(at) = input[from..].iter().position(|byte| *byte == COMMAND) {
        from += at;
        let rest = &input[from..];
        let length = match rest.get(1) {
            Some(250) => rest.windows(2).position(|two| two == [COMMAND, 240]).map(|end| end + 2),
            Some(251..=254) => (rest.len() > 2).then_some(3),
            Some(_) => Some(2),
            None => None,
        };
        let Some(length) = length else { return };
        input.drain(from..from + length);
    }
}

pub fn take_line(input: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        let end = input.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let mut line: Vec<u8> = input.drain(..=end).collect();
        line.pop();
        if !line.is_empty() {
            return Some(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_control::state::Neighbours;

    #[derive(Clone)]
    struct Counts {
        is_numbered: bool,
        asked: u32,
    }

    impl Counts {
        fn ask(&mut self) -> Request {
            self.asked += u32::from(self.is_numbered);
            let bytes = vec![self.asked as u8];
            Request { bytes, awaits: Awaits::Positions, number: self.asked }
        }
    }

    impl Dialect for Counts {
        fn hello(&mut self) -> Vec<Request> {
            vec![self.ask()]
        }
        fn requests(&mut self, _: &Op) -> Result<Vec<Request>, String> {
            Ok(vec![self.ask()])
        }
        fn reply(&mut self, request: &Request, input: &mut Input) -> Progress {
            match input.bytes.pop() {
                None => Progress::Wait,
                Some(number) if u32::from(number) == request.number => Progress::Answered,
                Some(_) => {
                    input.noise += 1;
                    Progress::Wait
                }
            }
        }
        fn finish(&mut self, _: &Op) -> Outcome {
            Outcome::Done(None)
        }
        fn identity(&self) -> String {
            String::new()
        }
    }

    fn greeted(is_numbered: bool) -> (Session<Counts>, Op) {
        let mut session = Session::new(Counts { is_numbered, asked: 0 });
        let mut out = Vec::new();
        session.connected(&mut out);
        assert_eq!(session.received(&out, &mut Vec::new()), Some(Reached::Ready(String::new())));
        (session, Op::Observe { power: Vec::new(), neighbours: Neighbours::Never })
    }

    #[test]
    fn repeats_a_read_over_the_same_connection() {
        let (mut session, read) = greeted(true);
        let (mut older, mut newer) = (Vec::new(), Vec::new());
        assert_eq!(session.start(&read, &mut older), None);
        assert_eq!(session.ask_again(&read, &mut newer), None);
        assert!(!newer.is_empty() && newer != older);
        assert_eq!(session.received(&older, &mut Vec::new()), None);
        assert_eq!(session.signals(), [Signal::Alive]);
        let done = Some(Reached::Ended(Outcome::Done(None)));
        assert_eq!(session.received(&newer, &mut Vec::new()), done);
    }

    #[test]
    fn does_not_repeat_reads_without_sequence_numbers() {
        let (mut session, read) = greeted(false);
        let mut out = Vec::new();
        assert_eq!(session.start(&read, &mut out), None);
        let mut newer = Vec::new();
        assert!(matches!(session.ask_again(&read, &mut newer), Some(Outcome::Unknown(_))));
        assert!(newer.is_empty());
    }
}
