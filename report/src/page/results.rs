// SPDX-License-Identifier: Apache-2.0
//! The input of a page consists of values from the planner, and JSON results of the emulator and training model.

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::Plan;
use lightloom_fabric::trace::{Statistics, TraceTime};
use lightloom_planner::check::Verdict;
use lightloom_study::architecture::Cluster;
use lightloom_study::buy::Answer;
use lightloom_study::compare::{Moment, NodeFaultRatio, RatioCurve, Row};
use lightloom_study::cost::{Aggregate, CostRow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug)]
pub struct Results<'a> {
    pub subject: Subject<'a>,
    pub bought: Option<Bought>,
    pub comparison: Option<Comparison>,
    pub cost: Option<Cost>,
    pub runs: Vec<EmulatedRun>,
    pub sweeps: Vec<Swept>,
    pub live: Option<LiveRun>,
    pub bills: Vec<Billed>,
    pub training: Vec<TrainingResult>,
    pub sources: Vec<SourceFile>,
    pub would_add: Vec<String>,
    pub seed: u64,
    pub version: &'static str,
    pub command: String,
}

impl Results<'_> {
    pub(super) fn is_of_runs_alone(&self) -> bool {
        let is_of_plan = matches!(self.subject, Subject::Fabric { .. } | Subject::PlanAlone { .. });
        self.comparison.is_none() && self.bought.is_none() && !is_of_plan
    }
}

#[derive(Debug)]
pub enum Subject<'a> {
    Fabric {
        fabric: &'a Fabric,
        plan: &'a Plan,
        verdict: Verdict,
        /// Text that follows a verb, such as "with 2 failed parts".
        faults: String,
    },
    PlanAlone {
        plan: &'a Plan,
    },
    None,
}

#[derive(Debug)]
pub struct Comparison {
    pub cluster: Cluster,
    pub tp: u32,
    pub own: Option<String>,
    /// Source of the faults, such as "trace.json" or "synthetic".
    pub faults: String,
    pub samples: u64,
    pub node_fault_ratio: NodeFaultRatio,
    pub rows: Vec<Row>,
    /// The first sample of each design that can hold the groups.
    pub histories: Vec<History>,
    pub window: TraceTime,
    pub curves: Vec<RatioCurve>,
    pub snapshots: u64,
    pub trace: Option<Statistics>,
}

#[derive(Debug)]
pub struct History {
    pub arch: String,
    pub moments: Vec<Moment>,
}

#[derive(Debug)]
pub struct Cost {
    pub prices: String,
    pub rows: Vec<CostRow>,
    pub usable: Vec<(String, f64)>,
    pub gpu_usd: Option<f64>,
    pub aggregate: Vec<Aggregate>,
}

#[derive(Debug)]
pub struct Bought {
    pub name: String,
    pub gpus: u32,
    pub days: f64,
    pub prices: String,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    pub name: String,
    pub kind: &'static str,
    pub sha256: String,
    pub bytes: u64,
    pub plan: Option<String>,
}

pub const LIVE_SCHEMA: &str = "lightloom.live-demo/v1";

/// Written by `lightloom demo --live`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveRun {
    pub answer: String,
    pub steps: Vec<LiveStep>,
    /// Components, with the digest of the plan that each one reports after the fault.
    pub digests: Vec<(String, String)>,
    pub lacks: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveStep {
    pub name: String,
    pub found: String,
    pub took_ms: f64,
}

/// Printed by `lightloom emulate --format json`. Rows that are only displayed remain JSON.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedRun {
    pub scenario: String,
    pub fabric_sha256: String,
    pub seed: u64,
    pub simulated_ps: u64,
    pub packets: EmulatedPackets,
    pub workloads: Vec<EmulatedCollective>,
    #[serde(default)]
    pub steps: Vec<Value>,
    #[serde(default)]
    pub groups: Vec<EmulatedGroup>,
    pub faults: Vec<EmulatedFault>,
    pub expectations: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct EmulatedPackets {
    pub sent: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub lost: u64,
    pub retransmitted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct EmulatedGroup {
    /// `None` for a group without work.
    pub unaffected: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedCollective {
    pub name: String,
    #[serde(default)]
    pub ranks: Option<u64>,
    pub kind: String,
    pub bytes: u64,
    pub start_ps: u64,
    pub end_ps: Option<u64>,
    pub ideal_ps: u64,
    pub busbw_bytes_per_s: f64,
    pub restarts: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmulatedFault {
    pub parts: Vec<String>,
    #[serde(default)]
    pub effect: String,
    /// Longest delay of a group; `None` if no group waited.
    #[serde(default)]
    pub delay_ps: Option<u64>,
    /// `None` if the run ended before the fault.
    pub at_ps: Option<u64>,
    pub detected_ps: Option<u64>,
    pub replanned_ps: Option<u64>,
    pub restored_ps: Option<u64>,
    pub groups_affected: Vec<String>,
    pub gpus_affected: u64,
    pub gpus_lost: u64,
}

/// Printed by `lightloom emulate --seed 0..99 --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Swept {
    pub subject: SweptSubject,
    pub runs: Vec<SweptRun>,
    #[serde(default)]
    pub worst_seed: Option<u64>,
    #[serde(default)]
    pub recoveries: Vec<Value>,
    #[serde(default)]
    pub expectations: Vec<Value>,
    #[serde(default)]
    pub distributions: Vec<Lost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptSubject {
    pub scenario: String,
    pub fabric_sha256: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SweptRun {
    pub seed: u64,
    pub passed: bool,
    #[serde(default)]
    pub faults: Vec<EmulatedFault>,
}

/// Percentiles are `None` if a job never ends.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Lost {
    /// `time_lost_ps`, `worst_step_lost_ps`, `goodput_lost` or `groups_affected`.
    pub figure: String,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
    pub worst_seed: u64,
}

/// Printed by `lightloom emulate` for a scenario with a span.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Billed {
    pub scenario: String,
    pub fabric_sha256: String,
    /// `assumed` (delays) or `lightloomd`.
    pub control: String,
    pub seeds: BilledSeeds,
    pub span_hours: f64,
    pub gpus: u64,
    pub spare_nodes: u64,
    pub failures: Vec<Value>,
    pub capacity_gpu_hours: f64,
    pub lost_gpu_hours: MonthFigure,
    #[serde(default)]
    pub lost_usd: Option<f64>,
    pub bill: Vec<Value>,
    /// Single changes, largest saving first.
    pub alternatives: Vec<Value>,
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

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MonthFigure {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledRun {
    #[serde(default)]
    pub failed_at_start: Vec<String>,
    pub fails: String,
    pub at_ps: u64,
    #[serde(default)]
    pub losses: Vec<BilledLoss>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BilledLoss {
    pub gpus: u64,
    pub once: Vec<BilledPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BilledPart {
    pub cause: String,
    #[serde(default)]
    pub stage: Option<String>,
    pub time_ps: i64,
}

/// Printed by `lightloom mfu --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrainingResult {
    pub model: String,
    pub accelerator: String,
    pub batch_sequences: u64,
    pub sequence_tokens: u64,
    pub mappings_tried: u64,
    pub rows: Vec<Value>,
}
