// SPDX-License-Identifier: Apache-2.0
//! Cost of failures, as printed by `lightloom emulate` for a scenario with a span.

use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Billed {
    pub scenario: String,
    /// `assumed` delays, or `lightloomd`.
    pub control: String,
    pub seeds: BilledSeeds,
    /// Length of the span in hours.
    pub span_hours: f64,
    pub gpus: u64,
    pub spare_nodes: u64,
    pub failures: Vec<BilledFailure>,
    pub capacity_gpu_hours: f64,
    pub lost_gpu_hours: MonthFigure,
    #[serde(default)]
    pub lost_usd: Option<f64>,
    pub bill: Vec<BilledCause>,
    pub alternatives: Vec<BilledChange>,
    /// Change with the largest saving. `None` if none saves anything.
    #[serde(default)]
    pub saves_most: Option<String>,
    #[serde(default)]
    pub runs: Vec<BilledRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct BilledSeeds {
    pub first: u64,
    pub last: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct MonthFigure {
    pub mean: f64,
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledCause {
    pub cause: String,
    pub words: String,
    pub gpu_hours: MonthFigure,
    pub share: f64,
    #[serde(default)]
    pub usd: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledFailure {
    pub part: String,
    /// Mean hours between failures of one part. `None` for a trace.
    #[serde(default)]
    pub mtbf_hours: Option<f64>,
    pub source: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledChange {
    pub words: String,
    pub lost_gpu_hours: f64,
    pub saves_gpu_hours: f64,
    #[serde(default)]
    pub saves_usd: Option<f64>,
}

/// A run of several steps in which a part fails.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledRun {
    #[serde(default)]
    pub failed_at_start: Vec<String>,
    pub fails: String,
    pub at_ps: u64,
    /// Cost to each job that continued.
    #[serde(default)]
    pub losses: Vec<BilledLoss>,
}

/// Cost of a failure to a job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledLoss {
    pub gpus: u64,
    /// One-time losses by part, in order.
    pub once: Vec<BilledPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BilledPart {
    pub cause: String,
    #[serde(default)]
    pub stage: Option<String>,
    pub time_ps: i64,
}
