// SPDX-License-Identifier: Apache-2.0
//! The device side of a tender: a session over a byte stream, or the kernel.

use lightloom_control::controller::{Foreign, Signal};
use lightloom_control::mover::Promise;
use lightloom_control::state::{Op, Outcome};

use crate::Reached;
use crate::module::{self, Module};

pub trait Conversation: Send {
    fn connected(&mut self, out: &mut Vec<u8>) -> Option<Reached>;
    fn start(&mut self, op: &Op, out: &mut Vec<u8>) -> Option<Outcome>;
    fn ask_again(&mut self, _op: &Op, _out: &mut Vec<u8>) -> Option<Outcome> {
        Some(Outcome::Unknown("the reply to an earlier request is outstanding".into()))
    }
    fn look(&mut self, _out: &mut Vec<u8>) -> Result<(), Box<Outcome>> {
        Err(Outcome::Refused(module::NO_MODULE.into()).into())
    }
    fn module(&self) -> Option<Module> {
        None
    }
    fn received(&mut self, _bytes: &[u8], _out: &mut Vec<u8>) -> Option<Reached> {
        None
    }
    fn closed(&mut self);
    fn heard(&self) -> String {
        String::new()
    }
    fn promise(&self) -> Option<Promise> {
        None
    }
    fn foreign(&mut self) -> Vec<Foreign> {
        Vec::new()
    }
    fn signals(&mut self) -> Vec<Signal> {
        Vec::new()
    }
    fn preview(&self, ops: &[Op]) -> Result<Vec<Vec<u8>>, String>;
    fn noise(&self) -> u64 {
        0
    }
}
