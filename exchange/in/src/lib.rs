// SPDX-License-Identifier: Apache-2.0
//! Reads an operator's logs about a cluster, its jobs and its faults, and drafts lightloom files
//! from them.
//!
//! ```text
//! files ──▶ kinds (one file each) ──▶ Logs ──▶ checks across files ──▶ draft ──▶ fabric, fault trace, scenario, …
//! ```
//!
//! [`read`] detects each file's kind by its content and extracts the information common to all
//! kinds: hosts and their switches, jobs, outages, training profiles. [`draft`] turns it into
//! commented files. A value that the logs do not contain becomes a [`Guess`] with its
//! [`GuessConfidence`]. An inconsistency becomes a [`LogProblem`], which names the file, the line,
//! and the information that remains usable.
//!
//! To add a kind, add a file with a [`LogKind`] in `kinds/` and a line in [`KINDS`].
//!
//! The command line reads folders, and the emulator runs the resulting files.

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
