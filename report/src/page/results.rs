// SPDX-License-Identifier: Apache-2.0
//! Input of a page: values of the planner, and JSON results of the emulator and the training model.

mod billed;

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::Plan;
use lightloom_fabric::trace::{Statistics, TraceTime};
use lightloom_planner::check::Verdict;
use lightloom_study::architecture::Cluster;
use lightloom_study::buy::Answer;
use lightloom_study::compare::{Moment, NodeFaultRatio, RatioCurve, Row};
use lightloom_study::cost::{Aggregate, CostRow, Sensitivity};
use lightloom_study::reproduce::Claim;
use serde::{Deserialize, Serialize};

pub use billed::{
    Billed, BilledCause, BilledChange, BilledFailure, BilledLoss, BilledPart, BilledRun,
    BilledSeeds, MonthFigure,
};

/// All known results. The page omits missing ones and names them.
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
    pub claims: Vec<Claim>,
    /// Input files, in the given order.
    pub sources: Vec<SourceFile>,
    /// What further input would add, one sentence each.
    pub would_add: Vec<String>,
    pub seed: u64,
    pub version: &'static str,
    pub command: String,
}

impl Results<'_> {
    /// Returns whether the page is only about costs of failures.
    pub(super) fn is_bill_alone(&self) -> bool {
        !self.bills.is_empty() && self.is_of_runs_alone()
    }

    /// Returns whether the page shows only external runs and results, without comparing designs.
    pub(super) fn is_of_runs_alone(&self) -> bool {
        self.comparison.is_none() && self.cost.is_none()
    }
}

#[derive(Debug)]
pub enum Subject<'a> {
    Fabric {
        fabric: &'a Fabric,
        plan: &'a Plan,
        verdict: Verdict,
        /// Origin of the plan's faults: "day 75.2 of trace.json".
        faults: String,
    },
    /// A plan without its fabric file.
    PlanAlone { plan: &'a Plan },
    /// No fabric: the designs are compared for a cluster size.
    None,
}

/// Comparison of designs with the same faults.
#[derive(Debug)]
pub struct Comparison {
    pub cluster: Cluster,
    pub tp: u32,
    /// Name of the fabric's own design among the rows, if present.
    pub own: Option<String>,
    /// Origin of the faults: "trace.json", "synthetic".
    pub faults: String,
    pub samples: u64,
    /// Nodes out of service over all samples.
    pub node_fault_ratio: NodeFaultRatio,
    pub rows: Vec<Row>,
    /// First sample, change by change, for each design that holds the groups.
    pub histories: Vec<History>,
    pub window: TraceTime,
    /// Day of the history that the plan is drawn for.
    pub planned_day: Option<f64>,
    pub curves: Vec<RatioCurve>,
    /// Snapshots per point of the curves.
    pub snapshots: u64,
    /// Statistics of the trace, if given.
    pub trace: Option<Statistics>,
}

/// One design over the first sample.
#[derive(Debug)]
pub struct History {
    pub arch: String,
    pub moments: Vec<Moment>,
}

#[derive(Debug)]
pub struct Cost {
    /// Origin of the prices: a file name, or "shipped with lightloom".
    pub prices: String,
    pub rows: Vec<CostRow>,
    /// Cost per usable GPU by design, if its waste is known.
    pub usable: Vec<(String, f64)>,
    /// GPU price used in the aggregate.
    pub gpu_usd: Option<f64>,
    /// Interconnect and lost GPUs by fault ratio.
    pub aggregate: Vec<Aggregate>,
    /// Effect of each price on the ranking.
    pub sensitivity: Vec<Sensitivity>,
}

#[derive(Debug)]
pub struct Bought {
    pub name: String,
    pub gpus: u32,
    pub days: f64,
    pub prices: String,
    pub answer: Answer,
}

/// An input file of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path as the user wrote it.
    pub name: String,
    pub kind: &'static str,
    /// SHA-256 of its contents, in hex.
    pub sha256: String,
    pub bytes: u64,
    /// Digest of the plan in it.
    pub plan: Option<String>,
}

/// Measurements of a live demonstration, as written by `lightloom demo --live`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveRun {
    pub answer: String,
    pub steps: Vec<LiveStep>,
    /// Components that name the plan after the fault, with the digest they use.
    pub digests: Vec<(String, String)>,
    /// Reason no scheduler took part. `None` if one did.
    pub lacks: Option<String>,
}

/// A step of a live demonstration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveStep {
    pub name: String,
    pub found: String,
    pub took_ms: f64,
}

/// A run of the emulator, as printed by `lightloom emulate --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedRun {
    pub scenario: String,
    /// SHA-256 of its fabric.
    pub fabric_sha256: String,
    pub seed: u64,
    pub simulated_ps: u64,
    pub packet_hops: u64,
    pub packets: EmulatedPackets,
    /// Every collective of every group, and every repetition of every other workload.
    pub workloads: Vec<EmulatedCollective>,
    /// Every step of every training job.
    #[serde(default)]
    pub steps: Vec<EmulatedStep>,
    #[serde(default)]
    pub groups: Vec<EmulatedGroup>,
    pub faults: Vec<EmulatedFault>,
    pub expectations: Vec<EmulatedExpectation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct EmulatedPackets {
    pub sent: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub lost: u64,
    pub retransmitted: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EmulatedGroup {
    pub group: String,
    /// Whether no fault affected it; `None` for a group without work.
    pub unaffected: Option<bool>,
}

/// A training step of a job. Steps of phases have no job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EmulatedStep {
    pub job: Option<String>,
    /// Index, from 0.
    pub index: u32,
    pub start_ps: u64,
    pub end_ps: Option<u64>,
    pub closed_form_ps: u64,
    /// Model FLOPs as a fraction of the GPUs' peak.
    pub mfu: Option<f64>,
    /// Breakdown of its time, if it ended.
    pub why: Option<EmulatedWhy>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EmulatedWhy {
    pub compute_ps: u64,
    pub generation_ps: u64,
    pub exposed_ps: BTreeMap<String, u64>,
    pub contention_ps: u64,
    pub transition_ps: u64,
    /// From a fault until its groups continued.
    pub fault_ps: u64,
    pub restart_ps: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedCollective {
    pub name: String,
    /// Group; `None` for a collective between groups.
    pub group: Option<String>,
    /// Ranks of the group, if stated.
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

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedFault {
    pub parts: Vec<String>,
    /// Effect: `down`, `dark`, `slow`, …
    #[serde(default)]
    pub effect: String,
    /// Delay of the last affected group. `None` if none waited.
    #[serde(default)]
    pub delay_ps: Option<u64>,
    /// Start time. `None` if the run ended before.
    pub at_ps: Option<u64>,
    pub detected_ps: Option<u64>,
    /// Time at which the next plan was ready.
    pub replanned_ps: Option<u64>,
    /// Time at which all circuits had light again.
    pub restored_ps: Option<u64>,
    pub groups_affected: Vec<String>,
    pub gpus_affected: u64,
    pub gpus_lost: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedExpectation {
    pub expect: String,
    pub passed: bool,
    pub value: String,
}

/// A scenario over many seeds, as printed by `lightloom emulate --seed 0..99 --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Swept {
    pub subject: SweptSubject,
    pub runs: Vec<SweptRun>,
    /// Worst seed. `None` without runs.
    #[serde(default)]
    pub worst_seed: Option<u64>,
    #[serde(default)]
    pub recoveries: Vec<SweptRecovery>,
    #[serde(default)]
    pub expectations: Vec<SweptExpectation>,
    /// Losses of job steps over all seeds.
    #[serde(default)]
    pub distributions: Vec<Lost>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptSubject {
    pub scenario: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SweptRun {
    pub seed: u64,
    pub passed: bool,
    #[serde(default)]
    pub faults: Vec<EmulatedFault>,
}

/// Recovery time of one kind of fault, over all seeds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptRecovery {
    pub kind: String,
    pub faults: u64,
    pub recovered: u64,
    pub p50_ps: Option<u64>,
    /// 99th percentile.
    pub p99_ps: Option<u64>,
    pub max_ps: Option<u64>,
    pub worst_seed: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptExpectation {
    pub expect: String,
    pub passed: u64,
    pub failed: u64,
    /// Seed closest to its bound or furthest beyond.
    pub worst_seed: Option<u64>,
    /// Actual value of that seed as text.
    pub worst_value: Option<String>,
}

/// Distribution of a loss over seeds. Percentiles are `None` if a job never ends.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Lost {
    /// Quantity: `time_lost_ps`, `worst_step_lost_ps`, `goodput_lost` or `groups_affected`.
    pub figure: String,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
    pub worst_seed: u64,
}

/// A result of `lightloom mfu --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrainingResult {
    pub model: String,
    pub accelerator: String,
    pub batch_sequences: u64,
    pub sequence_tokens: u64,
    pub mappings_tried: u64,
    pub rows: Vec<TrainingRow>,
}

/// A mapping and its step time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrainingRow {
    pub arch: String,
    pub gpus: u64,
    pub tp: u32,
    pub pp: u32,
    pub dp: u32,
    pub cp: u32,
    pub ep: u32,
    pub micro_batch: u32,
    pub recompute: String,
    pub step_seconds: f64,
    pub mfu: f64,
    pub mfu_convention: String,
    pub memory_bytes: u64,
    pub compute_seconds: f64,
    pub tp_exposed_seconds: f64,
    #[serde(default)]
    pub cp_exposed_seconds: f64,
    #[serde(default)]
    pub ep_exposed_seconds: f64,
    pub dp_exposed_seconds: f64,
    pub pp_bubble_seconds: f64,
    #[serde(default)]
    pub pp_transfer_seconds: f64,
    #[serde(default)]
    pub optimizer_seconds: f64,
    #[serde(default)]
    pub jitter_seconds: f64,
}
