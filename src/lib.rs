// SPDX-License-Identifier: Apache-2.0
//! The command line `lightloom`, one file a verb: parse, call, show. No document type and no logic is here.
//!
//! `lightloom` plans and emulates. All other verbs need prices, pages, the daemon, devices or servers: they are verbs of the
//! program `lightloom-lab`, which `lightloom` finds beside itself ([`second`]), so that the first command compiles little.
//!
//! To add a verb: a file with `Arguments` (clap) and `run`, here or in `lab/src/`, its `mod` line, and its two lines in
//! `cli.rs` beside it; a verb of `lab/src/` also has a line in [`second::VERBS`]. Results go through [`output`], files
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
