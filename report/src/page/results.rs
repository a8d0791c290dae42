// SPDX-License-Identifier: Apache-2.0
//! What a page is made from: results of the planner as they are, results of the emulator and of the
//! training model as their JSON says them.

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

/// Everything that is known. What is missing is left out of the page, and named in it.
#[derive(Debug)]
pub struct Results<'a> {
    /// What is drawn.
    pub subject: Subject<'a>,
    /// What to buy.
    pub bought: Option<Bought>,
    /// The designs under faults.
    pub comparison: Option<Comparison>,
    /// What the designs cost.
    pub cost: Option<Cost>,
    /// Runs of the emulator.
    pub runs: Vec<EmulatedRun>,
    /// Runs of the emulator under many seeds.
    pub sweeps: Vec<Swept>,
    /// A live demonstration.
    pub live: Option<LiveRun>,
    /// Bills of months.
    pub bills: Vec<Billed>,
    /// Results of the training model.
    pub training: Vec<TrainingResult>,
    /// Published figures beside ours.
    pub claims: Vec<Claim>,
    /// The files it was made from, in the order given.
    pub sources: Vec<SourceFile>,
    /// What further input would add, a sentence each.
    pub would_add: Vec<String>,
    /// Seed of all draws.
    pub seed: u64,
    /// Version of the program.
    pub version: &'static str,
    /// The command that makes the page again.
    pub command: String,
}

impl Results<'_> {
    /// Whether the page is about bills, and compares no designs.
    pub(super) fn is_bill_alone(&self) -> bool {
        !self.bills.is_empty() && self.is_of_runs_alone()
    }

    /// Whether the page shows what was run or computed elsewhere, and compares no designs.
    pub(super) fn is_of_runs_alone(&self) -> bool {
        self.comparison.is_none() && self.cost.is_none()
    }
}

/// What the page is about.
#[derive(Debug)]
pub enum Subject<'a> {
    /// A fabric with its plan.
    Fabric {
        /// What is installed.
        fabric: &'a Fabric,
        /// The plan.
        plan: &'a Plan,
        /// What the independent checker found.
        verdict: Verdict,
        /// What the plan's faults are: "day 75.2 of trace.json".
        faults: String,
    },
    /// A plan whose fabric file is not at hand.
    PlanAlone {
        /// The plan.
        plan: &'a Plan,
    },
    /// No fabric: the designs are compared for a cluster of a size.
    None,
}

/// The designs under the same faults.
#[derive(Debug)]
pub struct Comparison {
    /// The cluster.
    pub cluster: Cluster,
    /// GPUs of a group.
    pub tp: u32,
    /// Name of the fabric's own design among the rows, if it is one of them.
    pub own: Option<String>,
    /// What the faults are: "trace.json", "synthetic".
    pub faults: String,
    /// Histories drawn from them.
    pub samples: u64,
    /// Nodes out of service over all samples.
    pub node_fault_ratio: NodeFaultRatio,
    /// A row a design.
    pub rows: Vec<Row>,
    /// The first sample, change by change; a design each that holds the groups.
    pub histories: Vec<History>,
    /// Where the history ends.
    pub window: TraceTime,
    /// The day of the history that the plan is drawn for.
    pub planned_day: Option<f64>,
    /// Waste against independent faults.
    pub curves: Vec<RatioCurve>,
    /// Snapshots for each point of the curves.
    pub snapshots: u64,
    /// Statistics of the trace, where one was given.
    pub trace: Option<Statistics>,
}

/// One design over the first sample.
#[derive(Debug)]
pub struct History {
    /// The design.
    pub arch: String,
    /// Change by change.
    pub moments: Vec<Moment>,
}

/// What designs cost.
#[derive(Debug)]
pub struct Cost {
    /// What the prices are: a file name, or "shipped with lightloom".
    pub prices: String,
    /// A row a design.
    pub rows: Vec<CostRow>,
    /// Cost of a GPU that can be used, by design, where its waste is known.
    pub usable: Vec<(String, f64)>,
    /// Price of a GPU that the aggregate takes.
    pub gpu_usd: Option<f64>,
    /// Interconnect and lost GPUs against the fault ratio.
    pub aggregate: Vec<Aggregate>,
    /// What each price does to the order.
    pub sensitivity: Vec<Sensitivity>,
}

/// The answer to a question of what to buy.
#[derive(Debug)]
pub struct Bought {
    /// Its name.
    pub name: String,
    /// GPUs that are asked for.
    pub gpus: u32,
    /// Days simulated.
    pub days: f64,
    /// What the prices are.
    pub prices: String,
    /// The answer.
    pub answer: Answer,
}

/// A file that the page was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// As the user named it.
    pub name: String,
    /// What it was recognised as.
    pub kind: &'static str,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// The identity of the plan in it.
    pub plan: Option<String>,
}

/// What a live demonstration measured, as `lightloom demo --live` writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveRun {
    /// What it shows, in a short sentence.
    pub answer: String,
    /// In their order.
    pub steps: Vec<LiveStep>,
    /// Where the plan after the fault is named, and by which digest.
    pub digests: Vec<(String, String)>,
    /// Why no scheduler took part. `None` if one did.
    pub lacks: Option<String>,
}

/// A step of a live demonstration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveStep {
    /// In a few words.
    pub name: String,
    /// What was seen.
    pub found: String,
    /// How long that took, in milliseconds.
    pub took_ms: f64,
}

/// A run of the emulator, as `lightloom emulate --format json` prints it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedRun {
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric it ran on.
    pub fabric_sha256: String,
    /// The seed.
    pub seed: u64,
    /// When the last thing happened.
    pub simulated_ps: u64,
    /// Packets put on a wire.
    pub packet_hops: u64,
    /// What became of the packets.
    pub packets: EmulatedPackets,
    /// Every collective of every group, and every repetition of every other workload.
    pub workloads: Vec<EmulatedCollective>,
    /// Every step of every job that trains.
    #[serde(default)]
    pub steps: Vec<EmulatedStep>,
    /// Its groups.
    #[serde(default)]
    pub groups: Vec<EmulatedGroup>,
    /// What each fault did.
    pub faults: Vec<EmulatedFault>,
    /// What was expected.
    pub expectations: Vec<EmulatedExpectation>,
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct EmulatedPackets {
    /// Handed to the network.
    pub sent: u64,
    /// That arrived.
    pub delivered: u64,
    /// That found a queue full.
    pub dropped: u64,
    /// Lost on a link that was dark.
    pub lost: u64,
    /// Sent again.
    pub retransmitted: u64,
}

/// A group of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EmulatedGroup {
    /// Its name.
    pub group: String,
    /// Whether faults left it alone; nothing for a group without work.
    pub unaffected: Option<bool>,
}

/// A step of a job that trains. Steps of phases have no job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EmulatedStep {
    /// The job.
    pub job: Option<String>,
    /// Which, from 0.
    pub index: u32,
    /// When it began.
    pub start_ps: u64,
    /// When it ended, if it did.
    pub end_ps: Option<u64>,
    /// Its closed form.
    pub closed_form_ps: u64,
    /// Model operations as a share of what its GPUs could do.
    pub mfu: Option<f64>,
    /// Where its time went, if it ended.
    pub why: Option<EmulatedWhy>,
}

/// Where the time of a step went.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EmulatedWhy {
    /// Computing.
    pub compute_ps: u64,
    /// Generation.
    pub generation_ps: u64,
    /// Exchange by what it is for.
    pub exposed_ps: BTreeMap<String, u64>,
    /// Sharing links.
    pub contention_ps: u64,
    /// Waiting for circuits.
    pub transition_ps: u64,
    /// From a fault until its groups went on.
    pub fault_ps: u64,
    /// Work done again.
    pub restart_ps: u64,
}

/// One collective of one group.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedCollective {
    /// Its name in the scenario.
    pub name: String,
    /// The group; nothing for one between groups.
    pub group: Option<String>,
    /// Ranks of the group, where it says so.
    #[serde(default)]
    pub ranks: Option<u64>,
    /// What it is.
    pub kind: String,
    /// The whole buffer of one rank.
    pub bytes: u64,
    /// When it began.
    pub start_ps: u64,
    /// When it ended, if it did.
    pub end_ps: Option<u64>,
    /// The closed form.
    pub ideal_ps: u64,
    /// Bandwidth the slowest link carried.
    pub busbw_bytes_per_s: f64,
    /// How often it was begun again.
    pub restarts: u32,
}

/// What one fault did.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedFault {
    /// The parts that broke.
    pub parts: Vec<String>,
    /// What it did: `down`, `dark`, `slow`, …
    #[serde(default)]
    pub effect: String,
    /// How late the last group went on that it touched. `None` if none waited.
    #[serde(default)]
    pub delay_ps: Option<u64>,
    /// When. `None` if the run never came there.
    pub at_ps: Option<u64>,
    /// When the control plane knew.
    pub detected_ps: Option<u64>,
    /// When the next plan was there.
    pub replanned_ps: Option<u64>,
    /// When everything had light again.
    pub restored_ps: Option<u64>,
    /// Affected groups.
    pub groups_affected: Vec<String>,
    /// Their GPUs.
    pub gpus_affected: u64,
    /// GPUs that went out of service.
    pub gpus_lost: u64,
}

/// What was expected, and whether it came true.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct EmulatedExpectation {
    /// The expectation.
    pub expect: String,
    /// Whether it came true.
    pub passed: bool,
    /// What was found, in words.
    pub value: String,
}

/// A scenario under many seeds, as `lightloom emulate --seed 0..99 --format json` prints it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Swept {
    /// What was run.
    pub subject: SweptSubject,
    /// Every seed.
    pub runs: Vec<SweptRun>,
    /// The seed that did worst. `None` if none was run.
    #[serde(default)]
    pub worst_seed: Option<u64>,
    /// How long faults are waited for.
    #[serde(default)]
    pub recoveries: Vec<SweptRecovery>,
    /// What was expected.
    #[serde(default)]
    pub expectations: Vec<SweptExpectation>,
    /// What the steps of jobs lose, over all seeds.
    #[serde(default)]
    pub distributions: Vec<Lost>,
}

/// What was run under many seeds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptSubject {
    /// Name of the scenario.
    pub scenario: String,
}

/// One seed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SweptRun {
    /// The seed.
    pub seed: u64,
    /// Whether every expectation came true.
    pub passed: bool,
    /// What each fault did.
    #[serde(default)]
    pub faults: Vec<EmulatedFault>,
}

/// How long one kind of fault is waited for, over all seeds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptRecovery {
    /// The kind.
    pub kind: String,
    /// Faults of it.
    pub faults: u64,
    /// Of them, how many were recovered from.
    pub recovered: u64,
    /// Half of those took no longer.
    pub p50_ps: Option<u64>,
    /// 99 of 100.
    pub p99_ps: Option<u64>,
    /// All.
    pub max_ps: Option<u64>,
    /// The seed of the longest.
    pub worst_seed: Option<u64>,
}

/// An expectation over all seeds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SweptExpectation {
    /// The expectation.
    pub expect: String,
    /// Seeds under which it came true.
    pub passed: u64,
    /// Seeds under which it did not.
    pub failed: u64,
    /// The seed that came nearest to its bound, or went furthest beyond.
    pub worst_seed: Option<u64>,
    /// What was found there, in words.
    pub worst_value: Option<String>,
}

/// How much of something is lost: half, 90, 99 of 100 seeds and every seed lose no more. `None` if a job never ends.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Lost {
    /// What: `time_lost_ps`, `worst_step_lost_ps`, `goodput_lost` or `groups_affected`.
    pub figure: String,
    /// Half.
    pub p50: Option<f64>,
    /// 90 of 100.
    pub p90: Option<f64>,
    /// 99 of 100.
    pub p99: Option<f64>,
    /// All.
    pub max: Option<f64>,
    /// The seed that loses most.
    pub worst_seed: u64,
}

/// A result of `lightloom mfu --format json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct TrainingResult {
    /// The model.
    pub model: String,
    /// The accelerator.
    pub accelerator: String,
    /// Sequences of a step.
    pub batch_sequences: u64,
    /// Tokens of a sequence.
    pub sequence_tokens: u64,
    /// Mappings tried.
    pub mappings_tried: u64,
    /// The best mappings, best first.
    pub rows: Vec<TrainingRow>,
}

/// A mapping and the time of its step.
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
