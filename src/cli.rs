// SPDX-License-Identifier: Apache-2.0
//! The verbs of the first program, in the order of its help.

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::{self, Colour, Outcome};
use crate::{convert, emulate, init, merge, plan, replan, schema, second, trace, validate};

/// Plans, drives and emulates reconfigurable optical fabrics for AI clusters.
#[derive(Debug, Parser)]
#[command(
    name = "lightloom",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = "Exit status: 0 success, 1 the input or the result is bad, 2 wrong usage."
)]
struct Arguments {
    /// When to colour messages (NO_COLOR turns `auto` off).
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    color: Colour,
    #[command(subcommand)]
    verb: Verb,
}

/// The verbs that this library runs.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "the description of a verb stands at its arguments")]
pub enum Verb {
    Init(init::Arguments),
    Plan(plan::Arguments),
    Replan(replan::Arguments),
    Emulate(Box<emulate::Arguments>),
    Merge(merge::Arguments),
    Validate(validate::Arguments),
    Schema(schema::Arguments),
    Convert(convert::Arguments),
    Trace(trace::Arguments),
}

/// The whole first program, from its arguments to its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let colour = matches.get_one::<Colour>("color").copied().unwrap_or_default();
    output::set_colour(colour);
    let verb = matches.subcommand_name().unwrap_or_default();
    if second::has(verb) {
        return output::conclude(second::hand_over(verb));
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    output::conclude(match run(&arguments.verb) {
        Err(error) if error.is::<second::Needed>() => second::hand_over(verb),
        ended => ended,
    })
}

/// Runs the chosen verb, as far as the first program can.
///
/// # Errors
/// Whatever kept the verb from giving a result, to be printed to standard error, exit status 1;
/// [`Needed`](second::Needed) before anything is written or printed where the second program has to run the command.
pub fn run(verb: &Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::Init(arguments) => init::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments, &plan::pricing::Elsewhere),
        Verb::Replan(arguments) => replan::run(arguments),
        Verb::Emulate(arguments) => emulate::run(arguments, None),
        Verb::Merge(arguments) => merge::run(arguments),
        Verb::Validate(arguments) => validate::run(arguments, &[]),
        Verb::Schema(arguments) => schema::run(arguments),
        Verb::Convert(arguments) => convert::run(arguments),
        Verb::Trace(arguments) => trace::run(arguments),
    }
}

/// The whole command, with a line for each verb of the second program.
fn command() -> clap::Command {
    Arguments::command().subcommands(second::VERBS.iter().map(second::Verb::command))
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
