// SPDX-License-Identifier: Apache-2.0
//! Result document of `lightloom emulate` for all kinds of scenarios.

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
pub use head::{OutcomeHead, RUN_SCHEMA};
pub use links::{LinkClass, LinkResult, QueueResult, QueueRow};
pub use losses::JobLoss;
pub use steps::{ClosedForm, JobStep, Steps};

pub use crate::daemon_result::{CostModel, DaemonResult, PhaseCounts};
use crate::nearest_rank::percentile;
pub use crate::run::log::Stop;
pub use crate::run::{Exposed, Waiting, WaitsFor, WhyResult};
use crate::scenario::InFlight;
pub use crate::stages::{Stage, StageName};

/// Result of a run. Depends only on the scenario and seed, except for two wall-clock times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Scenario, duration and packet counts.
    #[serde(flatten)]
    pub head: OutcomeHead,
    /// Dropped packets by priority, if any. The last entry is for acknowledgements and trimmed packets.
    pub drops_by_priority: Vec<u64>,
    /// Work saved by simulating identical parts only once. `None` if all parts were simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseCount>,
    /// Ratio of full size to simulated size. All sizes and times in the result are at full size.
    pub scale: u64,
    /// Treatment of packets in flight on a circuit that is removed. `None` without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// All collectives of all groups, and all repetitions of other workloads.
    pub workloads: Vec<WorkloadResult>,
    /// Phases of all steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseResult>,
    /// All steps.
    #[serde(skip_serializing_if = "Steps::is_empty")]
    pub steps: Steps,
    /// Number of exchanges on idle rings whose duration was reused. `None` without training jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_reused: Option<u64>,
    /// Percentiles of the step times. `None` if no step finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_percentiles: Option<Percentiles>,
    /// Unavailable time of the optical ports. `None` without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortTime>,
    /// Flow completion times.
    pub flows: FlowFigures,
    /// Queue lengths on packet arrival, over all used links.
    pub queues: QueueFigures,
    /// Results of the shipped daemon. `None` if the control plane is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lightloomd: Option<Box<DaemonResult>>,
    /// Effects of each fault.
    pub faults: Vec<FaultResult>,
    /// All groups of all jobs, with their losses and delays.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupResult>,
    /// Metrics of the final plan. `None` for networks without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanResult>,
    /// Availability and goodput, as defined in docs/metrics.md.
    pub metrics: Metrics,
    /// Utilisation and queues of links.
    pub links: Vec<LinkClass>,
    /// Why the run stopped early. `None` if it finished.
    pub stop: Option<Stop>,
    /// Whether the run stopped early although the scenario did not intend it.
    pub never_ended: bool,
    /// Unfinished work of a run that stopped early, with dependencies and last progress.
    pub waiting: Vec<Waiting>,
    /// Expectations and their results.
    pub expectations: Vec<ExpectationResult>,
    /// All flows, for `--flows-out`.
    #[serde(skip)]
    pub flow_records: Vec<FlowRow>,
}

/// A flow, as written by `--flows-out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// The source.
    pub source: Arc<str>,
    /// The destination.
    pub destination: Arc<str>,
    /// Size in the run.
    pub size: Bytes,
    /// Earliest start time.
    pub start: SimTime,
    /// Arrival time of the last byte. `None` if it never arrived.
    pub end: Option<SimTime>,
    /// Whether the flow was abandoned.
    pub cancelled: bool,
    /// Workload in `traffic`. `None` for flows of groups, steps and phases.
    pub workload: Option<Arc<str>>,
}

impl FlowRow {
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
    /// Returns whether all expectations held and no unintended limit stopped the run.
    pub fn passed(&self) -> bool {
        !self.never_ended && self.expectations.iter().all(|expectation| expectation.passed)
    }
}

/// A collective within a group, or between the groups of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadResult {
    /// Name in the scenario.
    pub name: String,
    /// Group of the collective. `None` for a collective between all groups of the job.
    pub group: Option<GroupId>,
    /// Kind of collective.
    pub kind: &'static str,
    /// Size as defined by nccl-tests: the whole buffer of one rank.
    pub bytes: Bytes,
    /// Time of the first start.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// Arrival time of the last byte. `None` if it never arrived.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// Closed-form time without contention or faults.
    #[serde(rename = "ideal_ps")]
    pub ideal: Picoseconds,
    /// Tightest lower bound on the duration.
    #[serde(rename = "lower_bound_ps")]
    pub lower_bound: Picoseconds,
    /// Source of the lower bound: `path`, `an interface`, or a loaded interface such as `h3 receives`.
    pub lower_bound_of: String,
    /// End time in the run without faults.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Size divided by time, in bytes per second.
    pub algbw_bytes_per_s: f64,
    /// `algbw` multiplied by the collective's bus factor: the bandwidth of the slowest link, in bytes per second.
    pub busbw_bytes_per_s: f64,
    /// Number of restarts.
    pub restarts: u32,
    /// Number of ranks in the ring, or of groups for a collective between groups.
    pub ranks: u32,
    /// Flow completion times. `None` for collectives within groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowFigures>,
}

/// Flow completion times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowFigures {
    /// Number of completed flows.
    pub count: u64,
    /// Number of flows abandoned because of a restart or a missing path.
    pub cancelled: u64,
    /// Median completion time.
    #[serde(rename = "fct_p50_ps")]
    pub fct_p50: Picoseconds,
    /// 99th percentile of the completion time.
    #[serde(rename = "fct_p99_ps")]
    pub fct_p99: Picoseconds,
    /// Maximum completion time.
    #[serde(rename = "fct_max_ps")]
    pub fct_max: Picoseconds,
    /// Index of the first flow with a duplicate packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_with_duplicates: Option<u64>,
}

impl FlowFigures {
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

/// Effects of faults on one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupResult {
    /// The group.
    pub group: GroupId,
    /// Number of GPUs.
    pub gpus: u32,
    /// End time of the last collective. `None` if work is unfinished.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// End time in the run without faults. `None` for groups that were formed only after a repair.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Delay relative to the run without faults. `None` if work is unfinished.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// Downtime caused by faults.
    #[serde(rename = "down_ps")]
    pub down: Picoseconds,
    /// Whether the group was lost and never re-formed.
    pub lost: bool,
    /// Whether all steps and collectives ended at the same picosecond as without faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unaffected: Option<bool>,
    /// End time of the group's last task in each training step. `None` for unfinished steps.
    #[serde(rename = "step_ends_ps", skip_serializing_if = "Vec::is_empty")]
    pub step_ends: Vec<Option<SimTime>>,
}

/// Percentiles of times, by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Median.
    #[serde(rename = "p50_ps")]
    pub p50: Picoseconds,
    /// 99th percentile.
    #[serde(rename = "p99_ps")]
    pub p99: Picoseconds,
    /// Maximum.
    #[serde(rename = "max_ps")]
    pub max: Picoseconds,
}

impl Percentiles {
    pub(crate) fn of(mut times: Vec<Picoseconds>) -> Option<Self> {
        times.sort_unstable();
        let [p50, p99, max] = [50, 99, 100].map(|per_cent| percentile(&times, per_cent));
        Some(Self { p50: p50?, p99: p99?, max: max? })
    }
}

/// Queue lengths on packet arrival, and pause times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueFigures {
    /// Median queue length, in bytes.
    pub p50_bytes: Bytes,
    /// 99th percentile of the queue length, in bytes.
    pub p99_bytes: Bytes,
    /// Maximum queue length, in bytes, rounded to three digits.
    pub max_bytes: Bytes,
    /// Total pause time of all ports, as defined in docs/metrics.md.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
    /// Pause time of the port that was paused longest.
    #[serde(rename = "paused_max_ps")]
    pub paused_max: Picoseconds,
}

/// Availability and goodput of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Share of the workers' time without fault-induced downtime.
    pub availability: f64,
    /// Share of the workers' time that the same work takes without faults.
    pub goodput: f64,
}

/// Measured time and model predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Measured time. `None` if packets never arrived.
    #[serde(rename = "packets_ps")]
    pub packets: Option<Picoseconds>,
    /// Time measured without the scenario's faults.
    #[serde(rename = "packets_without_faults_ps")]
    pub packets_without_faults: Option<Picoseconds>,
    /// Fluid-model prediction for the fault-free plan. Over packet switches, the time of the most
    /// loaded link under ECMP hashing; `None` if switches route adaptively.
    #[serde(rename = "fluid_ps")]
    pub fluid: Option<Picoseconds>,
    /// The planner's prediction.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
}

/// One phase of one step. Phase times start at the end of the slack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseResult {
    /// Index of the step, from 0.
    pub step: u32,
    /// Name of the phase.
    pub name: String,
    /// Bytes to send.
    pub demand_bytes: Bytes,
    /// Circuits that carry traffic at the end of the phase.
    pub circuits_up: usize,
    /// Planned circuits.
    pub circuits_planned: usize,
    /// End time of the previous phase.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// Measured and predicted times.
    #[serde(flatten)]
    pub times: Times,
    /// Time from the first command of the previous change to the last circuit coming up.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// Bytes of this phase, at full size, that were resent because circuits changed.
    pub resent_bytes: Bytes,
    /// Packets lost on circuits and on leaf interfaces dedicated to phases.
    pub packets_lost: u64,
    /// Bytes that were never sent, because they had no path.
    pub held_bytes: Bytes,
    /// Whether a control plane outage prevented the change before this phase.
    pub change_missed: bool,
}

/// One step, as the sum over its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// Index of the step, from 0.
    pub step: u32,
    /// Measured and predicted times.
    #[serde(flatten)]
    pub times: Times,
}

/// Unavailable time of the optical ports, as shares of all ports' time over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PortTime {
    /// Share of time in which ports were drained, switching or training for planned changes.
    pub switching_share: f64,
    /// Share of time in which ports were dark or drained because of failures.
    pub fault_share: f64,
}

/// Metrics of the final plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanResult {
    /// Number of GPUs used by jobs.
    pub gpus_used: u64,
    /// Share of all GPUs that are healthy but outside a complete ring.
    pub waste_ratio: f64,
    /// Waste ratio of an ideal switch.
    pub waste_ratio_lower_bound: f64,
    /// Share of inner data-parallel hops that cross top-of-rack switches.
    pub cross_tor_share: f64,
}

/// An expectation and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// The expectation as written.
    pub expect: String,
    /// Whether the expectation held.
    pub passed: bool,
    /// Measured value, as text.
    pub value: String,
    /// Margin relative to the bound, or to 1 if the bound is 0. `None` if the value is not numeric.
    pub margin: Option<f64>,
    /// Indices of the faults that caused the violation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breached_by: Vec<usize>,
}
