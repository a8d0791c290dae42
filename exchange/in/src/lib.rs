// SPDX-License-Identifier: Apache-2.0
//! Drafts lightloom files from an operator's logs about a cluster, its jobs and faults.
//!
//! ```text
//! files ──▶ kinds (one file each) ──▶ Logs ──▶ checks across files ──▶ draft ──▶ fabric, fault trace, scenario, …
//! ```
//!
//! A value missing in the logs becomes a [`Guess`] with its [`GuessConfidence`]. A new kind needs a file with a
//! [`LogKind`] in `kinds/` and a line in [`KINDS`].

mod checks;
mod clock;
mod draft;
mod host_list;
mod json;
mod kinds;
mod logs;
mod mentions;
mod problem;
#[cfg(test)]
mod tests;

pub use draft::{Draft, DraftFile, Guess, GuessConfidence, draft};
pub use host_list::expand_hosts;
pub use kinds::{KINDS, LogKind, read};
pub use logs::{HostOutage, HostRecord, HostShape, LogFile, LoggedJob, Logs, TrainingProfile};
pub use problem::{LogPlace, LogProblem};
