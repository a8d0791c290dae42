// SPDX-License-Identifier: Apache-2.0
//! The command line of lightloom: one file a verb, no logic of its own.
//!
//! To add a verb: a file `src/<verb>.rs` with `Arguments` (clap) and `run`, its `mod` line here, and
//! its two lines in `cli.rs`. Results go through [`output`], files through [`files`].

mod buy;
mod calibrate;
mod cli;
mod compare;
mod completions;
mod convert;
mod cost;
mod ctl;
mod demo;
mod emulate;
mod export;
mod files;
mod init;
mod kinds;
mod lab;
mod man;
mod merge;
mod mfu;
mod output;
mod plan;
mod plan_rfabric;
mod progress;
mod replan;
mod report;
mod reproduce;
mod result;
mod schema;
mod table;
mod trace;
mod validate;
mod workload;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    output::set_colour(arguments.color);
    output::conclude(cli::run(&arguments))
}
