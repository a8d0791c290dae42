// SPDX-License-Identifier: Apache-2.0
//! `lightloom mfu --packets` runs the computed steps packet by packet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lightloom_emulator::training::packets::{self, ExcerptRun, PacketStep, Proof, Prove};
use lightloom_training::features::Features;
use lightloom_training::graph::TaskGraph;
use lightloom_training::machine::Machine;
use lightloom_training::step::Job;
use lightloom_training::{chakra, chrome};
use lightloom_units::SimTime;

use lightloom::emulate::Live;
use lightloom::files;
use lightloom::output;
use lightloom::table::TextTable;

#[derive(Debug, clap::Args)]
pub(crate) struct PacketArguments {
    /// Also run each mapping shown packet by packet and compare it with the formula.
    #[arg(long)]
    pub(crate) packets: bool,
    /// Verify that reused collective times are exact: repeat the run without reuse (at most 5e8 packet-hops).
    #[arg(long, requires = "packets")]
    prove: bool,
    /// Write the first step as Chakra execution traces to this folder, one file per rank.
    #[arg(long, value_name = "FOLDER", requires = "packets")]
    chakra_out: Option<PathBuf>,
    /// Write the first step as a Chrome trace, for Perfetto and `lightloom workload replay`.
    #[arg(long, value_name = "FILE", requires = "packets")]
    trace_out: Option<PathBuf>,
}

impl PacketArguments {
    pub(crate) fn run(&self, job: &Job<'_>, arch: &str) -> Option<ExcerptRun> {
        let prove = if self.prove { Prove::Reuse } else { Prove::Nothing };
        let ran = packets::run(job, prove, &mut Live::default());
        ran.map_err(|refusal| output::note(&format!("{} on {arch}: {refusal}", job.mapping))).ok()
    }

    pub(crate) fn write_traces(&self, ran: &ExcerptRun) -> anyhow::Result<()> {
        if let Some(folder) = &self.chakra_out {
            write_chakra(folder, &ran.graph, &ran.machine)?;
        }
        if let Some(path) = &self.trace_out {
            write_chrome(path, &ran.graph, &ran.machine, &ran.spans)?;
        }
        Ok(())
    }
}

pub(crate) fn write_chakra(
    folder: &Path,
    graph: &TaskGraph,
    machine: &Machine,
) -> anyhow::Result<()> {
    let streams = chakra::export(graph, machine);
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for (rank, stream) in streams.iter().enumerate() {
        files::write(&folder.join(format!("step.{rank}.et")), stream)?;
    }
    let groups: BTreeMap<String, Vec<u32>> = chakra::groups(graph, machine)
        .into_iter()
        .enumerate()
        .map(|(place, ranks)| (place.to_string(), ranks))
        .collect();
    let text = serde_json::to_string(&groups)?;
    files::write(&folder.join("comm_group.json"), text.as_bytes())?;
    output::note(&format!("{} traces written to {}", streams.len(), folder.display()));
    Ok(())
}

pub(crate) fn write_chrome(
    path: &Path,
    graph: &TaskGraph,
    machine: &Machine,
    spans: &[(SimTime, SimTime)],
) -> anyhow::Result<()> {
    let mut text = serde_json::to_string(&chrome::trace(graph, machine, spans))?;
    text.push('\n');
    files::write(path, text.as_bytes())
}

pub(crate) fn table<'r>(
    rows: impl Iterator<Item = (&'r str, u64, &'r PacketStep)>,
    features: Features,
) -> String {
    let mut table = TextTable::new([
        "arch",
        "of GPUs",
        "run GPUs",
        "replicas",
        "layers",
        "micro-batches",
        "tasks",
        "reused",
        "packet-hops",
        "formula s",
        "packets s",
        "contention s",
        "formula ÷ packets without contention",
    ]);
    let mut proofs = String::new();
    for (arch, gpus, step) in rows {
        table.row([
            arch.to_owned(),
            gpus.to_string(),
            step.gpus.to_string(),
            step.replicas.to_string(),
            step.layers.to_string(),
            step.micro_batches.to_string(),
            step.tasks.to_string(),
            step.reused.to_string(),
            step.packet_hops.to_string(),
            format!("{:.4}", step.analytic_seconds),
            format!("{:.4}", step.packet_seconds),
            format!("{:.4}", step.contention_seconds),
            format!("{:.4}", 1.0 + step.difference),
        ]);
        if let Some(proof) = &step.proof {
            proofs.push_str(&format!("{arch}: {}\n", sentence(proof, step)));
        }
    }
    let without = match features {
        Features::NONE => String::new(),
        some => format!("; both exclude {some}, which the packet engine does not model"),
    };
    format!(
        "
packet by packet: formula and packets for the same excerpt{without}

{table}{proofs}"
    )
}

fn sentence(proof: &Proof, step: &PacketStep) -> String {
    let Proof::BothWays { packet_hops } = proof;
    format!(
        "reuse is exact: a run without it ({packet_hops} packet-hops) starts and ends each of the {} tasks at the \
            same picosecond",
        step.tasks
    )
}
