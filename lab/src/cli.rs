// SPDX-License-Identifier: Apache-2.0
//! The verbs of this program, as `lightloom` shows them.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::output::{self, Colour, Outcome};
use crate::{device, twin, verb};

/// Emulated devices to connect to, the conformance suite for devices of every protocol, and the live twin.
#[derive(Debug, Parser)]
#[command(
    name = "lightloom-lab",
    bin_name = "lightloom",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = "Exit status: 0 success, 1 the input or the result is bad, 2 wrong usage."
)]
pub(crate) struct Arguments {
    /// When to colour messages (NO_COLOR turns `auto` off).
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Colour,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Device(device::Arguments),
    Conform(verb::Arguments),
    Twin(twin::Arguments),
    Completions(Completions),
    Man(Man),
}

/// Prints the completion script of a shell for this program.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  lightloom-lab completions bash > /etc/bash_completion.d/lightloom-lab"
)]
struct Completions {
    /// The shell that will read the script.
    shell: Shell,
}

/// Writes the manual pages of `lightloom device`, `lightloom conform` and `lightloom twin`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  lightloom-lab man --folder ~/.local/share/man/man1")]
struct Man {
    /// Folder for the pages, which is made.
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
}

/// Runs the chosen verb.
///
/// # Errors
/// Whatever kept the verb from giving a result: printed to standard error, exit status 1.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    match &arguments.verb {
        Verb::Device(arguments) => device::run(arguments),
        Verb::Conform(arguments) => verb::run(arguments),
        Verb::Twin(arguments) => twin::run(arguments),
        Verb::Completions(arguments) => completions(arguments),
        Verb::Man(arguments) => man(arguments),
    }
}

fn completions(arguments: &Completions) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    let mut command = Arguments::command().bin_name("lightloom-lab");
    clap_complete::generate(arguments.shell, &mut command, "lightloom-lab", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Outcome::Good)
}

fn man(arguments: &Man) -> anyhow::Result<Outcome> {
    let folder = &arguments.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The pages are called as a user types: `man lightloom-device-serve`.
    let mut program = Arguments::command().name("lightloom");
    program.build();
    let verbs =
        ["device", "conform", "twin"].into_iter().filter_map(|name| program.find_subcommand(name));
    let mut commands: Vec<_> = verbs.cloned().collect();
    let mut pages = 0;
    while let Some(command) = commands.pop() {
        let page = clap_mangen::Man::new(command.clone());
        let mut text = Vec::new();
        page.render(&mut text)?;
        let path = folder.join(page.get_filename());
        std::fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        pages += 1;
        commands.extend(command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned());
    }
    output::note(&format!("wrote {pages} pages to {}", folder.display()));
    Ok(Outcome::Good)
}

/// How a verb shows its result. Flatten it into a verb's arguments.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArgument {
    /// How to show the result.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// The two forms of most results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned tables with units, for people.
    #[default]
    Text,
    /// One JSON document, for programs.
    Json,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_is_well_formed_and_every_verb_has_an_example() {
        use clap::CommandFactory;
        let command = super::Arguments::command();
        command.clone().debug_assert();
        for verb in command.get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`{}` shows no example", verb.get_name());
        }
    }
}
