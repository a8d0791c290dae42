// SPDX-License-Identifier: Apache-2.0
//! A bill of failures, as `lightloom emulate` prints it of a scenario with a span.

use serde::Deserialize;

/// A bill.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Billed {
    /// Name of the scenario.
    pub scenario: String,
    /// `assumed` delays, or `lightloomd`.
    pub control: String,
    /// The seeds.
    pub seeds: BilledSeeds,
    /// Hours of the span.
    pub span_hours: f64,
    /// GPUs of the bill.
    pub gpus: u64,
    /// Nodes without a job.
    pub spare_nodes: u64,
    /// What fails.
    pub failures: Vec<BilledFailure>,
    /// All GPU-hours.
    pub capacity_gpu_hours: f64,
    /// Those that were lost.
    pub lost_gpu_hours: MonthFigure,
    /// The same in dollars.
    #[serde(default)]
    pub lost_usd: Option<f64>,
    /// By cause.
    pub bill: Vec<BilledCause>,
    /// Single changes, the one that saves most first.
    pub alternatives: Vec<BilledChange>,
    /// The one that saves most. `None` if none saves anything.
    #[serde(default)]
    pub saves_most: Option<String>,
    /// The runs that losses are taken from.
    #[serde(default)]
    pub runs: Vec<BilledRun>,
}

/// Seeds, both ends among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct BilledSeeds {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// A figure over all months.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct MonthFigure {
    /// The mean.
    pub mean: f64,
    /// Half of the months have no more.
    pub p50: f64,
    /// 99 of 100 have no more.
    pub p99: f64,
}

/// What was lost for a cause.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledCause {
    /// The cause.
    pub cause: String,
    /// In words.
    pub words: String,
    /// GPU-hours.
    pub gpu_hours: MonthFigure,
    /// Of all GPU-hours.
    pub share: f64,
    /// In dollars.
    #[serde(default)]
    pub usd: Option<f64>,
}

/// A kind of part that fails.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledFailure {
    /// The kind.
    pub part: String,
    /// Mean hours between failures of one part. `None` of a trace.
    #[serde(default)]
    pub mtbf_hours: Option<f64>,
    /// Where that is known from.
    pub source: String,
}

/// A single change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledChange {
    /// In words.
    pub words: String,
    /// What is lost with it.
    pub lost_gpu_hours: f64,
    /// How much less that is.
    pub saves_gpu_hours: f64,
    /// The same in dollars.
    #[serde(default)]
    pub saves_usd: Option<f64>,
}

/// A run of some steps in which a part fails.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledRun {
    /// Nodes that are out already.
    #[serde(default)]
    pub failed_at_start: Vec<String>,
    /// The part.
    pub fails: String,
    /// When.
    pub at_ps: u64,
    /// What it cost each job that went on.
    #[serde(default)]
    pub losses: Vec<BilledLoss>,
}

/// What a failure cost a job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledLoss {
    /// Its GPUs.
    pub gpus: u64,
    /// At once, part by part, in order.
    pub once: Vec<BilledPart>,
}

/// A part of a loss.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BilledPart {
    /// The cause.
    pub cause: String,
    /// The stage of an outage.
    #[serde(default)]
    pub stage: Option<String>,
    /// How long.
    pub time_ps: i64,
}
