// SPDX-License-Identifier: Apache-2.0
//! Waste against the share of nodes that are out: one curve a design.

use lightloom_units::seed::Seed;
use serde::Serialize;

use super::{RowOutcome, Study, compare, snapshots};
use crate::architecture::{Architecture, Cluster};

/// What the curves are asked for.
#[derive(Clone, Copy, Debug)]
pub struct RatioQuestion<'a> {
    /// The cluster.
    pub cluster: Cluster,
    /// GPUs of a group.
    pub tp: u32,
    /// Shares of faulty nodes; nodes are faulty independently.
    pub node_fault_ratios: &'a [f64],
    /// Snapshots for each ratio.
    pub samples: u64,
    /// Where the randomness comes from.
    pub seed: Seed,
}

/// The waste of a design against the share of faulty nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatioCurve {
    /// The design.
    pub arch: String,
    /// By fault ratio.
    pub points: Vec<RatioPoint>,
}

/// The waste at one share of faulty nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatioPoint {
    /// The probability that a node is faulty.
    pub node_fault_ratio: f64,
    /// Mean waste ratio.
    pub waste_mean: f64,
    /// Standard deviation of the snapshots.
    pub waste_stddev: f64,
}

/// The curve of every design that holds groups of this size. All designs see the same snapshots.
#[must_use]
pub fn against_fault_ratio(
    designs: &[Box<dyn Architecture>],
    question: &RatioQuestion<'_>,
) -> Vec<RatioCurve> {
    let RatioQuestion { cluster, tp, samples, seed, .. } = *question;
    let mut curves: Vec<RatioCurve> = Vec::new();
    for &node_fault_ratio in question.node_fault_ratios {
        let samples = snapshots(cluster, node_fault_ratio, samples, seed);
        let study =
            Study { cluster, architectures: designs, tp: &[tp], jobs: &[], samples: &samples };
        for row in compare(&study, &|_| ()) {
            let RowOutcome::Held(figures) = row.outcome else { continue };
            let (waste_mean, waste_stddev) = (figures.waste_mean, figures.waste_stddev);
            let point = RatioPoint { node_fault_ratio, waste_mean, waste_stddev };
            match curves.iter_mut().find(|curve| curve.arch == row.arch) {
                Some(curve) => curve.points.push(point),
                None => curves.push(RatioCurve { arch: row.arch, points: vec![point] }),
            }
        }
    }
    curves
}
