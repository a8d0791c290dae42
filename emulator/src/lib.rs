// SPDX-License-Identifier: Apache-2.0
//! Runs a scenario on a fabric or a network and reports the result.
//!
//! A [`scenario`] defines the workloads, faults and expectations, and a [`substrate`] represents
//! the fabric as vertices and links. [`run`] contains the only event loop. The [`outcome`] compares
//! the log of a run with the log of a fault-free run. [`sweep`] repeats runs over many seeds;
//! [`months`] extrapolates from such runs to the cost of failures over a long period.
//!
//! Times are integers in picoseconds and sizes are in bytes; docs/metrics.md defines every metric.
//! The same seed always produces the same outcome, except for two wall-clock times.

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
