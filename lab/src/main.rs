// SPDX-License-Identifier: Apache-2.0
//! `lightloom-lab` contains all verbs of lightloom. The program `lightloom` runs it for verbs that
//! it lacks, so that planning and emulation do not require the daemon, devices and reports.

mod buy;
mod calibrate;
mod cards;
mod cli;
mod compare;
mod completions;
mod cost;
mod ctl;
mod demo;
mod designs;
mod device;
mod export;
mod host_names;
mod kinds;
mod man;
mod measure;
mod mfu;
mod report;
mod reproduce;
mod rl;
mod serve;
mod signals;
mod traces;
mod twin;
mod verb;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
