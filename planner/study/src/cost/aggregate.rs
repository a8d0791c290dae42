// SPDX-License-Identifier: Apache-2.0
//! Adds the cost of faults to the bill as the price of faulty and wasted GPUs.

use serde::Serialize;

use super::{CostOutcome, CostRow};
use crate::architecture::Architecture;
use crate::compare::{RatioCurve, RatioQuestion, against_fault_ratio};

/// Interconnect cost of the whole cluster ÷ mean number of usable GPUs. `None` if there are none.
pub fn cost_per_usable_gpu(cost_per_gpu_usd: f64, gpus: u32, usable_mean_gpus: f64) -> Option<f64> {
    (usable_mean_gpus > 0.0).then(|| cost_per_gpu_usd * f64::from(gpus) / usable_mean_gpus)
}

#[derive(Clone, Copy, Debug)]
pub struct AggregateQuestion<'a> {
    pub faults: RatioQuestion<'a>,
    pub gpu_usd: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggregate {
    pub arch: String,
    pub points: Vec<AggregatePoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AggregatePoint {
    pub node_fault_ratio: f64,
    pub waste_mean: f64,
    /// `interconnect + price of a GPU · (waste + faulty)`, per GPU of the cluster.
    pub usd_per_gpu: f64,
}

pub fn aggregate(
    designs: &[Box<dyn Architecture>],
    costs: &[CostRow],
    question: &AggregateQuestion<'_>,
) -> Vec<Aggregate> {
    aggregate_of(&against_fault_ratio(designs, &question.faults), costs, question.gpu_usd)
}

pub fn aggregate_of(curves: &[RatioCurve], costs: &[CostRow], gpu_usd: f64) -> Vec<Aggregate> {
    let mut all = Vec::new();
    for curve in curves {
        let row = costs.iter().find(|row| row.arch == curve.arch);
        let Some(CostOutcome::Priced(figures)) = row.map(|row| &row.outcome) else { continue };
        let points = curve.points.iter().map(|point| AggregatePoint {
            node_fault_ratio: point.node_fault_ratio,
            waste_mean: point.waste_mean,
            usd_per_gpu: figures.cost_per_gpu_usd
                + gpu_usd * (point.waste_mean + point.node_fault_ratio),
        });
        all.push(Aggregate { arch: curve.arch.clone(), points: points.collect() });
    }
    all
}
