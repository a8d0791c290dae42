// SPDX-License-Identifier: Apache-2.0
//! Computes the cost of failures over months of training as a bill of GPU-hours by cause.
//!
//! ```text
//!   scenario ─▶ Prepared ─cases─▶ a run of some steps each ─▶ LossTable ─┐
//!                                                                        ├─▶ one Month per seed ─▶ MonthsResult
//!   failures (trace, or rates and a seed) ─▶ changes of parts, in order ─┘
//! ```
//!
//! The loss of a failure is always measured: [`Prepared`] draws which part fails and when within a
//! step, and every [`Case`] is a run of the scenario with its control plane. A [`Month`] draws from
//! the table of these runs. Losses that no run contains are computed as separate causes: waiting
//! for nodes, writing and reading checkpoints, and whole steps since the last checkpoint.
//!
//! Times are 128-bit picoseconds, so that causes add up exactly to the loss over any number of
//! years.
//!
//! The caller handles files and threads and runs the cases in any order.

mod alternatives;
mod bill;
mod cases;
mod failures;
mod known;
mod month;
mod seats;
mod table;

pub use alternatives::{Alternative, Change};
pub use bill::{
    BillRow, FailureRow, Figure, JobRow, MONTHS_SCHEMA, MonthRow, MonthsResult, RunCases, TableRow,
    months,
};
pub use cases::{Case, CaseRun, Prepared};
pub use failures::{PartChange, changes};
pub use known::LossesFrom;
pub use lightloom_planner::goodput::{Answer, Cause, Goodput, Policy, Replicas, TrainedJob};
pub use month::{Month, month};
pub use table::{JobLossSample, LossSample, LossTable};
