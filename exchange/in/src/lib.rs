// SPDX-License-Identifier: Apache-2.0
//! An operator's own logs: what they say about a cluster, its jobs and its faults, and files of ours to begin with.
//!
//! ```text
//! files ──▶ kinds (one file each) ──▶ Logs ──▶ checks across files ──▶ draft ──▶ fabric, fault trace, scenario, …
//! ```
//!
//! [`read`] recognises each file by its content and keeps what is the same in all kinds: hosts and their switches, jobs,
//! outages, profiles of training. [`draft`] turns that into commented files. Whatever the logs do not say is a [`Guess`]
//! with its [`GuessConfidence`], and whatever does not fit together is a [`LogProblem`] with file and line and with what can
//! still be said.
//!
//! To add a kind: a file in `kinds/` with a [`LogKind`], and its line in [`KINDS`].
//!
//! Not here: reading of folders (the command line), and running of what comes out (the emulator).

mod checks;
mod clock;
mod draft;
mod host_list;
mod json;
mod kinds;
mod logs;
mod problem;
#[cfg(test)]
mod tests;

pub use draft::{Draft, DraftFile, Guess, GuessConfidence, draft};
pub use kinds::{KINDS, LogKind, read};
pub use logs::{HostOutage, HostRecord, HostShape, LogFile, LoggedJob, Logs, TrainingProfile};
pub use problem::{LogPlace, LogProblem, LogTrouble};
