// SPDX-License-Identifier: Apache-2.0
//! Runs a scenario on a fabric or a network, and says what it came to.
//!
//! A [`scenario`] names what is run, what breaks and what is expected. The [`substrate`] is the fabric as vertices and links of
//! the engine. [`run`] is the only event loop: workloads send, faults begin and end, a control plane answers. The log of a
//! run is compared with that of the same run without faults, which gives the [`outcome`]; [`sweep`] does so for many seeds, and
//! [`months`] draw from such runs what failures cost over a span.
//! [`called`] lets a program send over a network while it runs.
//! [`training`] runs steps of a training job packet by packet, and [`shipped`] joins a control plane that is executed instead of
//! assumed to take some time.
//!
//! Times are integer picoseconds, sizes bytes; every figure is defined in docs/metrics.md. One seed gives one outcome.
//!
//! Not here: packets (`lightloom-engine`), plans (`lightloom-planner`), the real controller (`lightloom-twin`).

#![warn(missing_docs)]

pub mod called;
mod daemon_result;
mod emulate;
mod judge;
pub mod months;
mod nearest_rank;
pub mod outcome;
pub mod run;
pub mod scenario;
pub mod shipped;
mod stages;
pub mod substrate;
pub mod sweep;
pub mod training;

pub use emulate::{EmulateError, Finished, RunSettings, emulate, emulate_from, emulate_with, runs};
