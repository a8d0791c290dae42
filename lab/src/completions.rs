// SPDX-License-Identifier: Apache-2.0
//! `lightloom completions`: completion scripts for shells.

use clap_complete::Shell;

use crate::cli;
use lightloom::output::{self, VerbOutcome};

/// Prints the completion script of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lightloom completions bash > /etc/bash_completion.d/lightloom")]
pub(crate) struct Arguments {
    /// The shell that will read the script.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut cli::command(), "lightloom", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(VerbOutcome::Good)
}
