//! What faults add to the bill: the price of GPUs that are faulty or wasted.

use lightloom_fabric::seed::Seed;
use lightloom_fabric::trace::Timeline;
use serde::Serialize;

use super::{CostOutcome, CostRow};
use crate::architecture::{Architecture, Cluster};
use crate::compare::{Row, RowOutcome, Study, compare, snapshots};

/// The interconnect's cost for each GPU that can be used.
///
/// `cost ÷ (1 − waste)`: what a design that wastes GPUs really costs.
#[must_use]
pub fn cost_per_usable_gpu(cost_per_gpu_usd: f64, waste_ratio: f64) -> f64 {
    cost_per_gpu_usd / (1.0 - waste_ratio)
}

/// What the aggregate cost is asked for.
#[derive(Debug)]
pub struct AggregateQuestion<'a> {
    /// The cluster.
    pub cluster: Cluster,
    /// GPUs of a group.
    pub tp: u32,
    /// The price of a GPU.
    pub gpu_usd: f64,
    /// Shares of faulty nodes; nodes are faulty independently.
    pub node_fault_ratios: &'a [f64],
    /// Snapshots for each ratio.
    pub samples: u64,
    /// Where the randomness comes from.
    pub seed: Seed,
}

/// The aggregate cost of a design against the share of faulty nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggregate {
    /// The design.
    pub arch: String,
    /// By fault ratio.
    pub points: Vec<AggregatePoint>,
}

/// The aggregate cost at one share of faulty nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AggregatePoint {
    /// Share of faulty nodes.
    pub node_fault_ratio: f64,
    /// Mean waste ratio.
    pub waste_mean: f64,
    /// `interconnect + price of a GPU · (waste + faulty)`, for each GPU of the cluster.
    pub usd_per_gpu: f64,
}

/// The aggregate cost of every design that has both a bill and a waste ratio.
#[must_use]
pub fn aggregate(
    designs: &[Box<dyn Architecture>],
    costs: &[CostRow],
    question: &AggregateQuestion<'_>,
) -> Vec<Aggregate> {
    let mut curves: Vec<Aggregate> = Vec::new();
    for &ratio in question.node_fault_ratios {
        let samples = snapshots(question.cluster, ratio, question.samples, question.seed);
        for (arch, waste_mean) in wastes(designs, question, &samples) {
            let Some(cost) = costs.iter().find(|row| row.arch == arch).and_then(cost_of) else {
                continue;
            };
            let usd_per_gpu = cost + question.gpu_usd * (waste_mean + ratio);
            let point = AggregatePoint { node_fault_ratio: ratio, waste_mean, usd_per_gpu };
            match curves.iter_mut().find(|curve| curve.arch == arch) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Aggregate { arch, points: vec![point] }),
            }
        }
    }
    curves
}

fn wastes(
    designs: &[Box<dyn Architecture>],
    question: &AggregateQuestion<'_>,
    samples: &[Timeline],
) -> Vec<(String, f64)> {
    let (cluster, tp) = (question.cluster, &[question.tp]);
    let study = Study { cluster, architectures: designs, tp, jobs: &[], samples };
    let held = |row: Row| match row.outcome {
        RowOutcome::Held(figures) => Some((row.arch, figures.waste_mean)),
        RowOutcome::CannotHold { .. } => None,
    };
    compare(&study, &|_| ()).into_iter().filter_map(held).collect()
}

fn cost_of(row: &CostRow) -> Option<f64> {
    match &row.outcome {
        CostOutcome::Priced(figures) => Some(figures.cost_per_gpu_usd),
        CostOutcome::CannotPrice { .. } => None,
    }
}
