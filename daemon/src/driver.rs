// SPDX-License-Identifier: Apache-2.0
//! Devices as the runtime drives them: the dialects of [`lightloom_drivers`] over sockets and serial lines.
//!
//! Linux switches speak netlink, not bytes on a stream, and implement [`Driver`] directly.

pub mod chaos;
pub mod linux;
mod netlink;
pub mod stream;

use std::future::Future;
use std::pin::Pin;

use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};
use lightloom_drivers::module::{self, Module};

/// A future that a trait object can return.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What ends the wait of a driver that is asked nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// The connection broke, for this reason.
    Lost(String),
    /// The device reported something: [`Driver::foreign`], [`Driver::signals`].
    Reports,
}

/// A device as the runtime drives it.
pub trait Driver: Send {
    /// Connects and finds out who is there.
    fn connect(&mut self) -> Boxed<'_, Result<String, String>>;
    /// What the device promised of its own times when it was connected; `None` if nothing.
    fn promise(&self) -> Option<Promise> {
        None
    }
    /// Performs one operation. When the future is dropped half-way, [`Driver::disconnect`] comes next.
    fn run<'a>(&'a mut self, op: &'a Op) -> Boxed<'a, Outcome>;
    /// Reads a transceiver's own account of itself. When the future is dropped half-way, or the outcome is
    /// unknown, [`Driver::disconnect`] comes next.
    fn look(&mut self) -> Boxed<'_, Result<Module, Outcome>> {
        Box::pin(async { Err(Outcome::Refused(module::NO_MODULE.into())) })
    }
    /// Returns while nothing is asked when the connection breaks, with the reason, or when the device reports
    /// what [`Driver::foreign`] and [`Driver::signals`] then return.
    fn idle(&mut self) -> Boxed<'_, Idle>;
    /// What the device has reported of other controllers since this was last called.
    fn foreign(&mut self) -> Vec<Foreign> {
        Vec::new()
    }
    /// What the device has reported of its light since this was last called.
    fn signals(&mut self) -> Vec<Signal> {
        Vec::new()
    }
    /// Drops the connection.
    fn disconnect(&mut self);
    /// The bytes that operations would send one after the other.
    ///
    /// # Errors
    /// Why an operation cannot be asked of this device.
    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String>;
    /// Messages that made no sense, so far.
    fn noise(&self) -> u64;
}
