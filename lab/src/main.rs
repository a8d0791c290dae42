// SPDX-License-Identifier: Apache-2.0
//! `lightloom-lab`: every verb of lightloom. `lightloom` runs it from beside itself for what it cannot do alone, so that
//! who plans and emulates need not compile prices, pages, the daemon, devices and servers.

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
mod twin;
mod verb;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
