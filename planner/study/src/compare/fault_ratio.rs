// SPDX-License-Identifier: Apache-2.0

use lightloom_units::seed::Seed;
use serde::Serialize;

use super::{RowOutcome, Study, compare, snapshots};
use crate::architecture::{Architecture, Cluster};

#[derive(Clone, Copy, Debug)]
pub struct RatioQuestion<'a> {
    pub cluster: Cluster,
    pub tp: u32,
    pub node_fault_ratios: &'a [f64],
    pub samples: u64,
    pub seed: Seed,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatioCurve {
    pub arch: String,
    pub points: Vec<RatioPoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatioPoint {
    pub node_fault_ratio: f64,
    pub waste_mean: f64,
    pub waste_stddev: f64,
}

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
