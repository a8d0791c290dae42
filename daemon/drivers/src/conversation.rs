// SPDX-License-Identifier: Apache-2.0
//! What a tender drives: a session over bytes, or a device that answers at once, such as the kernel.

use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};

use crate::module::{self, Module};
use crate::{Dialect, Reached, Session};

/// One device's side of a connection: bytes in, bytes out, one operation at a time.
pub trait Conversation: Send {
    /// A fresh connection: says hello. What comes of it at once, where no bytes are exchanged.
    fn connected(&mut self, out: &mut Vec<u8>) -> Option<Reached>;
    /// Starts an operation; an outcome at once where nothing has to be sent.
    fn start(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome>;
    /// Starts a read anew, whose answer was waited for until now. An outcome where the two answers look alike: then the
    /// connection is of no use any more.
    fn ask_again(&mut self, _op: &Op, _out: &mut Vec<u8>) -> Option<Outcome> {
        Some(Outcome::Unknown("an answer to an older question is on its way".into()))
    }
    /// Starts to read a transceiver's own account of itself.
    ///
    /// # Errors
    /// Why it cannot be asked. Nothing was sent.
    fn look(&mut self, _out: &mut Vec<u8>) -> Result<(), Box<Outcome>> {
        Err(Outcome::Refused(module::NO_MODULE.into()).into())
    }
    /// What was read of it.
    fn module(&self) -> Option<Module> {
        None
    }
    /// Takes bytes from the device; `out` gets the next request, if one is due.
    fn received(&mut self, _bytes: &[u8], _out: &mut Vec<u8>) -> Option<Reached> {
        None
    }
    /// The connection is over.
    fn closed(&mut self);
    /// What the device promised of its own times; `None` if nothing.
    fn promise(&self) -> Option<Promise> {
        None
    }
    /// What the device has reported of other controllers since this was last called.
    fn foreign(&mut self) -> Vec<Foreign> {
        Vec::new()
    }
    /// What the device has reported of its light since this was last called.
    fn signals(&mut self) -> Vec<Signal> {
        Vec::new()
    }
    /// The bytes that operations would send one after the other.
    ///
    /// # Errors
    /// Why an operation cannot be asked of this device.
    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String>;
    /// Messages that made no sense, so far.
    fn noise(&self) -> u64 {
        0
    }
}

impl<D: Dialect + Clone> Conversation for Session<D> {
    fn connected(&mut self, out: &mut Vec<u8>) -> Option<Reached> {
        self.connected(out);
        None
    }
    fn start(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
        self.start(op, out)
    }
    fn ask_again(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome> {
        self.ask_again(op, out)
    }
    fn look(&mut self, out: &mut Vec<u8>) -> Result<(), Box<Outcome>> {
        self.look(out)
    }
    fn module(&self) -> Option<Module> {
        self.dialect().module()
    }
    fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<Reached> {
        self.received(bytes, out)
    }
    fn closed(&mut self) {
        self.closed();
    }
    fn promise(&self) -> Option<Promise> {
        self.dialect().promise()
    }
    fn foreign(&mut self) -> Vec<Foreign> {
        self.foreign()
    }
    fn signals(&mut self) -> Vec<Signal> {
        self.signals()
    }
    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String> {
        crate::preview(self.dialect(), ops)
    }
    fn noise(&self) -> u64 {
        self.noise()
    }
}
