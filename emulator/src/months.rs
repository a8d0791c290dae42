// SPDX-License-Identifier: Apache-2.0
//! Cost of failures over months of training, as a bill of GPU-hours by cause.
//!
//! ```text
//!   scenario ─▶ Prepared ─cases─▶ a short run for each ─▶ LossTable ─────┐
//!                                                                        ├─▶ one Month per seed ─▶ MonthsResult
//!   failures (trace, or rates and a seed) ─▶ part changes, in order ─────┘
//! ```
//!
//! The loss due to a failure is always measured: every [`Case`] is a run of the scenario in which a random part
//! fails at a random instant of a step. A [`Month`] samples these runs. Losses that these runs do not cover have
//! separate causes: waiting for nodes, writing and reading checkpoints, and the steps since the last checkpoint.
//!
//! Times are 128-bit picoseconds, so causes add up exactly over any number of years. Callers handle files and threads.

mod alternatives;
mod bill;
mod cases;
mod failures;
mod known;
mod month;
mod seats;
mod table;

pub use crate::scenario::{Case, JobRow};
pub use alternatives::{Alternative, Change};
pub use bill::{
    BillRow, FailureRow, Figure, MONTHS_SCHEMA, MonthRow, MonthsResult, RunCases, TableRow, months,
};
pub use cases::{CaseRun, Prepared};
pub use failures::{PartChange, changes};
pub use known::LossesFrom;
pub use lightloom_planner::goodput::{Answer, Cause, Goodput, Policy, Replicas, TrainedJob};
pub use month::{Month, month};
pub use table::{JobLossSample, LossSample, LossTable};
