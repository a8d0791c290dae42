// SPDX-License-Identifier: Apache-2.0

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::output::{self, Colour, VerbOutcome};
use crate::{emulate, explain, init, merge, plan, replan, schema, second, trace, validate};

/// Plan, drive and emulate reconfigurable optical fabrics for AI clusters.
#[derive(Debug, Parser)]
#[command(
    name = "lightloom",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = "Exit status: 0 success, 1 the input or the result is bad, 2 wrong usage."
)]
pub struct Arguments<V: Subcommand> {
    /// When to colour messages (NO_COLOR disables `auto`)
    #[arg(
        long,
        global = true,
        display_order = 900,
        value_enum,
        default_value_t,
        value_name = "WHEN"
    )]
    pub color: Colour,
    #[command(subcommand)]
    pub verb: V,
}

/// Verbs that this library runs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Init(init::Arguments),
    Plan(plan::Arguments),
    Replan(replan::Arguments),
    Emulate(Box<emulate::Arguments>),
    Merge(merge::Arguments),
    Validate(validate::Arguments),
    Schema(schema::Arguments),
    Explain(explain::Arguments),
    Trace(trace::Arguments),
}

pub fn main() -> ExitCode {
    let matches = command().get_matches_from(help_of_verb(std::env::args_os().collect()));
    let colour = matches.get_one::<Colour>("color").copied().unwrap_or_default();
    output::set_colour(colour);
    let verb = matches.subcommand_name().unwrap_or_default();
    if second::has(verb) {
        return output::conclude(second::hand_over(verb));
    }
    let arguments =
        Arguments::<Verb>::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    output::conclude(match run(&arguments.verb) {
        Err(error) if error.is::<second::Needed>() => second::hand_over(verb),
        ended => ended,
    })
}

/// Rewrites `lightloom help VERB` as `lightloom VERB --help`, whichever program provides the verb.
pub fn help_of_verb(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|verb| verb == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    arguments
}

/// Returns [`Needed`](second::Needed), before any output, if the second program must run the command.
pub fn run(verb: &Verb) -> anyhow::Result<VerbOutcome> {
    match verb {
        Verb::Init(arguments) => init::run(arguments),
        Verb::Plan(arguments) => plan::run(arguments),
        Verb::Replan(arguments) => replan::run(arguments),
        Verb::Emulate(arguments) => emulate::run(arguments, None),
        Verb::Merge(arguments) => merge::run(arguments),
        Verb::Validate(arguments) => validate::run(arguments, &[]),
        Verb::Schema(arguments) => schema::run(arguments),
        Verb::Explain(arguments) => explain::run(arguments, &[]),
        Verb::Trace(arguments) => trace::run(arguments),
    }
}

fn command() -> clap::Command {
    grouped(
        Arguments::<Verb>::command().subcommands(second::VERBS.iter().map(second::Verb::command)),
    )
}

const GROUPS: [(&str, &[&str]); 5] = [
    ("Plan", &["init", "plan", "replan", "export"]),
    (
        "Run",
        &[
            "emulate",
            "merge",
            "workload",
            "mfu",
            "rl",
            "serve",
            "calibrate",
            "measure",
            "report",
            "reproduce",
            "demo",
        ],
    ),
    ("Buy", &["buy", "compare", "cost", "trace"]),
    ("Drive", &["ctl", "device", "conform", "twin"]),
    ("Files", &["validate", "explain", "schema", "completions", "man"]),
];

pub fn grouped(command: clap::Command) -> clap::Command {
    // A negative number is a wrong value and not an unknown option.
    let command = command.mut_subcommands(|verb| verb.allow_negative_numbers(true));
    let header = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let width = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (group, verbs) in GROUPS {
        template += &format!("{header}{group}:{header:#}\n");
        for name in verbs {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            template += &format!("  {literal}{name:width$}{literal:#}  {about}\n");
        }
        template += "\n";
    }
    template += &format!("{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_verb_is_in_one_group_and_its_line_fits_80_columns() {
        let command = super::command();
        let mut grouped: Vec<&str> =
            super::GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        let mut all: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = command.clone().render_help().to_string();
        for verb in command.get_subcommands() {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let line =
                help.lines().find(|line| line.contains(&about)).expect("a line of each verb");
            assert!(line.trim_start().starts_with(verb.get_name()), "{line}");
            assert!(line.len() <= 80, "{} columns: {line}", line.len());
        }
    }

    #[test]
    fn command_is_well_formed_and_every_verb_has_an_example() {
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
