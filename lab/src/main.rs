// SPDX-License-Identifier: Apache-2.0
//! `lightloom-lab`: the verbs that need servers and network stacks. `lightloom` runs it from beside itself, so
//! that who plans and emulates need not compile it.

mod cli;
mod device;
mod output;
mod twin;
mod verb;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    output::set_colour(arguments.color);
    output::conclude(cli::run(&arguments))
}
