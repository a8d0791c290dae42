// SPDX-License-Identifier: Apache-2.0
//! The verbs and the flags they share.

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::ctl;
use crate::output::{Colour, Outcome};
use crate::{
    buy, calibrate, compare, completions, convert, cost, demo, emulate, export, init, lab, man,
    merge, mfu, plan, replan, report, reproduce, schema, trace, validate, workload,
};

/// Plans, drives and emulates reconfigurable optical fabrics for AI clusters.
#[derive(Debug, Parser)]
#[command(
    name = "lightloom",
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
    Demo(demo::Arguments),
    Init(init::Arguments),
    Plan(plan::Arguments),
    Replan(replan::Arguments),
    Emulate(Box<emulate::Arguments>),
    Merge(merge::Arguments),
    Calibrate(calibrate::Arguments),
    Validate(validate::Arguments),
    Schema(schema::Arguments),
    Compare(compare::Arguments),
    Completions(completions::Arguments),
    Conform(lab::Conform),
    Convert(convert::Arguments),
    Buy(buy::Arguments),
    Cost(cost::Arguments),
    Device(lab::Device),
    Twin(lab::Twin),
    Export(export::Arguments),
    Ctl(ctl::Arguments),
    Man(man::Arguments),
    Mfu(Box<mfu::Arguments>),
    Report(report::Arguments),
    Reproduce(reproduce::Arguments),
    Trace(trace::Arguments),
    Workload(workload::Arguments),
}

/// Runs the chosen verb.
///
/// # Errors
/// Whatever kept the verb from giving a result: printed to standard error, exit status 1.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    match &arguments.verb {
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Init(arguments) => init::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Replan(arguments) => replan::run(arguments),
        Verb::Emulate(arguments) => emulate::run(arguments),
        Verb::Merge(arguments) => merge::run(arguments),
        Verb::Calibrate(arguments) => calibrate::run(arguments),
        Verb::Compare(arguments) => compare::run(arguments),
        Verb::Validate(arguments) => validate::run(arguments),
        Verb::Schema(arguments) => schema::run(arguments),
        Verb::Completions(arguments) => completions::run(arguments),
        Verb::Convert(arguments) => convert::run(arguments),
        Verb::Buy(arguments) => buy::run(arguments),
        Verb::Cost(arguments) => cost::run(arguments),
        Verb::Conform(lab::Conform { rest }) => lab::run("conform", rest, arguments.color),
        Verb::Device(lab::Device { rest }) => lab::run("device", rest, arguments.color),
        Verb::Twin(lab::Twin { rest }) => lab::run("twin", rest, arguments.color),
        Verb::Export(arguments) => export::run(arguments),
        Verb::Ctl(arguments) => ctl::run(arguments),
        Verb::Man(arguments) => man::run(arguments),
        Verb::Mfu(arguments) => mfu::run(arguments),
        Verb::Report(arguments) => report::run(arguments),
        Verb::Reproduce(arguments) => reproduce::run(arguments),
        Verb::Trace(arguments) => trace::run(arguments),
        Verb::Workload(arguments) => workload::run(arguments),
    }
}

/// The whole command as clap knows it, for completions and for reporting wrong usage.
pub(crate) fn command() -> clap::Command {
    Arguments::command()
}

/// How a verb shows its result. Flatten it into a verb's arguments.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArgument {
    /// How to show the result.
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) format: Format,
}

/// The two forms of every result.
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
        let command = super::command();
        command.clone().debug_assert();
        for verb in command.get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`{}` shows no example", verb.get_name());
            for part in verb.get_subcommands() {
                let help = part.get_after_help().map(ToString::to_string).unwrap_or_default();
                let name = part.get_name();
                assert!(help.contains("Example"), "`{} {name}` shows no example", verb.get_name());
            }
        }
    }
}
