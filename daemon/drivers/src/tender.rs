// SPDX-License-Identifier: Apache-2.0
//! Keeps one device connected, hands it operations one at a time, says what becomes of them: the device task of the
//! daemon without its sockets. Bytes, commands and the time in; bytes and events out.
//!
//! ```text
//!   waiting ──due──▶ greeting ──Ready──▶ idle ⇄ busy
//!      ▲                │ no answer        │ lost, unknown, abandoned
//!      └────────────────┴──────────────────┘  (the wait doubles while no hello is answered)
//! ```

use lightloom_control::controller::{Event, Ticket};
use lightloom_control::mover::RECONNECT;
use lightloom_control::state::{DeviceName, Micros, Op, Outcome};

use crate::{Dialect, Reached, Session};

/// How long a connection and a hello may take.
pub const CONNECT_WITHIN: Micros = Micros::from_secs(3);
/// The longest wait between two tries to connect.
pub const BACKOFF_MAX: Micros = Micros::from_secs(10);

/// What is to be done for a tender.
#[derive(Clone, Debug, PartialEq)]
pub enum Does {
    /// Open a fresh connection: what was on its way is lost.
    Open,
    /// Close it.
    Close,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Hand this to the controller.
    Event(Box<Event>),
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waiting(Micros),
    Greeting(Micros),
    Idle,
    Busy(Ticket),
}

/// One device, tended.
#[derive(Debug)]
pub struct Tender<D> {
    name: DeviceName,
    session: Session<D>,
    state: State,
    backoff: Micros,
    reported: Option<String>,
}

impl<D: Dialect> Tender<D> {
    /// Connects at `now`.
    pub fn new(name: DeviceName, dialect: D, now: Micros) -> Self {
        let (session, state) = (Session::new(dialect), State::Waiting(now));
        Self { name, session, state, backoff: RECONNECT, reported: None }
    }

    /// The device.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// When [`Tender::on_time`] is to be called.
    pub fn deadline(&self) -> Option<Micros> {
        match self.state {
            State::Waiting(at) | State::Greeting(at) => Some(at),
            State::Idle | State::Busy(_) => None,
        }
    }

    /// Time has come to `now`.
    pub fn on_time(&mut self, now: Micros, out: &mut Vec<Does>) {
        match self.state {
            State::Waiting(at) if at <= now => {
                let mut bytes = Vec::new();
                self.session.connected(&mut bytes);
                self.state = State::Greeting(now + CONNECT_WITHIN);
                out.extend([Does::Open, Does::Send(bytes)]);
            }
            State::Greeting(at) if at <= now => {
                self.lost(now, "no answer to hello in time".into(), out);
            }
            _ => {}
        }
    }

    /// The controller asks for an operation.
    pub fn run(&mut self, now: Micros, ticket: Ticket, op: &Op, out: &mut Vec<Does>) {
        match self.state {
            State::Waiting(_) | State::Greeting(_) => {
                out.push(self.reply(ticket, Outcome::Unknown("not connected".into())));
            }
            State::Busy(_) => {}
            State::Idle => {
                let mut bytes = Vec::new();
                match self.session.start(op, &mut bytes) {
                    Some(outcome) => self.ended(now, ticket, outcome, out),
                    None => self.state = State::Busy(ticket),
                }
                send(bytes, out);
            }
        }
    }

    /// Nobody waits for this any more.
    pub fn abandon(&mut self, now: Micros, ticket: Ticket, out: &mut Vec<Does>) {
        if self.state == State::Busy(ticket) {
            self.state = State::Idle;
            self.lost(now, "no answer in time".into(), out);
        }
    }

    /// Bytes arrived from the device.
    pub fn received(&mut self, now: Micros, input: &[u8], out: &mut Vec<Does>) {
        if matches!(self.state, State::Waiting(_)) {
            return;
        }
        let mut bytes = Vec::new();
        let reached = self.session.received(input, &mut bytes);
        send(bytes, out);
        match (reached, self.state.clone()) {
            (Some(Reached::Ready(_)), _) => self.ready(out),
            (Some(Reached::Ended(outcome)), State::Busy(ticket)) => {
                self.ended(now, ticket, outcome, out);
            }
            (Some(Reached::Ended(outcome)), _) => self.lost(now, format!("{outcome:?}"), out),
            (Some(Reached::Lost(why)), State::Busy(ticket)) => {
                self.ended(now, ticket, Outcome::Unknown(why), out);
            }
            (Some(Reached::Lost(why)), _) => self.lost(now, why, out),
            (None, State::Idle) => self.report(out),
            (None, _) => {}
        }
    }

    fn ready(&mut self, out: &mut Vec<Does>) {
        (self.state, self.backoff, self.reported) = (State::Idle, RECONNECT, None);
        self.report(out);
        if let Some(promise) = self.session.dialect().promise() {
            out.push(event(Event::Promised(self.name.clone(), promise)));
        }
        out.push(event(Event::Up(self.name.clone())));
    }

    fn ended(&mut self, now: Micros, ticket: Ticket, outcome: Outcome, out: &mut Vec<Does>) {
        let lost = match &outcome {
            Outcome::Unknown(why) => Some(why.clone()),
            _ => None,
        };
        self.report(out);
        self.state = State::Idle;
        out.push(self.reply(ticket, outcome));
        if let Some(why) = lost {
            self.lost(now, why, out);
        }
    }

    /// The connection is over, or none came about: the same reason is reported once.
    fn lost(&mut self, now: Micros, why: String, out: &mut Vec<Does>) {
        let was_up = matches!(self.state, State::Idle | State::Busy(_));
        self.session.closed();
        out.push(Does::Close);
        self.state = State::Waiting(now + self.backoff);
        self.backoff = (self.backoff + self.backoff).min(BACKOFF_MAX);
        if was_up || self.reported.as_ref() != Some(&why) {
            self.reported = (!was_up).then(|| why.clone());
            out.push(event(Event::Down(self.name.clone(), why)));
        }
    }

    /// Hands on what the device reported unasked.
    fn report(&mut self, out: &mut Vec<Does>) {
        let name = &self.name;
        let foreign = self.session.foreign().into_iter();
        out.extend(foreign.map(|what| event(Event::Foreign(name.clone(), what))));
        let signals = self.session.signals().into_iter();
        out.extend(signals.map(|signal| event(Event::Signalled(name.clone(), signal))));
    }

    fn reply(&self, ticket: Ticket, outcome: Outcome) -> Does {
        event(Event::Reply { device: self.name.clone(), ticket, outcome })
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
