// SPDX-License-Identifier: Apache-2.0
//! Months of training: what failures cost, as a bill of GPU-hours by cause.
//!
//! ```text
//!   scenario ─▶ Prepared ─cases─▶ a run of some steps each ─▶ LossTable ─┐
//!                                                                        ├─▶ one Month a seed ─▶ MonthsResult
//!   failures (trace, or rates and a seed) ─▶ changes of parts, in order ─┘
//! ```
//!
//! The loss of a failure is never typed: [`Prepared`] draws parts and instants of a step, and every [`Case`] is a run of the
//! scenario under its own control plane. A [`Month`] draws from the table of these runs. What no run covers is computed, and
//! has a cause of its own: waiting for nodes, checkpoints that are written and read, whole steps since the last of them.
//!
//! Time is counted in picoseconds of 128 bits, so that causes add up to what is lost exactly, over any number of years.
//!
//! Not here: files and threads; who calls runs the cases in whatever order it likes.

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
