// SPDX-License-Identifier: Apache-2.0
//! How faults in operation reduce a job's MFU.

use std::collections::BTreeMap;

use lightloom_fabric::provenance::Inputs;
use lightloom_fabric::trace::Timeline;
use lightloom_study::architecture::{Cluster, parse};
use lightloom_study::compare::{RowOutcome, Study, compare};
use lightloom_training::goodput::{FaultCosts, Goodput};
use lightloom_training::model::Model;
use lightloom_units::seed::Seed;

use crate::compare::fault_source;
use lightloom::table::TextTable;

const CLUSTER: Cluster = Cluster { nodes: 720, gpus_per_node: 4 };
/// Size of the master weight, two moments and the weight.
const CHECKPOINT_BYTES_PER_WEIGHT: f64 = 14.0;
/// Bandwidth of the checkpoint store (Llama 3: 2 TB/s sustained).
const STORE_BYTES_PER_SECOND: f64 = 2e12;

/// With `--faults`: goodput = MFU × ETTR × (1 − waste) × (1 − straggler loss).
#[derive(Debug, clap::Args)]
pub(crate) struct OperationArguments {
    /// Include the effect of faults: a trace file, `synthetic`, or `iid:P`.
    #[arg(long, value_name = "FILE|synthetic|iid:P")]
    faults: Option<String>,
    /// For a trace file: number of servers observed, if the file does not state it [default: 400].
    #[arg(long, requires = "faults", value_name = "N", value_parser = lightloom::number::whole::<u32>(1..=u32::MAX.into()))]
    trace_servers: Option<u32>,
    /// Number of random assignments of trace servers to nodes.
    #[arg(long, requires = "faults", value_name = "N", default_value_t = 20, value_parser = lightloom::number::whole::<u64>(1..=1_000_000))]
    samples: u64,
    /// Random seed.
    #[arg(long, requires = "faults", value_name = "N", default_value_t = 1, value_parser = lightloom::number::whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Interruptions per day and node with eight GPUs (0.002 to 0.007 in five published clusters).
    #[arg(long, requires = "faults", value_name = "RATE", default_value_t = 0.004)]
    fault_rate: f64,
    /// Seconds to detect a fault.
    #[arg(long, requires = "faults", value_name = "SECONDS", default_value_t = 600.0)]
    detect: f64,
    /// Seconds to plan around a fault and switch the circuits.
    #[arg(long, requires = "faults", value_name = "SECONDS", default_value_t = 1.0)]
    replan: f64,
    /// Seconds to restart a job from its checkpoint.
    #[arg(long, requires = "faults", value_name = "SECONDS", default_value_t = 600.0)]
    restart: f64,
    /// Seconds that the job pauses for a checkpoint [default: 14 B per weight at 2 TB/s].
    #[arg(long, requires = "faults", value_name = "SECONDS")]
    checkpoint_write: Option<f64>,
    /// Seconds between checkpoints [default: Young's optimum].
    #[arg(long, requires = "faults", value_name = "SECONDS")]
    checkpoint_interval: Option<f64>,
    /// Share of speed lost to slow nodes (MegaScale gained 0.007 by removing them).
    #[arg(long, requires = "faults", value_name = "SHARE", default_value_t = 0.007)]
    straggler_loss: f64,
}

pub(crate) struct Faults<'a> {
    arguments: &'a OperationArguments,
    samples: Vec<Timeline>,
    waste: BTreeMap<(String, u32), f64>,
}

impl OperationArguments {
    pub(crate) fn faults(&self, inputs: &mut Inputs) -> anyhow::Result<Option<Faults<'_>>> {
        let Some(text) = &self.faults else { return Ok(None) };
        let shares = [self.fault_rate, self.detect, self.replan, self.restart, self.straggler_loss];
        let times =
            [self.checkpoint_write, self.checkpoint_interval].map(|time| time.unwrap_or(1.0));
        let are_sound = shares.into_iter().all(|value| value >= 0.0 && value.is_finite())
            && times.into_iter().all(|value| value > 0.0 && value.is_finite())
            && self.fault_rate > 0.0
            && self.straggler_loss < 1.0;
        anyhow::ensure!(
            are_sound,
            "fault rates and times must be positive, and --straggler-loss below 1"
        );
        let source = fault_source(text, self.trace_servers, inputs)?;
        let samples = source.samples(CLUSTER, self.samples, Seed(self.seed))?;
        Ok(Some(Faults { arguments: self, samples, waste: BTreeMap::new() }))
    }

    fn operation(&self, model: &Model, gpus: u64) -> FaultCosts {
        let write = model.parameters() * CHECKPOINT_BYTES_PER_WEIGHT / STORE_BYTES_PER_SECOND;
        FaultCosts {
            nodes: gpus as f64 / 8.0,
            faults_per_node_day: self.fault_rate,
            detect_seconds: self.detect,
            replan_seconds: self.replan,
            restart_seconds: self.restart,
            checkpoint_write_seconds: self.checkpoint_write.unwrap_or(write),
            checkpoint_interval_seconds: self.checkpoint_interval,
            straggler_loss: self.straggler_loss,
        }
    }
}

impl Faults<'_> {
    pub(crate) fn goodput(
        &mut self,
        model: &Model,
        arch: &str,
        tp: u32,
        gpus: u64,
        mfu: f64,
    ) -> anyhow::Result<Option<Goodput>> {
        let operation = self.arguments.operation(model, gpus);
        // Split a group that exceeds the domain into parts that fit.
        let mut part = tp;
        while part > 0 {
            if let Some(waste) = self.waste(arch, part)? {
                return Ok(Some(operation.goodput(mfu, waste)));
            }
            part /= 2;
        }
        Ok(None)
    }

    fn waste(&mut self, arch: &str, tp: u32) -> anyhow::Result<Option<f64>> {
        let key = (arch.to_owned(), tp);
        if let Some(waste) = self.waste.get(&key) {
            return Ok(Some(*waste));
        }
        let architectures = [parse(arch)?];
        let (tp, samples) = ([tp], &self.samples[..]);
        let study =
            Study { cluster: CLUSTER, architectures: &architectures, tp: &tp, jobs: &[], samples };
        let rows = compare(&study, &|_| ());
        let waste = rows.first().and_then(|row| match &row.outcome {
            RowOutcome::Held(figures) => Some(figures.waste_mean),
            RowOutcome::CannotHold { .. } => None,
        });
        self.waste.extend(waste.map(|waste| (key, waste)));
        Ok(waste)
    }
}

pub(crate) fn table<'r>(rows: impl Iterator<Item = (&'r str, u64, u32, &'r Goodput)>) -> String {
    let mut table = TextTable::new([
        "arch",
        "GPUs",
        "TP",
        "MFU",
        "ETTR",
        "1 − waste",
        "1 − stragglers",
        "goodput",
        "MTTF h",
        "checkpoint every s",
    ]);
    for (arch, gpus, tp, left) in rows {
        table.row([
            arch.to_owned(),
            gpus.to_string(),
            tp.to_string(),
            percent(left.mfu),
            percent(left.ettr),
            percent(1.0 - left.waste_ratio),
            percent(1.0 - left.straggler_loss),
            percent(left.goodput),
            format!("{:.2}", left.mttf_seconds / 3600.0),
            format!("{:.0}", left.checkpoint_interval_seconds),
        ]);
    }
    format!(
        "\ngoodput = MFU × ETTR × (1 − waste) × (1 − stragglers); waste: {} GPUs in nodes of {}, faults replayed\n\n{table}",
        CLUSTER.gpus(),
        CLUSTER.gpus_per_node,
    )
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
