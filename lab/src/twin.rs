// SPDX-License-Identifier: Apache-2.0
//! `lightloom twin` runs real programs in network namespaces, whose links follow emulated light.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lightloom_live::enter::{self, Ended};
use lightloom_live::record::Folder;
use lightloom_live::{check, hold, up};
use serde_json::json;

use lightloom::output::{self, Format, FormatArgument, VerbOutcome, WrongUsage};

mod inside;
mod job;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom twin up topologies/ring-32.yaml --dir /tmp/twin
  lightloom twin exec n4 --dir /tmp/twin -- ping -c 1 n5
  lightloom twin exec --all --dir /tmp/twin -- hostname
  lightloom twin fault n4 dead --dir /tmp/twin
  lightloom twin down --dir /tmp/twin

LIGHTLOOM_TWIN names the folder if --dir is omitted. Real and emulated parts: docs/twin.md")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Up(Up),
    Exec(Exec),
    Report(job::JobReport),
    Status(Show),
    Fault(CutArguments),
    Down(Show),
    #[command(flatten)]
    Inside(inside::Verb),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Dir {
    /// Folder of the twin.
    #[arg(long = "dir", value_name = "FOLDER", env = "LIGHTLOOM_TWIN")]
    folder: PathBuf,
}

impl Dir {
    fn folder(&self) -> anyhow::Result<Folder> {
        Ok(Folder::new(&self.folder)?)
    }
}

/// Start a twin: namespaces, emulated transceivers, and lightloomd with a plan.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom twin up topologies/ring-32.yaml --dir /tmp/twin
  lightloom twin up topologies/ring-64.yaml --rate 1Gbps --dir /tmp/twin")]
struct Up {
    /// Fabric file, with `hbd: {khop: …}`.
    fabric: PathBuf,
    /// Plan for the fabric [default: a new plan].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Number of nodes that get a namespace, starting at n0; all have transceivers [default: all].
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Rate limit of a fibre, such as 1Gbps [default: as fast as this machine can].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<u64>,
    #[command(flatten)]
    dir: Dir,
    #[command(flatten)]
    format: FormatArgument,
}

/// Run a program in one node, or in each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom twin exec n4 --dir /tmp/twin -- ip address
  lightloom twin exec --all --timeout 60s --dir /tmp/twin -- ./train.py

The program gets LIGHTLOOM_NODE and LIGHTLOOM_TWIN; $LIGHTLOOM_TWIN/ranks.json lists its neighbours.
Exit status: the program's; with --all 0 if each program ended with 0, else 1.")]
struct Exec {
    /// Node, such as n4.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    node: Option<String>,
    /// Run on all nodes at the same time; each node's output goes to a separate log.
    #[arg(long)]
    all: bool,
    /// Name of the run; its logs are in log/NAME.
    #[arg(long, value_name = "NAME", default_value = "run", requires = "all")]
    name: String,
    /// Kill programs after this time, such as 60s [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeout: Option<Duration>,
    #[command(flatten)]
    dir: Dir,
    #[command(flatten)]
    format: FormatArgument,
    /// Program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Show a twin, or shut it down.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom twin status --dir /tmp/twin
  lightloom twin down --dir /tmp/twin")]
struct Show {
    #[command(flatten)]
    dir: Dir,
    #[command(flatten)]
    format: FormatArgument,
}

/// Fail a node, or inject a fault into a transceiver.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  lightloom twin fault n4 dead --dir /tmp/twin
  lightloom twin fault n4/b0 unplug 1 --dir /tmp/twin

`dead` for a node stops its light, its programs and its data-centre network; other faults as in
`lightloom device fault`.")]
struct CutArguments {
    /// Node or transceiver: n4 or n4/b0.
    part: String,
    /// Fault: its name and arguments.
    #[arg(required = true, value_name = "FAULT")]
    fault: Vec<String>,
    #[command(flatten)]
    dir: Dir,
    #[command(flatten)]
    format: FormatArgument,
}

fn rate(text: &str) -> Result<u64, String> {
    let rate: lightloom_units::BitsPerSecond =
        text.parse().map_err(|error| format!("{error}: expected a rate such as 1Gbps"))?;
    Ok(rate.get() / 8)
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time: lightloom_units::Picoseconds =
        text.parse().map_err(|error| format!("{error}: expected a time such as 60s"))?;
    Ok(Duration::from_nanos(time.get() / 1_000))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    match &arguments.verb {
        Verb::Up(arguments) => bring_up(arguments),
        Verb::Exec(arguments) => exec(arguments),
        Verb::Report(arguments) => job::report(arguments),
        Verb::Status(arguments) => status(arguments),
        Verb::Fault(arguments) => fault(arguments),
        Verb::Down(arguments) => down(arguments),
        Verb::Inside(verb) => inside::run(verb),
    }
}

fn bring_up(arguments: &Up) -> anyhow::Result<VerbOutcome> {
    let wanted = up::Wanted {
        fabric: arguments.fabric.clone(),
        plan: arguments.plan.clone(),
        nodes: arguments.nodes,
        bytes_per_second: arguments.rate,
    };
    let folder = arguments.dir.folder()?;
    let report = up::up(&folder, &wanted, &up::Programs::find()?)?;
    if arguments.format.format == Format::Json {
        output::print_document("lightloom.twin-up/v1", &report)?;
        return Ok(VerbOutcome::Good);
    }
    let rate = report.bytes_per_second.map_or_else(
        || "no rate limit".to_owned(),
        |rate| format!("at most {:.3} Gbit/s each", rate as f64 * 8e-9),
    );
    output::print(&format!(
        "{} is up in {:.2} s: {} nodes, {} transceivers, {} fibres with light, {rate}\n\
         connected by {}\n\
         namespaces {:.0} ms, transceivers {:.0} ms, read by lightloomd after {:.0} ms\n\
         lightloomd: lightloom ctl --socket {} status\n\
         next: lightloom twin exec n0 --dir {} -- ping -c 1 n1\n",
        report.fabric,
        report.total_ms / 1e3,
        report.nodes,
        report.transceivers,
        report.circuits,
        report.way,
        report.namespaces_ms,
        report.devices_ms,
        report.daemon_ms,
        report.daemon_socket.display(),
        report.folder.display(),
    ))?;
    Ok(VerbOutcome::Good)
}

fn exec(arguments: &Exec) -> anyhow::Result<VerbOutcome> {
    let folder = arguments.dir.folder()?;
    let Some(node) = &arguments.node else { return exec_all(arguments, &folder) };
    let status = enter::run(&folder, node, &arguments.command, arguments.timeout)?;
    match status.code() {
        Some(0) => Ok(VerbOutcome::Good),
        Some(code) => Ok(VerbOutcome::Status(u8::try_from(code).unwrap_or(1))),
        None => anyhow::bail!("the program ended with {status}"),
    }
}

fn exec_all(arguments: &Exec, folder: &Folder) -> anyhow::Result<VerbOutcome> {
    let name = &arguments.name;
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        let why = format!("`{name}` is not a valid folder name: use letters and digits");
        return Err(WrongUsage(why).into());
    }
    let programs = enter::NodePrograms {
        name: name.clone(),
        command: arguments.command.clone(),
        timeout: arguments.timeout,
    };
    let ended = enter::everywhere(folder, &up::Programs::find()?.own, &programs)?;
    let good = ended.iter().filter(|of| of.is_good()).count();
    if arguments.format.format == Format::Json {
        output::print_document("lightloom.twin-exec/v1", &json!({ "programs": ended }))?;
    } else {
        let longest = ended.iter().map(|of| of.ran_ms).fold(0.0, f64::max);
        let bad: String = ended.iter().filter(|of| !of.is_good()).map(line).collect();
        let logs = folder.file("log").join(name);
        let all = ended.len();
        output::print(&format!(
            "{bad}{good} of {all} ended with status 0, the last after {:.2} s; logs in {}\n",
            longest / 1e3,
            logs.display()
        ))?;
    }
    Ok(if good == ended.len() { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn line(of: &Ended) -> String {
    let how = match (of.timed_out, of.code, of.signal) {
        (true, ..) => "killed after --timeout".to_owned(),
        (_, Some(code), _) => format!("exit status {code}"),
        (_, None, signal) => format!("signal {}", signal.unwrap_or_default()),
    };
    format!("{}: {how}, see {}\n", of.node, of.log.with_extension("err").display())
}

fn status(arguments: &Show) -> anyhow::Result<VerbOutcome> {
    let folder = arguments.dir.folder()?;
    let record = folder.record()?;
    let up = enter::up(&folder);
    let ranks: Option<lightloom_live::ranks::Ranks> = folder.read(lightloom_live::ranks::FILE)?;
    let state = if up.is_ok() { "up" } else { "ended" };
    let generation = ranks.as_ref().map_or(0, |ranks| ranks.generation);
    if arguments.format.format == Format::Json {
        let process = up.as_ref().ok().map(|(holder, _)| *holder);
        let document = json!({
            "state": state, "fabric": record.fabric, "nodes": record.nodes, "process": process,
            "generation": generation,
        });
        output::print_document("lightloom.twin-status/v1", &document)?;
    } else {
        output::print(&format!(
            "{}: {state}, {} nodes, ranks of generation {generation}\n",
            record.fabric, record.nodes
        ))?;
    }
    up?;
    Ok(VerbOutcome::Good)
}

fn fault(arguments: &CutArguments) -> anyhow::Result<VerbOutcome> {
    let fault = arguments.fault.join(" ");
    let entry = lightloom_live::fault::inject(&arguments.dir.folder()?, &arguments.part, &fault)?;
    if arguments.format.format == Format::Json {
        output::print_document("lightloom.twin-fault/v1", &entry)?;
    } else if entry.killed > 0 {
        output::note(&format!("{} programs of {} were killed", entry.killed, entry.part));
    }
    Ok(VerbOutcome::Good)
}

fn down(arguments: &Show) -> anyhow::Result<VerbOutcome> {
    hold::down(&arguments.dir.folder()?)?;
    if arguments.format.format == Format::Json {
        output::print_document("lightloom.twin-down/v1", &json!({ "down": true }))?;
    }
    Ok(VerbOutcome::Good)
}
