// SPDX-License-Identifier: Apache-2.0
//! The conformance suite, which tests whether a device keeps its protocol's promises.
//!
//! A suite is a list of cases for one protocol; each case tests one promise. The suite runs over a
//! link (TCP, TLS, a serial line, or an emulated device in tests). It has its own raw client,
//! because the daemon's drivers tolerate or hide faults that the suite must find. The result is a
//! report with one line per case.
//!
//! The verbs of the program `lightloom-lab` are in `main.rs` and are not part of this library.

pub mod conform;
