// SPDX-License-Identifier: Apache-2.0
//! Plans one fabric at random moments of the histories used to compare designs.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{Metrics, Plan};
use lightloom_fabric::trace::{Timeline, TraceTime};
use lightloom_planner::{Options, plan};
use lightloom_units::id::NodeId;
use lightloom_units::seed::Seed;
use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;

/// Means over the moments at which all jobs of a fabric could be planned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FabricFigures {
    pub name: String,
    pub moments: usize,
    pub planned: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_refusal: Option<String>,
    /// Healthy GPUs without a rank in a complete ring or group, as a share of all GPUs.
    pub waste_mean: f64,
    pub waste_max: f64,
    pub lower_bound_mean: f64,
    /// Share of pass-through GPUs, which are part of the waste. `None` without pass-through nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passing_mean: Option<f64>,
    pub cross_tor_share_mean: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cross_tor_share_lower_bound_mean: Option<f64>,
    /// Communication time between leaves saved by joint planning. `None` if no job has a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestration_gain_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestration_gain_upper_bound_mean: Option<f64>,
}

/// `seed` determines the moment in each sample.
pub fn on_fabric(fabric: &Fabric, samples: &[Timeline], seed: Seed) -> FabricFigures {
    let made: Vec<Result<Plan, String>> = (0..)
        .zip(samples)
        .collect::<Vec<_>>()
        .into_par_iter()
        .map(|(sample, timeline)| {
            let options = Options { seed, ..Options::default() };
            plan(fabric, &at_a_moment(fabric, timeline, seed, sample), options)
                .map_err(|error| error.to_string())
        })
        .collect();
    let first_refusal = made.iter().find_map(|plan| plan.as_ref().err().cloned());
    let planned: Vec<&Metrics> = made.iter().flatten().map(|plan| &plan.metrics).collect();
    FabricFigures {
        name: fabric.name.clone(),
        moments: samples.len(),
        planned: planned.len() as f64 / samples.len().max(1) as f64,
        first_refusal,
        waste_mean: mean(planned.iter().map(|of| of.waste_ratio)).unwrap_or(0.0),
        waste_max: planned.iter().map(|of| of.waste_ratio).fold(0.0, f64::max),
        lower_bound_mean: mean(planned.iter().map(|of| of.waste_ratio_lower_bound)).unwrap_or(0.0),
        passing_mean: mean(
            planned.iter().filter_map(|of| Some(of.gpus_passing? as f64 / of.gpus_total as f64)),
        ),
        cross_tor_share_mean: mean(planned.iter().map(|of| of.cross_tor_share)).unwrap_or(0.0),
        cross_tor_share_lower_bound_mean: mean(
            planned.iter().filter_map(|of| of.cross_tor_share_lower_bound),
        ),
        orchestration_gain_mean: mean(planned.iter().filter_map(|of| of.orchestration_gain)),
        orchestration_gain_upper_bound_mean: mean(
            planned.iter().filter_map(|of| of.orchestration_gain_upper_bound),
        ),
    }
}

fn at_a_moment(fabric: &Fabric, timeline: &Timeline, seed: Seed, sample: u64) -> FaultSet {
    let last = timeline.changes().last().map_or(0.0, |change| change.at.as_days());
    let mut draws = seed.stream("compare.moments", sample);
    let day = draws.random_range(0.0..=last);
    let mut faults = fabric.start.clone();
    let installed: Vec<NodeId> = fabric.installed().collect();
    let failed = timeline.faulty_at(TraceTime::from_days(day)).into_iter();
    faults.nodes.extend(failed.map(|node| installed[node.index()]));
    faults
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
