// SPDX-License-Identifier: Apache-2.0
//! `lightloom-lab`: every verb of lightloom. For verbs that it lacks, the program `lightloom` runs
//! this one, which it finds in its own folder. Users who only plan and emulate therefore need not
//! compile prices, reports, the daemon, devices and servers.

mod buy;
mod calibrate;
mod cli;
mod compare;
mod completions;
mod cost;
mod ctl;
mod demo;
mod device;
mod export;
mod kinds;
mod man;
mod mfu;
mod prices;
mod report;
mod reproduce;
mod rl;
mod serve;
mod signals;
mod twin;
mod verb;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
