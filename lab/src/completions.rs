// SPDX-License-Identifier: Apache-2.0

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use lightloom_training::cards;

use crate::cli;
use lightloom::output::{self, VerbOutcome};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  lightloom completions bash > /etc/bash_completion.d/lightloom")]
pub(crate) struct Arguments {
    /// Target shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut with_names(cli::command()),
        "lightloom",
        &mut script,
    );
    output::print(&String::from_utf8(script)?)?;
    Ok(VerbOutcome::Good)
}

const ARCHITECTURES: [&str; 9] =
    ["khop:2", "khop:3", "nvl:36", "nvl:72", "nvl:576", "dgx", "tpuv4", "sip-ring", "big-switch"];

/// Completes option values with known names. Value lists of clap would refuse files.
fn with_names(command: Command) -> Command {
    let [models, accelerators, constants] = cards::all_names();
    let names = [
        ("model", models),
        ("accelerator", accelerators),
        ("constants", constants),
        ("arch", ARCHITECTURES.to_vec()),
    ];
    command.mut_subcommands(|mut verb| {
        for (option, names) in &names {
            if verb.get_arguments().any(|known| known.get_id() == *option) {
                verb = verb.mut_arg(option, |known| {
                    known.value_parser(PossibleValuesParser::new(names.clone()))
                });
            }
        }
        verb
    })
}

#[cfg(test)]
mod tests {
    use super::{ARCHITECTURES, with_names};
    use crate::cli;

    #[test]
    fn options_complete_known_names() {
        let mut script = Vec::new();
        let mut command = with_names(cli::command());
        clap_complete::generate(clap_complete::Shell::Bash, &mut command, "lightloom", &mut script);
        let script = String::from_utf8(script).unwrap();
        for name in ["llama-3.1-70b", "h100", "nemo-25.02", "khop:3 "] {
            assert!(script.contains(name), "{name}");
        }
    }

    #[test]
    fn every_completed_architecture_is_known() {
        for name in ARCHITECTURES {
            assert!(lightloom_study::architecture::parse(name).is_ok(), "{name}");
        }
    }
}
