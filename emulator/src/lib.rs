// SPDX-License-Identifier: Apache-2.0
//! Runs a scenario on a fabric or a network and reports the result.
//!
//! A [`scenario`] defines the workloads, faults and expectations. The [`substrate`] represents the
//! fabric as vertices and links of the engine. [`run`] is the only event loop: workloads send,
//! faults begin and end, and a control plane reacts. Comparing the log of a run with the same run
//! without faults gives the [`outcome`]. [`sweep`] runs many seeds, and [`months`] samples such
//! runs to find the cost of failures over a long span. [`called`] lets a program send over a
//! network during a run. [`training`] runs steps of a training job packet by packet, and
//! [`shipped`] attaches a control plane that is executed rather than modelled by delays.
//!
//! Times are integers in picoseconds and sizes are in bytes; docs/metrics.md defines every figure.
//! The same seed always gives the same outcome, except for two wall-clock figures.
//!
//! `lightloom-engine` simulates packets, and `lightloom-planner` makes plans. The real controller is
//! in `lightloom-control`; `lightloom-twin` runs it under the clock of a run.

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

pub use emulate::{EmulateError, Finished, RunSettings, emulate, emulate_from, emulate_with};
