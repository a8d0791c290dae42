// SPDX-License-Identifier: Apache-2.0
//! Injects failures with the configured probabilities, reproducibly for each seed.

use lightloom_units::seed::Stream;
use rand::RngExt;

use crate::config::Chances;
use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};
use lightloom_drivers::Reached;
use lightloom_drivers::conversation::Conversation;
use lightloom_drivers::module::Module;

pub struct Chaos {
    inner: Box<dyn Conversation>,
    chances: Chances,
    rng: Stream,
    moves: Option<bool>,
}

impl Chaos {
    pub fn new(inner: Box<dyn Conversation>, chances: Chances, rng: Stream) -> Self {
        Self { inner, chances, rng, moves: None }
    }

    fn happens(&mut self, chance: f64) -> bool {
        self.rng.random::<f64>() < chance
    }

    fn ended(&mut self, moves: bool, outcome: Outcome) -> Outcome {
        if self.happens(self.chances.lose_reply) {
            return Outcome::Unknown("chaos: the reply was lost".into());
        }
        if moves && self.happens(self.chances.fail) {
            return Outcome::Failed("chaos".into());
        }
        outcome
    }
}

impl Conversation for Chaos {
    fn connected(&mut self, out: &mut Vec<u8>) -> Option<Reached> {
        self.inner.connected(out)
    }

    fn start(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
        let moves = matches!(op, Op::Switch { .. } | Op::Arm { .. });
        if moves && self.happens(self.chances.refuse) {
            return Some(Outcome::Refused("chaos".into()));
        }
        if self.happens(self.chances.lose_request) {
            return Some(Outcome::Unknown("chaos: the request was lost".into()));
        }
        let outcome = self.inner.start(op, out);
        self.moves = outcome.is_none().then_some(moves);
        outcome.map(|outcome| self.ended(moves, outcome))
    }

    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Reached> {
        match (self.inner.received(bytes, out), self.moves) {
            (Some(Reached::Ended(outcome)), Some(moves)) => {
                self.moves = None;
                Some(Reached::Ended(self.ended(moves, outcome)))
            }
            (reached, _) => reached,
        }
    }

    fn closed(&mut self) {
        self.moves = None;
        self.inner.closed();
    }

    fn look(&mut self, out: &mut Vec<u8>) -> Result<(), Box<Outcome>> {
        self.inner.look(out)
    }
    fn module(&self) -> Option<Module> {
        self.inner.module()
    }
    fn promise(&self) -> Option<Promise> {
        self.inner.promise()
    }
    fn signals(&mut self) -> Vec<Signal> {
        self.inner.signals()
    }
    fn foreign(&mut self) -> Vec<Foreign> {
        self.inner.foreign()
    }
    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
        self.inner.preview(ops)
    }
    fn noise(&self) -> u64 {
        self.inner.noise()
    }
}
