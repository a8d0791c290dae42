// SPDX-License-Identifier: Apache-2.0

mod collective;
mod profiles;

use std::path::PathBuf;

use lightloom_emulator::training::once;
use lightloom_emulator::training::packets::machine;
use lightloom_emulator::training::replay::{RingReuse, replay};
use lightloom_fabric::document::other_kind;
use lightloom_training::architecture::architecture;
use lightloom_training::cards;
use lightloom_training::described::{self, Described, DescribedError, StepGraphFile, Taken};
use lightloom_training::goal;
use lightloom_training::graph::{TaskGraph, TaskId};
use lightloom_training::longest_path::{PathShares, critical_path, play};
use lightloom_training::machine::Machine;
use lightloom_training::network::Network;
use lightloom_training::recorded::{Recorded, Scales, TimedPart};
use lightloom_units::{Picoseconds, SimTime};
use serde::Serialize;

use crate::traces::write_chakra;
use lightloom::emulate::Live;
use lightloom::files;
use lightloom::output::{self, VerbOutcome, WrongUsage};
use lightloom::result::ResultArguments;
use lightloom::table::TextTable;

/// Run training steps that other tools described or recorded.
///
/// Described: Chakra, SimAI, GOAL, csg-htsim. Recorded: Kineto and other Chrome traces.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom workload run topologies/workloads/simai-layer.txt --arch dgx
  lightloom workload run step.0.et step.1.et step.2.et step.3.et --arch khop:3 --tp 4
  lightloom workload run binary_tree_32.goal --arch dgx
  lightloom workload replay topologies/workloads/recorded-step.json --tp 4
  lightloom workload collective all-reduce --accelerator h100 --gpus 4096 --size 64MiB
  lightloom workload replay rank0.json rank1.json --fabric topologies/ring-256.yaml
  lightloom workload replay topologies/workloads/recorded-step.json --tp 4 --arch nvl:72 --compute-scale 0.5")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Run(RunArguments),
    Replay(ReplayArguments),
    Collective(collective::CollectiveArguments),
}

/// Run a described step packet by packet: Chakra execution traces (one file per rank), or one SimAI
/// text, GOAL text or connection matrix of csg-htsim.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  lightloom workload run topologies/workloads/simai-layer.txt --arch khop:3 --chakra-out traces")]
struct RunArguments {
    /// Chakra traces in rank order, or one SimAI text (`.txt`), GOAL file or connection matrix (`.cm`).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    fabric: FabricArguments,
    /// Also write the step as Chakra execution traces to this folder, one file per rank.
    #[arg(long, value_name = "FOLDER")]
    chakra_out: Option<PathBuf>,
    /// Also write transfers and computation as GOAL.
    #[arg(long, value_name = "FILE")]
    goal_out: Option<PathBuf>,
    #[command(flatten)]
    result: ResultArguments,
}

/// Replay a recorded step: the longest path through the measured times, and what would change it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom workload replay topologies/workloads/recorded-step.json --tp 4
  lightloom workload replay topologies/workloads/recorded-step.json --tp 4 --arch khop:3 --compute-scale 0.5")]
struct ReplayArguments {
    /// PyTorch profiles (Kineto), one file per rank, or one Chrome trace (see docs/mfu.md).
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    fabric: FabricArguments,
    /// Factor for kernel times: 0.5 for a chip twice as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    compute_scale: f64,
    /// Factor for the times of device copies.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    copy_scale: f64,
    /// Factor for the host's time between launches.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    host_scale: f64,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Debug, clap::Args)]
struct FabricArguments {
    /// Run packets on khop:K, nvl:36|72|576, dgx, tpuv4, big-switch [default: khop:3; replay: off].
    #[arg(long, value_name = "ARCH")]
    arch: Option<String>,
    /// Run communication packet by packet at the rates of a fabric file.
    #[arg(long, value_name = "FILE", conflicts_with = "arch")]
    fabric: Option<PathBuf>,
    /// Consecutive ranks per TP group, which share a domain [default: 8; SimAI: from the file].
    #[arg(long, value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=4096))]
    tp: Option<u32>,
}

#[derive(Debug, Serialize)]
struct StepSummary {
    schema: &'static str,
    communication: String,
    ranks: u32,
    tp: u32,
    tasks: usize,
    /// Number of consecutive steps that the profiler marks. The path runs through all steps.
    steps: u32,
    step_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_seconds: Option<f64>,
    packet_hops: u64,
    collectives_reused: u64,
    critical_path: PathShares,
    critical_tasks: Vec<Critical>,
}

#[derive(Debug, Serialize)]
struct Critical {
    name: String,
    times: u64,
    seconds: f64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    match &arguments.action {
        Verb::Run(arguments) => run_described(arguments),
        Verb::Replay(arguments) => replay_recorded(arguments),
        Verb::Collective(arguments) => collective::run(arguments),
    }
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let paths = paths.iter();
    paths.map(|path| Ok((path.display().to_string(), files::read_result(path)?))).collect()
}

fn as_files(read: &[(String, Vec<u8>)]) -> Vec<StepGraphFile<'_>> {
    read.iter().map(|(name, bytes)| StepGraphFile { name, bytes }).collect()
}

/// A file of another kind explains the error better than the reader of `wanted`.
fn refused(files: &[(String, Vec<u8>)], wanted: &str, error: DescribedError) -> anyhow::Error {
    let help = "`lightloom workload --help` lists the formats";
    match files.iter().find_map(|(name, bytes)| other_kind(name, bytes, wanted, help)) {
        _ if error.is_usage() => WrongUsage(error.to_string()).into(),
        Some(other) => other.into(),
        None => error.into(),
    }
}

fn run_described(arguments: &RunArguments) -> anyhow::Result<VerbOutcome> {
    let network = arguments.fabric.network()?.map_or_else(|| architecture("khop:3"), Ok)?;
    let files = read(&arguments.files)?;
    let described = described::read_described(&as_files(&files), arguments.fabric.tp);
    let wanted = "a Chakra trace, a SimAI text (.txt) or a GOAL file (.goal)";
    let Described { graph, ranks, tensor, note } =
        described.map_err(|error| refused(&files, wanted, error))?;
    if let Some(note) = note {
        output::note(&note);
    }
    let machine = fabric(&network, ranks, tensor)?;
    let report = emulate(&graph, &machine, &network.name, tensor, None)?;
    if let Some(folder) = &arguments.chakra_out {
        write_chakra(folder, &graph, &machine)?;
    }
    if let Some(path) = &arguments.goal_out {
        let text = goal::write(&graph, ranks).map_err(|name| {
            anyhow::anyhow!("`{name}` is a collective, but GOAL supports only sends, receives and computation: omit --goal-out")
        })?;
        files::write(path, text.as_bytes())?;
    }
    show(&report, &arguments.result)
}

impl FabricArguments {
    fn network(&self) -> anyhow::Result<Option<Network>> {
        if let Some(path) = &self.fabric {
            return Ok(Some(Network::of_fabric(&lightloom::fabric::read(path)?)));
        }
        Ok(self.arch.as_deref().map(architecture).transpose()?)
    }
}

fn replay_recorded(arguments: &ReplayArguments) -> anyhow::Result<VerbOutcome> {
    let (recorded, tensor) = recorded_step(&arguments.files, arguments.fabric.tp)?;
    let recorded = scaled(arguments, &recorded)?;
    let Some(network) = arguments.fabric.network()? else {
        return show(&longest(&recorded, tensor), &arguments.result);
    };
    let machine = fabric(&network, recorded.ranks.next_multiple_of(tensor), tensor)?;
    let report = emulate(&recorded.graph, &machine, &network.name, tensor, Some(&recorded))?;
    show(&report, &arguments.result)
}

fn scaled(arguments: &ReplayArguments, recorded: &Recorded) -> anyhow::Result<Recorded> {
    let ReplayArguments { compute_scale: kernel, copy_scale: copy, host_scale: host, .. } =
        *arguments;
    let parts = [
        ("--compute-scale", "kernels", kernel, TimedPart::Kernel),
        ("--copy-scale", "copies", copy, TimedPart::Copy),
        ("--host-scale", "time of the host", host, TimedPart::Host),
        ("", "exchanges", 1.0, TimedPart::Exchange),
    ];
    let (mut changed, mut kept) = (Vec::new(), Vec::new());
    for (option, what, factor, part) in parts {
        if !(factor > 0.0 && factor <= 1000.0) {
            anyhow::bail!("{option} must be above 0 and at most 1000, such as 0.5");
        }
        let seconds = recorded.time_of(part).as_secs_f64();
        let said = format!("{what} ({seconds:.6} s over all ranks)");
        if factor == 1.0 { kept.push(said) } else { changed.push(format!("{said} × {factor}")) }
    }
    if !changed.is_empty() {
        output::note(&format!("{}; unchanged: {}", changed.join(", "), kept.join(", ")));
    }
    Ok(recorded.scaled(Scales { kernel, copy, host })?)
}

fn recorded_step(paths: &[PathBuf], tensor: Option<u32>) -> anyhow::Result<(Recorded, u32)> {
    let taken = match profiles::read(paths)? {
        Some(profile) => Taken::of(profile, tensor),
        None => {
            let files = read(paths)?;
            let wanted = "a recorded step (PyTorch profile or Chrome trace)";
            described::read_recorded(&as_files(&files), tensor)
                .map_err(|error| refused(&files, wanted, error))?
        }
    };
    taken.require_tensor(tensor).map_err(|error| refused(&[], "", error))?;
    if !taken.missing.is_empty() {
        let missing = profiles::ranges(&taken.missing);
        output::note(&format!(
            "no files for ranks {missing}: assumed to be ready whenever the other ranks are"
        ));
    }
    if taken.unknown > 0 {
        output::note(&format!(
            "{} NCCL kernels have no description (`Collective name`, sizes, `dtype`, ranks), so their times are unchanged",
            taken.unknown
        ));
    }
    Ok((taken.recorded, taken.tensor))
}

fn fabric(network: &Network, ranks: u32, tensor: u32) -> anyhow::Result<Machine> {
    let links = cards::accelerator("h100")?.calibration().network;
    Ok(machine(network, &links, ranks, tensor)?)
}

fn longest(recorded: &Recorded, tensor: u32) -> StepSummary {
    let spans = play(&recorded.graph, &recorded.took);
    report(&recorded.graph, &spans, recorded.ranks, tensor, Some(recorded))
}

fn emulate(
    graph: &TaskGraph,
    machine: &Machine,
    arch: &str,
    tensor: u32,
    recorded: Option<&Recorded>,
) -> anyhow::Result<StepSummary> {
    let mut live = Live::default();
    let (timeline, how) = match once::is_needed(graph, machine) {
        true => (once::run(graph, machine, &mut live)?, "packets of each distinct exchange"),
        false => (replay(graph, machine, RingReuse::Never, &mut live)?, "packets"),
    };
    Ok(StepSummary {
        communication: format!("{how} on {arch}"),
        packet_hops: timeline.packet_hops,
        collectives_reused: timeline.reused,
        ..report(graph, &timeline.spans, machine.ranks, tensor, recorded)
    })
}

fn report(
    graph: &TaskGraph,
    spans: &[(SimTime, SimTime)],
    ranks: u32,
    tp: u32,
    recorded: Option<&Recorded>,
) -> StepSummary {
    let path = critical_path(graph, spans);
    let end = spans.iter().map(|span| span.1).max().unwrap_or(SimTime::START);
    let end = end.since(SimTime::START);
    StepSummary {
        schema: "lightloom.workload/v1",
        communication: "as recorded".to_owned(),
        ranks,
        tp,
        tasks: graph.tasks().len(),
        steps: recorded.map_or(1, |recorded| recorded.steps),
        step_seconds: recorded.map_or(end.as_secs_f64(), |recorded| recorded.step_seconds(end)),
        recorded_seconds: recorded.map(|recorded| recorded.step_seconds(recorded.recorded)),
        packet_hops: 0,
        collectives_reused: 0,
        critical_path: PathShares::of(graph, spans, &path),
        critical_tasks: by_name(graph, spans, &path),
    }
}

fn by_name(graph: &TaskGraph, spans: &[(SimTime, SimTime)], path: &[TaskId]) -> Vec<Critical> {
    let mut sums = std::collections::BTreeMap::<&str, (u64, Picoseconds)>::new();
    for task in path {
        let (start, end) = spans[task.index()];
        let sum = sums.entry(&graph.tasks()[task.index()].name).or_default();
        *sum = (sum.0 + 1, sum.1 + end.since(start));
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(name, (_, took))| (std::cmp::Reverse(*took), *name));
    sums.truncate(10);
    let critical = sums.into_iter().map(|(name, (times, took))| Critical {
        name: name.to_owned(),
        times,
        seconds: took.as_secs_f64(),
    });
    critical.collect()
}

fn show(report: &StepSummary, result: &ResultArguments) -> anyhow::Result<VerbOutcome> {
    result.show(report, "critical_tasks", || text(report))?;
    Ok(VerbOutcome::Good)
}

fn text(report: &StepSummary) -> String {
    let mut text = format!(
        "{} tasks on {} ranks, TP {}; communication {}\nstep {:.6} s",
        report.tasks, report.ranks, report.tp, report.communication, report.step_seconds
    );
    if let Some(recorded) = report.recorded_seconds {
        let change = 100.0 * (report.step_seconds / recorded - 1.0);
        text.push_str(&format!("; recorded {recorded:.6} s: {change:+.2} %"));
    }
    if report.steps > 1 {
        text.push_str(&format!(
            "\none of {} steps that the profiler marks; the path runs through all of them",
            report.steps
        ));
    }
    let mut shares = TextTable::new(["on the critical path", "s", "of the path"]).verbatim();
    let rows = [
        ("computing", report.critical_path.compute_seconds),
        ("exchange in the domain", report.critical_path.domain_seconds),
        ("collectives between domains", report.critical_path.network_seconds),
        ("transfers", report.critical_path.transfer_seconds),
        ("waiting", report.critical_path.waiting_seconds),
    ];
    let whole: f64 = rows.iter().map(|(_, seconds)| seconds).sum();
    for (what, seconds) in rows {
        let share = 100.0 * seconds / whole.max(f64::MIN_POSITIVE);
        shares.row([what.to_owned(), format!("{seconds:.6}"), format!("{share:.1} %")]);
    }
    let mut tasks = TextTable::new(["longest tasks on it", "times", "s"]).verbatim();
    for task in &report.critical_tasks {
        tasks.row([task.name.clone(), task.times.to_string(), format!("{:.6}", task.seconds)]);
    }
    format!("{text}\n\n{shares}\n{tasks}")
}
