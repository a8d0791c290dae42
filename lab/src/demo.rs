// SPDX-License-Identifier: Apache-2.0

mod cluster;
mod live;
mod processes;

use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use clap::Parser;

use crate::cli;
use lightloom::output::{self, VerbOutcome};
use lightloom::shipped;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom demo
  lightloom demo --folder /tmp/first --no-open
  lightloom demo --live

Each command is shown before it runs; you can run it again in the folder.")]
pub(crate) struct Arguments {
    /// Output folder, created if missing.
    #[arg(long, value_name = "FOLDER", default_value = "lightloom-demo")]
    folder: PathBuf,
    /// Do not open the page [default: opened if the output is a terminal].
    #[arg(long)]
    no_open: bool,
    /// Run a cluster of emulated devices with the daemon (and Slurm, as root), and fail a node.
    #[arg(long)]
    live: bool,
    /// Start that cluster without failing a node, and keep it running until interrupted.
    #[arg(long, requires = "live")]
    stay: bool,
    #[command(flatten)]
    size: cluster::Size,
}

const FILES: [(&str, &str); 5] = [
    ("topologies/ring-2880.yaml", shipped::RING_2880),
    ("topologies/scenarios/node-fault.yaml", shipped::NODE_FAULT),
    ("topologies/traces/synthetic.json", shipped::SYNTHETIC_TRACE),
    ("topologies/job-64-circuits.yaml", shipped::JOB_64_CIRCUITS),
    ("topologies/scenarios/first-bill.yaml", shipped::FIRST_BILL),
];

const COMMANDS: [&str; 5] = [
    "lightloom plan topologies/ring-2880.yaml --fault n17,n42 -o plan.json",
    "lightloom emulate topologies/scenarios/node-fault.yaml -o run.json",
    "lightloom report topologies/ring-2880.yaml plan.json topologies/traces/synthetic.json run.json -o report.html",
    "lightloom emulate topologies/scenarios/first-bill.yaml --seed 0..19 -o bill.json",
    "lightloom report bill.json -o bill.html",
];

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let is_used = fs::read_dir(&arguments.folder).is_ok_and(|mut there| there.next().is_some());
    ensure!(
        !is_used,
        "{} is not empty and would be overwritten: use another --folder",
        arguments.folder.display()
    );
    if arguments.stay {
        return live::stay(&arguments.folder, arguments.size).map(|()| VerbOutcome::Good);
    }
    if arguments.live {
        live::run(&arguments.folder, arguments.size)?;
        std::env::set_current_dir(&arguments.folder)?;
        typed(&format!("lightloom report {} -o report.html", live::PAGE.join(" ")))?;
        return Ok(shown(arguments));
    }
    for (name, contents) in FILES {
        let path = arguments.folder.join(name);
        let parent = path.parent().unwrap_or(&arguments.folder);
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
    }
    output::note(&format!("$ cd {}", arguments.folder.display()));
    std::env::set_current_dir(&arguments.folder)?;
    COMMANDS.into_iter().try_for_each(typed)?;
    Ok(shown(arguments))
}

fn typed(command: &str) -> anyhow::Result<()> {
    output::note(&format!("\n$ {command}"));
    let ended = cli::run(&cli::Arguments::try_parse_from(command.split(' '))?)?;
    ensure!(ended == VerbOutcome::Good, "`{command}` failed");
    Ok(())
}

fn shown(arguments: &Arguments) -> VerbOutcome {
    let page = arguments.folder.join("report.html");
    if !arguments.no_open && std::io::stdout().is_terminal() && opened() {
        output::note(&format!("opened {}", page.display()));
    } else {
        output::note(&format!("open {} in a browser", page.display()));
    }
    VerbOutcome::Good
}

fn opened() -> bool {
    let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(opener);
    command.arg("report.html").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
