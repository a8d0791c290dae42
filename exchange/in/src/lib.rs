// SPDX-License-Identifier: Apache-2.0
//! Reads an operator's own logs about a cluster, its jobs and its faults, and drafts lightloom
//! files from them.
//!
//! ```text
//! files ──▶ kinds (one file each) ──▶ Logs ──▶ checks across files ──▶ draft ──▶ fabric, fault trace, scenario, …
//! ```
//!
//! [`read`] detects the kind of each file by its content and extracts the information common to all
//! kinds: hosts and their switches, jobs, outages, training profiles. [`draft`] converts it to
//! commented files. Values missing from the logs become a [`Guess`] with its [`GuessConfidence`].
//! Inconsistencies become a [`LogProblem`] with file and line and the remaining usable information.
//!
//! To add a kind, add a file in `kinds/` with a [`LogKind`] and a line in [`KINDS`].
//!
//! Reading folders is left to the command line, and running the results to the emulator.

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
pub use kinds::{KINDS, LogKind, read};
pub use logs::{HostOutage, HostRecord, HostShape, LogFile, LoggedJob, Logs, TrainingProfile};
pub use problem::{LogPlace, LogProblem, LogTrouble};
