// SPDX-License-Identifier: Apache-2.0
//! A driver that fails any operation with any probability, around another driver. Seeded: the same
//! seed fails the same operations.

use lightloom_units::seed::Stream;
use rand::RngExt;

use super::{Boxed, Driver, Idle};
use crate::config::Chances;
use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};
use lightloom_drivers::module::Module;

/// The driver.
pub struct Chaos {
    inner: Box<dyn Driver>,
    chances: Chances,
    rng: Stream,
}

impl Chaos {
    /// Fails the operations of `inner`.
    #[must_use]
    pub fn new(inner: Box<dyn Driver>, chances: Chances, rng: Stream) -> Self {
        Self { inner, chances, rng }
    }

    fn strikes(&mut self, chance: f64) -> bool {
        self.rng.random::<f64>() < chance
    }
}

impl Driver for Chaos {
    fn connect(&mut self) -> Boxed<'_, Result<String, String>> {
        self.inner.connect()
    }

    fn promise(&self) -> Option<Promise> {
        self.inner.promise()
    }

    fn run<'a>(&'a mut self, op: &'a Op) -> Boxed<'a, Outcome> {
        Box::pin(async move {
            let moves = matches!(op, Op::Switch { .. } | Op::Arm { .. });
            if moves && self.strikes(self.chances.refuse) {
                return Outcome::Refused("chaos".into());
            }
            if self.strikes(self.chances.lose_request) {
                return Outcome::Unknown("chaos: the request was lost".into());
            }
            let outcome = self.inner.run(op).await;
            if self.strikes(self.chances.lose_reply) {
                return Outcome::Unknown("chaos: the reply was lost".into());
            }
            if moves && self.strikes(self.chances.fail) {
                return Outcome::Failed("chaos".into());
            }
            outcome
        })
    }

    fn look(&mut self) -> Boxed<'_, Result<Module, Outcome>> {
        self.inner.look()
    }

    fn idle(&mut self) -> Boxed<'_, Idle> {
        self.inner.idle()
    }
    fn signals(&mut self) -> Vec<Signal> {
        self.inner.signals()
    }

    fn foreign(&mut self) -> Vec<Foreign> {
        self.inner.foreign()
    }
    fn disconnect(&mut self) {
        self.inner.disconnect();
    }
    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
        self.inner.preview(ops)
    }
    fn noise(&self) -> u64 {
        self.inner.noise()
    }
}
