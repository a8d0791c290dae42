// SPDX-License-Identifier: Apache-2.0

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Subcommand};
use lightloom::output::{self, VerbOutcome};
use lightloom::second::VERBS;
use lightloom::{cli as first, emulate, explain, plan, validate};
use lightloom_twin::make_control;

use crate::kinds::READERS;
use crate::{
    buy, calibrate, compare, completions, cost, ctl, demo, device, export, man, measure, mfu,
    report, reproduce, rl, serve, twin, verb, workload,
};

pub(crate) type Arguments = first::Arguments<Verb>;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    #[command(flatten)]
    First(first::Verb),
    Demo(demo::Arguments),
    Report(report::Arguments),
    Export(export::Arguments),
    Compare(compare::Arguments),
    Cost(cost::Arguments),
    Buy(buy::Arguments),
    Reproduce(reproduce::Arguments),
    Mfu(Box<mfu::Arguments>),
    Rl(rl::Arguments),
    Serve(serve::Arguments),
    Calibrate(calibrate::Arguments),
    Measure(measure::Arguments),
    Workload(workload::Arguments),
    Ctl(ctl::Arguments),
    Device(device::Arguments),
    Conform(verb::Arguments),
    Twin(twin::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

pub(crate) fn main() -> ExitCode {
    let given = first::help_of_verb(std::env::args_os().collect());
    let arguments = Arguments::from_arg_matches(&command().get_matches_from(given))
        .unwrap_or_else(|error| error.exit());
    output::set_colour(arguments.color);
    output::conclude(run(&arguments))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    match &arguments.verb {
        Verb::First(first::Verb::Plan(arguments)) => plan::run(arguments),
        Verb::First(first::Verb::Emulate(arguments)) => {
            emulate::run(arguments, Some(&make_control))
        }
        Verb::First(first::Verb::Validate(arguments)) => validate::run(arguments, READERS),
        Verb::First(first::Verb::Explain(arguments)) => explain::run(arguments, READERS),
        Verb::First(verb) => first::run(verb),
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Report(arguments) => report::run(arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::Compare(arguments) => compare::run(arguments),
        Verb::Cost(arguments) => cost::run(arguments),
        Verb::Buy(arguments) => buy::run(arguments),
        Verb::Reproduce(arguments) => reproduce::run(arguments),
        Verb::Mfu(arguments) => mfu::run(arguments),
        Verb::Rl(arguments) => rl::run(arguments),
        Verb::Serve(arguments) => serve::run(arguments),
        Verb::Calibrate(arguments) => calibrate::run(arguments),
        Verb::Measure(arguments) => measure::run(arguments),
        Verb::Workload(arguments) => workload::run(arguments),
        Verb::Ctl(arguments) => ctl::run(arguments),
        Verb::Device(arguments) => device::run(arguments),
        Verb::Conform(arguments) => verb::run(arguments),
        Verb::Twin(arguments) => twin::run(arguments),
        Verb::Completions(arguments) => completions::run(arguments),
        Verb::Man(arguments) => man::run(arguments),
    }
}

pub(crate) fn command() -> clap::Command {
    let command = VERBS.iter().fold(Arguments::command(), |command, verb| {
        command.mut_subcommand(verb.name, |own| own.about(verb.about))
    });
    first::grouped(command.bin_name("lightloom"))
}

#[cfg(test)]
mod tests {
    use super::VERBS;

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
                assert!(
                    help.contains("Example") || ["device", "twin"].contains(&verb.get_name()),
                    "`{} {name}` shows no example",
                    verb.get_name()
                );
            }
        }
    }

    #[test]
    fn main_program_lists_the_lab_verbs_with_an_example_from_their_help() {
        let command = super::command();
        let all: Vec<_> = command.get_subcommands().collect();
        let own = &all[all.len() - VERBS.len()..];
        for (listed, verb) in VERBS.iter().zip(own) {
            let text = |styled: Option<&clap::builder::StyledStr>| {
                styled.map(ToString::to_string).unwrap_or_default()
            };
            assert_eq!(listed.name, verb.get_name());
            let (help, name) = (text(verb.get_after_help()), listed.name);
            assert!(help.contains(listed.example), "{name}: the example is missing from the help");
        }
    }

    /// Verbs share functions through modules that are not verbs, such as `designs`. The demonstration types what a
    /// user would type into `ctl`.
    #[test]
    fn verbs_do_not_call_other_verbs() {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let verbs: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
        let mut open = vec![folder.to_owned()];
        while let Some(folder) = open.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    open.push(path);
                    continue;
                }
                let name = path.strip_prefix(concat!(env!("CARGO_MANIFEST_DIR"), "/src/")).unwrap();
                let own = name.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
                let text = std::fs::read_to_string(&path).unwrap();
                let others = verbs.iter().filter(|verb| **verb != own && own != "cli");
                let mut called = others.filter(|verb| text.contains(&format!("crate::{verb}")));
                let other = called.find(|verb| (own, **verb) != ("demo", "ctl"));
                assert_eq!(other, None, "{}", path.display());
            }
        }
    }
}
