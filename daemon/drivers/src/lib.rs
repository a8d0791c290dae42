// SPDX-License-Identifier: Apache-2.0
//! Drivers: from an [`Op`] to a device's own language and back to an [`Outcome`], without a socket.
//!
//! ```text
//!   Op ─▶ Dialect ─▶ Session (one request in flight, bounded input) ─▶ bytes ─▶ TCP, serial line
//!   Outcome ◀──────────┘                                             ◀─ bytes ◀─┘
//! ```
//!
//! A [`Dialect`] is pure: it writes requests and reads replies. A [`Session`] runs one over a byte
//! stream it does not own, so tests drive it byte by byte and the daemon drives it over sockets and serial
//! lines. To add a protocol: a file with its `Dialect`, and its line in the daemon's `start.rs`.

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

use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};
use module::Module;

/// The most bytes a device may send before they make a reply: a longer one is garbage.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

/// One request of a dialect: the bytes, and what kind of reply they call for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What goes on the wire, exactly.
    pub bytes: Vec<u8>,
    /// The dialect's own name for the reply it waits for.
    pub awaits: Awaits,
    /// Ties a reply to this request where the dialect numbers them.
    pub number: u32,
}

/// Kinds of replies, over all dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// Who the device is.
    Identity,
    /// How many ports it has.
    Size,
    /// Where everything stands.
    Positions,
    /// How much light there is.
    Power,
    /// That something has been prepared.
    Armed,
    /// That something has been done.
    Done,
    /// What has gone wrong since.
    Errors,
    /// Who is at the far ends: a refusal is no trouble.
    Neighbours,
    /// Registers of a module.
    Registers,
    /// Whether it reports what it sees.
    Events,
    /// That this session may change circuits, or who else may.
    Claim,
    /// Who may change circuits.
    Holder,
}

/// What has arrived and is not understood yet.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The bytes, oldest first.
    pub bytes: Vec<u8>,
    /// Messages that nobody asked for or that make no sense, counted.
    pub noise: u64,
}

/// What a dialect makes of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The reply is not complete.
    Wait,
    /// The reply is good: on to the next request.
    Answered,
    /// The operation ends here.
    Ended(Outcome),
    /// The stream makes no sense any more: start the connection afresh.
    Lost(String),
}

/// A device's language.
pub trait Dialect: Send {
    /// What to ask on a fresh connection before anything else.
    fn hello(&mut self) -> Vec<Request>;
    /// The requests an operation takes, in order.
    ///
    /// # Errors
    /// Why the operation cannot be asked of this device. Nothing was sent.
    fn requests(&mut self, op: &Op) -> Result<Vec<Request>, String>;
    /// What else to ask on a fresh connection, once the device has said who it is.
    fn after_hello(&mut self) -> Vec<Request> {
        Vec::new()
    }
    /// Takes the reply to `request` out of the input, if it is there.
    fn reply(&mut self, request: &Request, input: &mut Input) -> Progress;
    /// The outcome once every request is answered.
    fn finish(&mut self, op: &Op) -> Outcome;
    /// Who the device said it is, for people.
    fn identity(&self) -> String;
    /// What it promised of its own times; `None` if it promises nothing.
    fn promise(&self) -> Option<Promise> {
        None
    }
    /// The requests that read a transceiver's own account of itself; nothing where it is none.
    fn look(&mut self) -> Option<Vec<Request>> {
        None
    }
    /// What they answered, once every one is answered.
    fn module(&self) -> Option<Module> {
        None
    }
    /// Takes in what arrives while nothing is asked. Most languages have no such messages: it is noise.
    fn unasked(&mut self, input: &mut Input) {
        if !input.bytes.is_empty() {
            input.noise += 1;
            input.bytes.clear();
        }
    }
    /// What the device has reported of other controllers since this was last called.
    fn foreign(&mut self) -> Vec<Foreign> {
        Vec::new()
    }
    /// What the device has reported of its light since this was last called.
    fn signals(&mut self) -> Vec<Signal> {
        Vec::new()
    }
    /// Why the connection is of no use any more though it is open; `None` while it is of use.
    fn broken(&mut self) -> Option<String> {
        None
    }
    /// Writes what the device has to hear back for its reports.
    fn acknowledge(&mut self, _out: &mut Vec<u8>) {}
}

/// A dialect on one connection: one request in flight.
#[derive(Debug)]
pub struct Session<D> {
    dialect: D,
    input: Input,
    waiting: VecDeque<Request>,
    doing: Doing,
    /// The device has said who it is.
    greeted: bool,
    /// Reported and not handed on yet.
    foreign: Vec<Foreign>,
    signals: Vec<Signal>,
    /// An answer that is not waited for any more may come.
    was_asked_again: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Doing {
    Closed,
    Hello,
    Idle,
    Op(Op),
    Look,
}

/// What a session has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The device is known; operations can start.
    Ready(String),
    /// The operation is over.
    Ended(Outcome),
    /// The connection is of no use any more. An operation on its way ended as unknown.
    Lost(String),
}

impl<D: Dialect> Session<D> {
    /// A session that is not connected.
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
        }
    }

    /// A fresh connection: says hello.
    pub fn connected(&mut self, out: &mut Vec<u8>) {
        self.input.bytes.clear();
        self.waiting = self.dialect.hello().into();
        (self.doing, self.greeted, self.was_asked_again) = (Doing::Hello, false, false);
        self.send(out);
    }

    /// Starts an operation; an outcome at once where nothing has to be sent.
    pub fn start(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
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

    /// Starts a read anew, where the language numbers its answers: the one to the read under way says no more than that
    /// the device is alive.
    pub fn ask_again(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
        let is_numbered = self.waiting.front().is_some_and(|request| request.number != 0);
        if !is_numbered || !matches!(self.doing, Doing::Op(_)) {
            return Some(Outcome::Unknown("an answer to an older question is on its way".into()));
        }
        (self.doing, self.was_asked_again) = (Doing::Idle, true);
        self.start(op, out)
    }

    /// Starts to read a transceiver's own account of itself.
    ///
    /// # Errors
    /// Why it cannot be asked. Nothing was sent.
    pub fn look(&mut self, out: &mut Vec<u8>) -> Result<(), Box<Outcome>> {
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

    /// Takes bytes from the device; `out` gets the next request, if one is due.
    pub fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Reached> {
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

    fn take_in(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Reached> {
        self.input.bytes.extend_from_slice(bytes);
        while let Some(request) = self.waiting.front() {
            match self.dialect.reply(request, &mut self.input) {
                Progress::Wait if self.input.bytes.len() > INPUT_BYTES_MAX => {
                    return Some(self.lost("a reply without an end".into()));
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
            return Some(self.lost("a message without an end".into()));
        }
        None
    }

    /// The connection broke, or its operation was given up.
    pub fn closed(&mut self) {
        self.doing = Doing::Closed;
        self.waiting.clear();
        self.input.bytes.clear();
    }

    /// Messages that nobody asked for or that made no sense.
    pub fn noise(&self) -> u64 {
        self.input.noise
    }

    /// What the device has reported of other controllers since this was last called.
    pub fn foreign(&mut self) -> Vec<Foreign> {
        self.collect();
        std::mem::take(&mut self.foreign)
    }

    /// Whether the device has reported something that was not handed on yet.
    pub fn has_reports(&self) -> bool {
        !self.foreign.is_empty() || !self.signals.is_empty()
    }

    /// What the device has reported of its light since this was last called.
    pub fn signals(&mut self) -> Vec<Signal> {
        self.collect();
        std::mem::take(&mut self.signals)
    }

    fn collect(&mut self) {
        self.foreign.extend(self.dialect.foreign());
        self.signals.extend(self.dialect.signals());
    }

    /// The dialect, with what it has learned of the device.
    pub fn dialect(&self) -> &D {
        &self.dialect
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
            Doing::Hello | Doing::Idle | Doing::Closed => {
                self.lost(format!("it does not say who it is: {outcome:?}"))
            }
        }
    }

    fn lost(&mut self, why: String) -> Reached {
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

/// The bytes that operations would send one after the other, for `--dry-run`. Nothing is sent.
///
/// # Errors
/// Why an operation cannot be asked of this device.
pub fn preview<D: Dialect + Clone>(dialect: &D, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
    let mut dialect = dialect.clone();
    let mut bytes = Vec::new();
    for op in ops {
        bytes.extend(dialect.requests(op)?.into_iter().map(|request| request.bytes));
    }
    Ok(bytes)
}

/// Takes one line out of the input, without its end (LF, CR LF or CR). Empty lines are skipped.
pub(crate) fn take_line(input: &mut Vec<u8>) -> Option<Vec<u8>> {
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

    /// A question is a number and is answered with it; without numbers it is 0.
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

    /// The answer to the older question is no answer to the newer one, and says that the device is alive.
    #[test]
    fn a_read_is_asked_anew_over_the_same_connection() {
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
    fn a_language_without_numbers_is_not_asked_anew() {
        let (mut session, read) = greeted(false);
        let mut out = Vec::new();
        assert_eq!(session.start(&read, &mut out), None);
        let mut newer = Vec::new();
        assert!(matches!(session.ask_again(&read, &mut newer), Some(Outcome::Unknown(_))));
        assert!(newer.is_empty());
    }
}
