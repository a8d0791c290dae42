// SPDX-License-Identifier: Apache-2.0
//! Runs a scenario on a fabric or a network and reports the result.
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
