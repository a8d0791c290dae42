// SPDX-License-Identifier: Apache-2.0
//! The command line `lightloom` has one file per verb that parses arguments, calls a library and
//! prints. It contains neither document types nor logic.
//!
//! `lightloom` plans and emulates. All other verbs need prices, pages, the daemon, devices or
//! servers and belong to `lightloom-lab`, which `lightloom` finds next to its own executable
//! ([`second`]). This keeps the first program quick to compile.
//!
//! To add a verb, create a file with `Arguments` (clap) and `run`, here or in `lab/src/`, add its
//! `mod` line, and add its two lines to the `cli.rs` next to it. A verb in `lab/src/` also needs a
//! line in [`second::VERBS`]. Print with [`output`], and access files with [`files`].

pub mod choice;
pub mod cli;
pub mod emulate;
pub mod explain;
pub mod fabric;
pub mod files;
pub mod init;
pub mod junit;
pub mod kinds;
pub mod merge;
pub mod number;
pub mod output;
pub mod plan;
pub mod plan_rfabric;
pub mod progress;
pub mod replan;
pub mod result;
pub mod schema;
pub mod second;
pub mod shipped;
pub mod table;
pub mod trace;
pub mod validate;
