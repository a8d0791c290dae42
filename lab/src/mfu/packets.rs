// SPDX-License-Identifier: Apache-2.0
//! `lightloom mfu --packets` runs the computed steps packet by packet.

use std::path::PathBuf;

use lightloom_emulator::training::packets::{self, ExcerptRun, PacketStep};
use lightloom_training::features::Features;
use lightloom_training::step::Job;

use crate::traces::{write_chakra, write_chrome};
use lightloom::emulate::Live;
use lightloom::output;
use lightloom::table::TextTable;

#[derive(Debug, clap::Args)]
pub(crate) struct PacketArguments {
    /// Also run each mapping shown packet by packet and compare it with the formula.
    #[arg(long)]
    pub(crate) packets: bool,
    /// Write the first step as Chakra execution traces to this folder, one file per rank.
    #[arg(long, value_name = "FOLDER", requires = "packets")]
    chakra_out: Option<PathBuf>,
    /// Write the first step as a Chrome trace, for Perfetto and `lightloom workload replay`.
    #[arg(long, value_name = "FILE", requires = "packets")]
    trace_out: Option<PathBuf>,
}

impl PacketArguments {
    pub(crate) fn run(&self, job: &Job<'_>, arch: &str) -> Option<ExcerptRun> {
        let ran = packets::run(job, &mut Live::default());
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

pub(crate) fn table<'r>(
    rows: impl Iterator<Item = (&'r str, u64, &'r PacketStep)>,
    features: Features,
) -> String {
    let table = TextTable::of(rows)
        .column("arch", |(arch, ..)| *arch)
        .column("of GPUs", |(_, gpus, _)| *gpus)
        .column("run GPUs", |(.., step)| step.gpus)
        .column("replicas", |(.., step)| step.replicas)
        .column("layers", |(.., step)| step.layers)
        .column("micro-batches", |(.., step)| step.micro_batches)
        .column("tasks", |(.., step)| step.tasks)
        .column("reused", |(.., step)| step.reused)
        .column("packet-hops", |(.., step)| step.packet_hops)
        .column("formula s", |(.., step)| format!("{:.4}", step.analytic_seconds))
        .column("packets s", |(.., step)| format!("{:.4}", step.packet_seconds))
        .column("contention s", |(.., step)| format!("{:.4}", step.contention_seconds))
        .column("formula ÷ packets without contention", |(.., step)| {
            format!("{:.4}", 1.0 + step.difference)
        })
        .table();
    let without = match features {
        Features::NONE => String::new(),
        some => format!("; both exclude {some}, which the packet engine does not model"),
    };
    format!(
        "
packet by packet: formula and packets for the same excerpt{without}

{table}"
    )
}
