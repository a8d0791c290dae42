// SPDX-License-Identifier: Apache-2.0
//! The command line `lightloom`, with one file per verb that parses, calls a library and prints. It
//! contains no document types and no logic.
//!
//! `lightloom` plans and emulates. All other verbs need prices, pages, the daemon, devices or
//! servers. They belong to the program `lightloom-lab`, which `lightloom` finds next to its own
//! executable ([`second`]), so that the first program compiles quickly.
//!
//! To add a verb, create a file with `Arguments` (clap) and `run`, here or in `lab/src/`, add its
//! `mod` line, and add its two lines to the `cli.rs` next to it. A verb in `lab/src/` also needs a
//! line in [`second::VERBS`]. Print results through [`output`] and access files through [`files`].

pub mod cli;
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
