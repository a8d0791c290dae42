// SPDX-License-Identifier: Apache-2.0
//! The command line of lightloom: one file a verb, no logic of its own.
//!
//! Two programs are made of it. `lightloom` plans and emulates: the verbs of this library. `lightloom-lab` runs the
//! same and all others, which need prices, pages, the daemon, devices or servers; `lightloom` finds it beside itself
//! ([`second`]), so that who plans and emulates need not compile it.
//!
//! To add a verb: a file with `Arguments` (clap) and `run`, here or in `lab/src/`, its `mod` line, and its two lines in
//! `cli.rs` beside it; one of `lab/src/` has a line in [`second::VERBS`], too. Results go through [`output`], files
//! through [`files`].

pub mod cli;
pub mod convert;
pub mod emulate;
pub mod fabric;
pub mod files;
pub mod init;
pub mod junit;
pub mod kinds;
pub mod merge;
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
