// SPDX-License-Identifier: Apache-2.0
//! Keeps one device connected, runs its operations one at a time, and reports their outcome. Its
//! inputs are bytes, commands and the time; its outputs are bytes and events.
//!
//! ```text
//!   waiting ──due──▶ greeting ──Ready──▶ idle ⇄ resting before a switch, busy with an operation,
//!      ▲                │                 │     reading a transceiver's identity and state
//!      │                │ no answer       │ lost, unknown, abandoned
//!      └────────────────┴─────────────────┘  (the wait doubles until a hello is answered)
//! ```

use lightloom_control::controller::{Event, Ticket};
use lightloom_control::management::Trouble;
use lightloom_control::mover::RECONNECT;
use lightloom_control::state::{DeviceName, Micros, Op, Outcome};

use crate::conversation::Conversation;
use crate::module::Module;
use crate::{Reached, Session};

pub const CONNECT_WITHIN: Micros = Micros::from_secs(3);
pub const BACKOFF_MAX: Micros = Micros::from_secs(10);
pub const LOOK_WITHIN: Micros = Micros::from_secs(1);
const ASKED_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    Open,
    Close,
    Send(Vec<u8>),
    Identity(String),
    Event(Box<Event>),
    Account(Box<Result<Module, Outcome>>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPreview {
    Refused(String),
    NotNow(String),
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waiting(Micros),
    Greeting(Micros),
    Idle,
    Resting(Micros, Ticket, Op),
    Busy(Ticket),
    Looking(Micros, Option<(Ticket, Op)>),
}

pub struct Tender {
    name: DeviceName,
    conversation: Box<dyn Conversation>,
    state: State,
    rests_until: Micros,
    moves: bool,
    backoff: Micros,
    reported: Option<Trouble>,
    asked: usize,
}

impl Tender {
    pub fn new(name: DeviceName, conversation: Box<dyn Conversation>, now: Micros) -> Self {
        let state = State::Waiting(now);
        let (rests_until, moves, backoff) = (Micros(0), false, RECONNECT);
        Self { name, conversation, state, rests_until, moves, backoff, reported: None, asked: 0 }
    }

    pub fn speaking<D: crate::Dialect + Clone + 'static>(
        name: DeviceName,
        dialect: D,
        now: Micros,
    ) -> Self {
        Self::new(name, Box::new(Session::new(dialect)), now)
    }

    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    pub fn noise(&self) -> u64 {
        self.conversation.noise()
    }

    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    pub fn deadline(&self) -> Option<Micros> {
        match self.state {
            State::Waiting(at)
            | State::Greeting(at)
            | State::Resting(at, ..)
            | State::Looking(at, _) => Some(at),
            State::Idle | State::Busy(_) => None,
        }
    }

    pub fn on_time(&mut self, now: Micros, out: &mut Vec<Does>) {
        match self.state {
            State::Waiting(at) if at <= now => {
                let mut bytes = Vec::new();
                self.state = State::Greeting(now + CONNECT_WITHIN);
                out.push(Does::Open);
                let reached = self.conversation.connected(&mut bytes);
                send(bytes, out);
                self.reached(now, reached, out);
            }
            State::Greeting(at) if at <= now => {
                let why = ["no answer to hello in time".to_owned(), self.conversation.heard()];
                self.lost(now, why.join("; ").trim_end_matches("; ").to_owned(), out);
            }
            State::Resting(at, ..) if at <= now => {
                if let State::Resting(_, ticket, op) =
                    std::mem::replace(&mut self.state, State::Idle)
                {
                    self.run(now, ticket, &op, out);
                }
            }
            State::Looking(at, _) if at <= now => {
                self.looked(now, Err(Outcome::Unknown("no answer in time".into())), out);
            }
            _ => {}
        }
    }

    pub fn run(&mut self, now: Micros, ticket: Ticket, op: &Op, out: &mut Vec<Does>) {
        match &mut self.state {
            State::Waiting(_) | State::Greeting(_) => {
                out.push(self.reply(ticket, Outcome::Unknown("not connected".into())));
            }
            State::Busy(_) if !self.moves && matches!(op, Op::Observe { .. }) => {
                let mut bytes = Vec::new();
                match self.conversation.ask_again(op, &mut bytes) {
                    Some(outcome) => self.ended(now, ticket, outcome, out),
                    None => self.state = State::Busy(ticket),
                }
                send(bytes, out);
            }
            State::Busy(_) | State::Resting(..) => {}
            State::Looking(_, next) => *next = Some((ticket, op.clone())),
            State::Idle if matches!(op, Op::Switch { .. }) && now < self.rests_until => {
                self.state = State::Resting(self.rests_until, ticket, op.clone());
            }
            State::Idle => {
                self.moves = matches!(op, Op::Switch { .. });
                let mut bytes = Vec::new();
                match self.conversation.start(op, &mut bytes) {
                    Some(outcome) => self.ended(now, ticket, outcome, out),
                    None => self.state = State::Busy(ticket),
                }
                send(bytes, out);
            }
        }
    }

    pub fn abandon(&mut self, now: Micros, ticket: Ticket, out: &mut Vec<Does>) {
        let waits = match &self.state {
            State::Busy(busy) => *busy == ticket,
            State::Resting(_, resting, _) => *resting == ticket,
            State::Looking(_, Some((next, _))) => *next == ticket,
            _ => false,
        };
        if waits {
            self.lost(now, "no answer in time".to_owned(), out);
        }
    }

    pub fn look(&mut self, now: Micros, out: &mut Vec<Does>) -> Result<(), Box<Outcome>> {
        match self.state {
            State::Waiting(_) | State::Greeting(_) => {
                return Err(Outcome::Unknown("not connected".into()).into());
            }
            _ if self.asked >= ASKED_MAX => {
                let busy = "busy with an operation; retry in a moment";
                return Err(Outcome::Refused(busy.into()).into());
            }
            _ => self.asked += 1,
        }
        self.go_on(now, out);
        Ok(())
    }

    pub fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, NoPreview> {
        match self.state {
            State::Waiting(_) | State::Greeting(_) => {
                Err(NoPreview::NotNow("not connected".into()))
            }
            State::Busy(_) | State::Resting(..) => {
                Err(NoPreview::NotNow("busy with an operation".into()))
            }
            _ => self.conversation.preview(ops).map_err(NoPreview::Refused),
        }
    }

    pub fn received(&mut self, now: Micros, input: &[u8], out: &mut Vec<Does>) {
        if matches!(self.state, State::Waiting(_)) {
            return;
        }
        let mut bytes = Vec::new();
        let reached = self.conversation.received(input, &mut bytes);
        send(bytes, out);
        self.reached(now, reached, out);
    }

    pub fn unopened(&mut self, now: Micros, why: String, out: &mut Vec<Does>) {
        if !matches!(self.state, State::Waiting(_)) {
            self.down(now, Trouble::Local(why), out);
        }
    }

    pub fn broke(&mut self, now: Micros, why: String, out: &mut Vec<Does>) {
        if !matches!(self.state, State::Waiting(_)) {
            self.reached(now, Some(Reached::Lost(why)), out);
        }
    }

    fn reached(&mut self, now: Micros, reached: Option<Reached>, out: &mut Vec<Does>) {
        match (reached, &self.state) {
            (Some(Reached::Ready(identity)), _) => self.ready(now, identity, out),
            (Some(Reached::Ended(outcome)), &State::Busy(ticket)) => {
                self.ended(now, ticket, outcome, out);
            }
            (Some(Reached::Ended(Outcome::Done(_))), State::Looking(..)) => {
                let senseless = "its registers have impossible values";
                let module = self.conversation.module();
                self.looked(now, module.ok_or_else(|| Outcome::Failed(senseless.into())), out);
            }
            (Some(Reached::Ended(outcome)), State::Looking(..)) => {
                self.looked(now, Err(outcome), out);
            }
            (Some(Reached::Ended(outcome)), _) => {
                self.lost(now, format!("{outcome:?} before it identified itself"), out);
            }
            (Some(Reached::Lost(why)), &(State::Busy(ticket) | State::Resting(_, ticket, _))) => {
                self.ended(now, ticket, Outcome::Unknown(why), out);
            }
            (Some(Reached::Lost(why)), State::Looking(..)) => {
                self.looked(now, Err(Outcome::Unknown(why)), out);
            }
            (Some(Reached::Lost(why)), _) => self.lost(now, why, out),
            (None, State::Idle | State::Resting(..)) => self.report(out),
            (None, State::Busy(_)) if !self.moves => self.report(out),
            (None, _) => {}
        }
    }

    fn ready(&mut self, now: Micros, identity: String, out: &mut Vec<Does>) {
        (self.state, self.backoff, self.reported) = (State::Idle, RECONNECT, None);
        self.rests(now);
        out.push(Does::Identity(identity));
        self.report(out);
        if let Some(promise) = self.conversation.promise() {
            out.push(event(Event::Promised(self.name.clone(), promise)));
        }
        out.push(event(Event::Reachable(self.name.clone())));
    }

    fn ended(&mut self, now: Micros, ticket: Ticket, outcome: Outcome, out: &mut Vec<Does>) {
        let lost = why_lost(&outcome);
        self.report(out);
        self.state = State::Idle;
        if std::mem::take(&mut self.moves) {
            self.rests(now);
        }
        out.push(self.reply(ticket, outcome));
        match lost {
            Some(why) => self.lost(now, why, out),
            None => self.go_on(now, out),
        }
    }

    fn rests(&mut self, now: Micros) {
        let dwell = self.conversation.promise().map_or(Micros(0), |promise| promise.dwell);
        self.rests_until = now + dwell;
    }

    fn looked(&mut self, now: Micros, account: Result<Module, Outcome>, out: &mut Vec<Does>) {
        let lost = account.as_ref().err().and_then(why_lost);
        let next = match std::mem::replace(&mut self.state, State::Idle) {
            State::Looking(_, next) => next,
            _ => None,
        };
        self.report(out);
        out.push(event(Event::Occupied(self.name.clone(), false)));
        self.asked = self.asked.saturating_sub(1);
        out.push(Does::Account(Box::new(account)));
        match (lost, next) {
            (Some(why), next) => {
                let unknown = Outcome::Unknown(why.clone());
                out.extend(next.map(|(ticket, _)| self.reply(ticket, unknown)));
                self.lost(now, why, out);
            }
            (None, Some((ticket, op))) => self.run(now, ticket, &op, out),
            (None, None) => self.go_on(now, out),
        }
    }

    fn go_on(&mut self, now: Micros, out: &mut Vec<Does>) {
        if self.state != State::Idle || self.asked == 0 {
            return;
        }
        out.push(event(Event::Occupied(self.name.clone(), true)));
        let mut bytes = Vec::new();
        match self.conversation.look(&mut bytes) {
            Ok(()) => self.state = State::Looking(now + LOOK_WITHIN, None),
            Err(outcome) => self.looked(now, Err(*outcome), out),
        }
        send(bytes, out);
    }

    fn lost(&mut self, now: Micros, why: String, out: &mut Vec<Does>) {
        self.down(now, Trouble::Remote(why), out);
    }

    fn down(&mut self, now: Micros, why: Trouble, out: &mut Vec<Does>) {
        let was = std::mem::replace(&mut self.state, State::Waiting(now + self.backoff));
        let was_up = !matches!(was, State::Waiting(_) | State::Greeting(_));
        if matches!(was, State::Looking(..)) {
            out.push(event(Event::Occupied(self.name.clone(), false)));
        }
        for _ in 0..std::mem::take(&mut self.asked) {
            let gone = Outcome::Unknown("the connection was lost".into());
            out.push(Does::Account(Box::new(Err(gone))));
        }
        self.conversation.closed();
        out.push(Does::Close);
        self.backoff = (self.backoff + self.backoff).min(BACKOFF_MAX);
        if was_up || self.reported.as_ref().is_none_or(|reported| !is_same(reported, &why)) {
            self.reported = (!was_up).then(|| why.clone());
            out.push(event(Event::Unreachable(self.name.clone(), why)));
        }
    }

    fn report(&mut self, out: &mut Vec<Does>) {
        let name = &self.name;
        let foreign = self.conversation.foreign().into_iter();
        out.extend(foreign.map(|what| event(Event::Foreign(name.clone(), what))));
        let signals = self.conversation.signals().into_iter();
        out.extend(signals.map(|signal| event(Event::Signalled(name.clone(), signal))));
    }

    pub fn reply(&self, ticket: Ticket, outcome: Outcome) -> Does {
        event(Event::Reply { device: self.name.clone(), ticket, outcome })
    }
}

fn why_lost(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Unknown(why) => Some(why.clone()),
        _ => None,
    }
}

fn is_same(one: &Trouble, other: &Trouble) -> bool {
    match (one, other) {
        (Trouble::Remote(one), Trouble::Remote(other)) => {
            one.split("; it sent ").next() == other.split("; it sent ").next()
        }
        _ => one == other,
    }
}

fn send(bytes: Vec<u8>, out: &mut Vec<Does>) {
    if !bytes.is_empty() {
        out.push(Does::Send(bytes));
    }
}

fn event(event: Event) -> Does {
    Does::Event(Box::new(event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_control::mover::Promise;
    use lightloom_control::state::{Move, Position, Slot, Txn};

    struct Rests;

    impl Conversation for Rests {
        fn connected(&mut self, _: &mut Vec<u8>) -> Option<Reached> {
            Some(Reached::Ready(String::new()))
        }
        fn start(&mut self, _: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
            out.push(b'!');
            None
        }
        fn received(&mut self, _: &[u8], _: &mut Vec<u8>) -> Option<Reached> {
            Some(Reached::Ended(Outcome::Done(None)))
        }
        fn closed(&mut self) {}
        fn promise(&self) -> Option<Promise> {
            let (commit, settle, dwell) = (Micros(100), Micros(30), Micros(1_000));
            Some(Promise { commit, settle, dwell, answer: None, goes: true, refuses_late: false })
        }
        fn preview(&self, _: &[Op]) -> Result<Vec<Vec<u8>>, String> {
            Ok(Vec::new())
        }
    }

    fn at(now: u64, mut chance: impl FnMut(Micros, &mut Vec<Does>)) -> (bool, bool) {
        let mut out = Vec::new();
        chance(Micros(now), &mut out);
        (out.contains(&Does::Send(vec![b'!'])), out.iter().any(|does: &Does| matches!(does, Does::Event(event) if matches!(**event, Event::Reply { .. }))))
    }

    #[test]
    fn switch_waits_for_the_device_interval_but_a_read_does_not() {
        let moves = vec![Move { slot: Slot(0), from: Position(1), to: Position(2) }];
        let switch = Op::Switch { txn: Txn(1), moves };
        let read = Op::Disarm { txn: Txn(1) };
        let mut tender = Tender::new("n0/b0".into(), Box::new(Rests), Micros(0));
        let (sent, said) = ((true, false), (false, true));
        at(0, |now, out| tender.on_time(now, out));
        assert_eq!(at(10, |now, out| tender.run(now, Ticket(1), &read, out)), sent);
        assert_eq!(at(20, |now, out| tender.received(now, b"?", out)), said);
        assert_eq!(at(1_000, |now, out| tender.run(now, Ticket(2), &switch, out)), sent);
        assert_eq!(at(1_100, |now, out| tender.received(now, b"?", out)), said);
        assert_eq!(at(1_200, |now, out| tender.run(now, Ticket(3), &read, out)), sent);
        assert_eq!(at(1_300, |now, out| tender.received(now, b"?", out)), said);
        assert_eq!(at(1_400, |now, out| tender.run(now, Ticket(4), &switch, out)), (false, false));
        assert_eq!(
            tender.deadline(),
            Some(Micros(2_100)),
            "a read does not restart the rest interval"
        );
        assert_eq!(at(2_099, |now, out| tender.on_time(now, out)), (false, false));
        assert_eq!(at(2_100, |now, out| tender.on_time(now, out)), sent);
        assert_eq!(at(2_200, |now, out| tender.received(now, b"?", out)), said);
        assert_eq!(at(2_300, |now, out| tender.run(now, Ticket(5), &switch, out)), (false, false));
        assert_eq!(at(2_400, |now, out| tender.broke(now, "gone".into(), out)), said);
    }
}
