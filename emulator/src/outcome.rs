// SPDX-License-Identifier: Apache-2.0
//! What a run found: the result document of `lightloom emulate`, one for every kind of scenario.

mod faults;
mod head;
mod links;
mod losses;
mod steps;

use std::sync::Arc;

use lightloom_engine::steady::ReuseCount;
use lightloom_engine::{FlowRecord, VertexId};
use lightloom_units::id::GroupId;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

pub use faults::{EndpointKind, FaultResult, NotRestored, PhaseImpact, TrafficImpact, listed};
pub(crate) use head::RunIdentity;
pub use head::{OutcomeHead, Packets, RUN_SCHEMA};
pub use links::{LinkClass, LinkResult, QueueResult, QueueRow};
pub use losses::JobLoss;
pub use steps::{ClosedForm, Exposed, JobStep, Steps, WhyResult};

pub use crate::daemon_result::{CostModel, DaemonResult, PhaseCounts};
use crate::nearest_rank::percentile;
pub use crate::run::log::Stop;
pub use crate::run::{Waiting, WaitsFor};
use crate::scenario::InFlight;
pub use crate::stages::{Stage, StageName};

/// The result of a run. Everything but the two wall-clock figures depends on the scenario and the
/// seed alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What was run, for how long, and what became of the packets.
    #[serde(flatten)]
    pub head: OutcomeHead,
    /// Packets that found no room, by priority, where switches keep priorities apart; acknowledgements and
    /// trimmed packets come last.
    pub drops_by_priority: Vec<u64>,
    /// How much of the run was spared, exactly; nothing where everything was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseCount>,
    /// How many times smaller than in the fabric all sizes and times of the run were; times and sizes here are the
    /// fabric's.
    pub scale: u64,
    /// What becomes of packets on a circuit that a change removes. `None` without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// Every collective of every group and every repetition of every other workload.
    pub workloads: Vec<WorkloadResult>,
    /// Every phase of every step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseResult>,
    /// Every step.
    #[serde(skip_serializing_if = "Steps::is_empty")]
    pub steps: Steps,
    /// Exchanges round idle rings that took the time of an equal one, which is exact. `None` without jobs that train.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_reused: Option<u64>,
    /// How long steps took. `None` without steps that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_percentiles: Option<Percentiles>,
    /// Where the time of the optical ports went. `None` without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortTime>,
    /// Flow completion times.
    pub flows: FlowFigures,
    /// What packets found in the queues of all links that were used.
    pub queues: QueueFigures,
    /// What the shipping daemon did. `None` where the control plane is assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lightloomd: Option<Box<DaemonResult>>,
    /// What each fault did.
    pub faults: Vec<FaultResult>,
    /// Every group of every job: what it lost, and by how much it was late.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupResult>,
    /// What the plan is worth at the end. `None` on a network that is not planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanResult>,
    /// Shares of the time; docs/metrics.md defines them.
    pub metrics: Metrics,
    /// How busy the links were, and how full their queues.
    pub links: Vec<LinkClass>,
    /// Why the run was stopped before its work was done; nothing when it came to its end.
    pub stop: Option<Stop>,
    /// Whether it was stopped by a limit that its scenario does not write: it would never have ended.
    pub never_ended: bool,
    /// What was not done when it was stopped, since when it had come no further, and what it waited for.
    pub waiting: Vec<Waiting>,
    /// What was expected, and whether it came true.
    pub expectations: Vec<ExpectationResult>,
    /// Every flow, for `--flows-out`.
    #[serde(skip)]
    pub flow_records: Vec<FlowRow>,
}

/// One flow, as `--flows-out` writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// Where it came from.
    pub source: Arc<str>,
    /// Where it went to.
    pub destination: Arc<str>,
    /// Its size in the run.
    pub size: Bytes,
    /// When it could begin.
    pub start: SimTime,
    /// When its last byte arrived; nothing if it never did.
    pub end: Option<SimTime>,
    /// Whether it was given up.
    pub cancelled: bool,
    /// The workload of `traffic` whose flow it is. `None` for those of groups, steps and phases.
    pub workload: Option<Arc<str>>,
}

impl FlowRow {
    /// The row of a flow between vertices that users know as `name` calls them.
    pub(crate) fn new(
        flow: &FlowRecord,
        name: impl Fn(VertexId) -> Arc<str>,
        workload: Option<Arc<str>>,
    ) -> Self {
        Self {
            workload,
            source: name(flow.source),
            destination: name(flow.destination),
            size: flow.size,
            start: flow.start,
            end: flow.end,
            cancelled: flow.cancelled,
        }
    }
}

impl Outcome {
    /// Whether every expectation came true and no limit that was not asked for stopped the run.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.never_ended && self.expectations.iter().all(|expectation| expectation.passed)
    }
}

/// One collective of one group (or, between groups, of one job).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadResult {
    /// Its name in the scenario.
    pub name: String,
    /// The group; nothing for a collective between all groups of the job.
    pub group: Option<GroupId>,
    /// What it is.
    pub kind: &'static str,
    /// Size, by the convention of NCCL's tests: the whole buffer of one rank.
    pub bytes: Bytes,
    /// When it began; at a restart, when it first began.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// When its last byte arrived; nothing if it never ended.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// The closed form of the undisturbed collective.
    #[serde(rename = "ideal_ps")]
    pub ideal: Picoseconds,
    /// No run can be faster: the tightest of the bounds below.
    #[serde(rename = "lower_bound_ps")]
    pub lower_bound: Picoseconds,
    /// Which bound that is: `path`, the closed form of its messages; or an interface that has so much to send or to
    /// receive, such as `h3 receives`; of a group alone, `an interface`.
    pub lower_bound_of: String,
    /// When the same collective ended in the run without faults.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Size over time.
    pub algbw_bytes_per_s: f64,
    /// Bandwidth the slowest link carried: algorithm bandwidth times the collective's factor.
    pub busbw_bytes_per_s: f64,
    /// How often it was begun again.
    pub restarts: u32,
    /// Ranks of the ring; between groups, groups.
    pub ranks: u32,
    /// Completion times of its flows. `None` for collectives of groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowFigures>,
}

/// Flow completion times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowFigures {
    /// Flows that ended.
    pub count: u64,
    /// Flows that were given up: for a restart, or since nothing leads to their end any more.
    pub cancelled: u64,
    /// Half of them took no longer.
    #[serde(rename = "fct_p50_ps")]
    pub fct_p50: Picoseconds,
    /// 99 of 100 took no longer.
    #[serde(rename = "fct_p99_ps")]
    pub fct_p99: Picoseconds,
    /// None took longer.
    #[serde(rename = "fct_max_ps")]
    pub fct_max: Picoseconds,
    /// The number of the first flow of which packets arrived although they had arrived before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_with_duplicates: Option<u64>,
}

impl FlowFigures {
    /// The times of `flows`.
    pub(crate) fn new(flows: &[FlowRecord]) -> Self {
        let times: Vec<Picoseconds> =
            flows.iter().filter_map(|flow| flow.end.map(|end| end.since(flow.start))).collect();
        let count = times.len() as u64;
        let Percentiles { p50, p99, max } = Percentiles::of(times).unwrap_or_default();
        Self {
            cancelled: flows.iter().filter(|flow| flow.cancelled).count() as u64,
            fct_p50: p50,
            fct_p99: p99,
            fct_max: max,
            first_with_duplicates: flows
                .iter()
                .position(|flow| flow.duplicates > 0)
                .map(|flow| flow as u64),
            count,
        }
    }
}

/// What faults did to one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupResult {
    /// The group.
    pub group: GroupId,
    /// GPUs in it.
    pub gpus: u32,
    /// When its last collective ended; nothing if it has some left.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// When it ended in the run without faults; nothing for a group that only a repair made possible.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// How much later it ended; nothing if it has work left.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// For how long faults kept it still.
    #[serde(rename = "down_ps")]
    pub down: Picoseconds,
    /// Whether it was lost and never formed again.
    pub lost: bool,
    /// Whether it ended each step and collective at the same picosecond as in the run without faults. `None` for a group
    /// without work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unaffected: Option<bool>,
    /// Of a job that trains: when its last task of each step ended; nothing for a step that never did.
    #[serde(rename = "step_ends_ps", skip_serializing_if = "Vec::is_empty")]
    pub step_ends: Vec<Option<SimTime>>,
}

/// How long things took, by nearest rank: the smallest time that so many of all do not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half of them took no longer.
    #[serde(rename = "p50_ps")]
    pub p50: Picoseconds,
    /// 99 of 100 took no longer.
    #[serde(rename = "p99_ps")]
    pub p99: Picoseconds,
    /// None took longer.
    #[serde(rename = "max_ps")]
    pub max: Picoseconds,
}

impl Percentiles {
    /// Those of `times`. `None` of nothing.
    pub(crate) fn of(mut times: Vec<Picoseconds>) -> Option<Self> {
        times.sort_unstable();
        let at = |per_cent| percentile(&times, per_cent);
        Some(Self { p50: at(50)?, p99: at(99)?, max: at(100)? })
    }
}

/// What packets found in queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueFigures {
    /// Half of the packets found no more.
    pub p50_bytes: Bytes,
    /// 99 of 100 packets found no more.
    pub p99_bytes: Bytes,
    /// None found more, to three digits.
    pub max_bytes: Bytes,
    /// Time in which ports were paused, added up over all ports: docs/metrics.md.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
    /// That of the port that was paused longest.
    #[serde(rename = "paused_max_ps")]
    pub paused_max: Picoseconds,
}

/// Shares of the time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Share of the time of all that work in which no fault kept them still.
    pub availability: f64,
    /// Share of the time of all that work that the same work takes without faults.
    pub goodput: f64,
}

/// How long something took, and what the models say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// What packets took. `None` where some never arrived.
    #[serde(rename = "packets_ps")]
    pub packets: Option<Picoseconds>,
    /// What packets took without the scenario's faults.
    #[serde(rename = "packets_without_faults_ps")]
    pub packets_without_faults: Option<Picoseconds>,
    /// What the fluid model says of the plan without faults.
    #[serde(rename = "fluid_ps")]
    pub fluid: Option<Picoseconds>,
    /// What the planner says.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
}

/// One phase of one step. Times of a phase run from the end of its slack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseResult {
    /// Which step, from 0.
    pub step: u32,
    /// Its name.
    pub name: String,
    /// Bytes it sends.
    pub demand_bytes: Bytes,
    /// Circuits that carry traffic when it ends.
    pub circuits_up: usize,
    /// Circuits that the plan has for it.
    pub circuits_planned: usize,
    /// When the phase before it ended.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// How long it took.
    #[serde(flatten)]
    pub times: Times,
    /// From the first command of the change before it to the last circuit up.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// Data of this phase sent more than once, since circuits came or went, in the fabric's bytes.
    pub resent_bytes: Bytes,
    /// Packets lost on circuits and on the interfaces of leaves, which phases have for themselves.
    pub packets_lost: u64,
    /// Bytes that never found a way.
    pub held_bytes: Bytes,
    /// Whether the change before it was missed, for there was no control plane to command it.
    pub change_missed: bool,
}

/// One step: the sums over its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// Which, from 0.
    pub step: u32,
    /// How long it took.
    #[serde(flatten)]
    pub times: Times,
}

/// Where the time of the optical ports went, as shares of all ports over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PortTime {
    /// Drained, switching or training in a planned change.
    pub switching_share: f64,
    /// Dark or drained since something broke.
    pub fault_share: f64,
}

/// What the plan is worth at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanResult {
    /// GPUs working for jobs.
    pub gpus_used: u64,
    /// Healthy GPUs in no complete ring over all GPUs.
    pub waste_ratio: f64,
    /// What an ideal switch would waste.
    pub waste_ratio_lower_bound: f64,
    /// Share of inner data-parallel hops that cross ToRs.
    pub cross_tor_share: f64,
}

/// One expectation and what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// The sentence.
    pub expect: String,
    /// Whether it came true.
    pub passed: bool,
    /// What was found, in words.
    pub value: String,
    /// How far inside its bound the figure is, as a share of the bound (of one, where the bound is
    /// zero); below zero when it is outside. Nothing where there is nothing to measure.
    pub margin: Option<f64>,
    /// Places in the list of faults of those that went beyond the bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breached_by: Vec<usize>,
}
