// SPDX-License-Identifier: Apache-2.0
//! The conformance suite: whether a device keeps the promises of its protocol.
//!
//! A suite is a list of cases for one protocol, each one promise. It runs over a link (TCP, TLS, a serial line, or an emulated
//! device in tests) with a raw client of its own, not with the daemon's drivers, because what a driver tolerates or hides
//! is to be found. The result is a report, a line a case.
//!
//! Not here: the verbs of the program `lightloom-lab`, which are beside this library in `main.rs`.

pub mod conform;
