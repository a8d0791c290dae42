// SPDX-License-Identifier: Apache-2.0
//! Compares designs under faults by the GPUs that they waste and the largest job that they hold.
//!
//! ```text
//!   FaultSource ──▶ one Timeline per sample ─┐
//!   designs × TP sizes ──────────────────────┴─▶ replay, change by change ──▶ Tally ──▶ Row
//! ```
//!
//! Figures are weighted by time, and exact, because times are integers and the state only changes at events. Samples
//! differ in the trace servers drawn, their positions, and the nodes that a server fault affects. All designs share
//! the samples, and the number of threads does not affect the result.

mod cross_tor;
mod fault_ratio;
mod faults;
mod history;
mod on_fabric;
mod tally;

use lightloom_fabric::trace::Timeline;
use rayon::prelude::*;
use serde::Serialize;

use crate::architecture::{Architecture, CannotHold, Cluster, WasteBounds, parse};
use tally::Tally;

pub use cross_tor::{CrossTorPoint, CrossTorQuestion, aligned_limit, cross_tor_shares};
pub use fault_ratio::{RatioCurve, RatioPoint, RatioQuestion, against_fault_ratio};
pub use faults::{FaultSource, NodeFaultRatio, snapshots};
pub use history::{Moment, history};
pub use on_fabric::{FabricFigures, on_fabric};

/// Few samples per task keep many threads busy even with few designs.
const SAMPLES_PER_TASK: usize = 8;
/// Job sizes in 45ths of the cluster, from 2,304 to 2,816 of 2,880 GPUs.
const DEFAULT_JOBS: [u32; 6] = [36, 38, 40, 42, 43, 44];
const SMALL_WAIT: f64 = 0.01;

#[derive(Debug)]
pub struct Study<'a> {
    pub cluster: Cluster,
    pub architectures: &'a [Box<dyn Architecture>],
    pub tp: &'a [u32],
    /// Job sizes, rounded down to whole groups. If empty, the sizes are six between 80 % and 98 % of the cluster.
    pub jobs: &'a [u32],
    pub samples: &'a [Timeline],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub arch: String,
    pub tp: u32,
    #[serde(flatten)]
    pub outcome: RowOutcome,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RowOutcome {
    Held(Box<Figures>),
    CannotHold { cannot_hold: String },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    pub samples: usize,
    pub waste_mean: f64,
    pub waste_stddev: f64,
    pub waste_p50: f64,
    pub waste_p99: f64,
    pub waste_max: f64,
    /// Waste without faults. Positive if the domain size is not a multiple of the group size.
    pub waste_arithmetic: f64,
    /// `waste_mean − waste_arithmetic`. Negative if faults hit GPUs that were already wasted.
    pub waste_from_faults: f64,
    /// Mean waste ratio of an ideal switch over the same samples.
    pub lower_bound_mean: f64,
    pub usable_mean_gpus: f64,
    /// Number of GPUs in full groups at least 99 % of the time.
    pub usable_p1_gpus: u32,
    /// The largest job that never waits, equal to the minimum number of usable GPUs.
    pub max_job_gpus: u32,
    pub max_job_gpus_waiting_1pct: u32,
    pub waiting_share: Vec<Waiting>,
    /// Theoretical bounds at the 99th percentile of the node fault ratio, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<WasteBounds>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Waiting {
    pub job_gpus: u32,
    pub share: f64,
}

/// Rows are ordered by group size, then by design. `replayed` counts (design, group size, sample) triples.
pub fn compare(study: &Study<'_>, replayed: &(dyn Fn(u64) + Sync)) -> Vec<Row> {
    let bound = parse("big-switch").expect("the ideal switch is in the registry");
    // For each group size, the last design serves as the bound.
    let designs: Vec<(&dyn Architecture, u32)> = study
        .tp
        .iter()
        .flat_map(|&tp| study.architectures.iter().chain([&bound]).map(move |a| (a.as_ref(), tp)))
        .collect();
    let tallies = replay_all(study, &designs, replayed);
    let faults = NodeFaultRatio::of(study.samples);
    let designs_per_tp = study.architectures.len() + 1;
    let mut rows = Vec::with_capacity(designs.len());
    for (designs, tallies) in designs.chunks(designs_per_tp).zip(tallies.chunks(designs_per_tp)) {
        let lower_bound =
            tallies.last().and_then(|tally| tally.as_ref().ok()).map(Tally::waste_mean);
        for (&(architecture, tp), tally) in designs.iter().zip(tallies).take(designs_per_tp - 1) {
            let outcome = match tally {
                Err(CannotHold(cannot_hold)) => {
                    RowOutcome::CannotHold { cannot_hold: cannot_hold.clone() }
                }
                Ok(tally) => {
                    let mut figures = figures(study, tp, tally);
                    figures.lower_bound_mean = lower_bound.unwrap_or(0.0);
                    figures.bounds = architecture.waste_bounds(study.cluster, tp, faults.p99);
                    RowOutcome::Held(Box::new(figures))
                }
            };
            rows.push(Row { arch: architecture.name(), tp, outcome });
        }
    }
    rows
}

/// Tallies are sums of integers and are merged in order, so threads do not affect the result.
fn replay_all(
    study: &Study<'_>,
    designs: &[(&dyn Architecture, u32)],
    replayed: &(dyn Fn(u64) + Sync),
) -> Vec<Result<Tally, CannotHold>> {
    let tasks: Vec<(usize, &[Timeline])> = (0..designs.len())
        .flat_map(|design| study.samples.chunks(SAMPLES_PER_TASK).map(move |chunk| (design, chunk)))
        .collect();
    let parts: Vec<(usize, Result<Tally, CannotHold>)> = tasks
        .into_par_iter()
        .map(|(design, samples)| {
            let (architecture, tp) = designs[design];
            let tally = Tally::of(architecture, study.cluster, tp, samples);
            replayed(samples.len() as u64);
            (design, tally)
        })
        .collect();
    let mut tallies: Vec<Option<Result<Tally, CannotHold>>> = vec![None; designs.len()];
    for (design, part) in parts {
        match (&mut tallies[design], part) {
            (Some(Ok(whole)), Ok(part)) => whole.absorb(part),
            (slot, part) => *slot = Some(part),
        }
    }
    tallies.into_iter().map(|tally| tally.expect("there is at least one sample")).collect()
}

fn figures(study: &Study<'_>, tp: u32, tally: &Tally) -> Figures {
    let gpus = f64::from(study.cluster.gpus());
    let waste_mean = tally.waste_mean();
    let waste_arithmetic = f64::from(tally.wasted_without_faults) / gpus;
    let default_jobs = DEFAULT_JOBS.map(|share| {
        u32::try_from(u64::from(study.cluster.gpus()) * u64::from(share) / 45).expect("a share")
    });
    let jobs = if study.jobs.is_empty() { &default_jobs[..] } else { study.jobs };
    let mut jobs: Vec<u32> = jobs.iter().map(|job| job / tp * tp).collect();
    // After rounding down to large groups, several sizes may be equal.
    jobs.dedup();
    Figures {
        samples: study.samples.len(),
        waste_mean,
        waste_stddev: tally.waste_stddev(),
        waste_p50: f64::from(tally.wasted_at(0.50)) / gpus,
        waste_p99: f64::from(tally.wasted_at(0.99)) / gpus,
        waste_max: f64::from(tally.wasted_at(1.0)) / gpus,
        waste_arithmetic,
        waste_from_faults: waste_mean - waste_arithmetic,
        lower_bound_mean: 0.0,
        usable_mean_gpus: tally.usable_mean(),
        usable_p1_gpus: tally.largest_job(0.01),
        max_job_gpus: tally.largest_job(0.0),
        max_job_gpus_waiting_1pct: tally.largest_job(SMALL_WAIT),
        waiting_share: jobs
            .into_iter()
            .map(|job_gpus| Waiting { job_gpus, share: tally.waiting_share(job_gpus) })
            .collect(),
        bounds: None,
    }
}
