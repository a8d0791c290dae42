// SPDX-License-Identifier: Apache-2.0
//! The result document of `lightloom emulate`, common to every kind of scenario.

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

/// The result of a run. Everything except the two wall-clock figures depends only on the scenario
/// and the seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The scenario, the duration, and the packet counts.
    #[serde(flatten)]
    pub head: OutcomeHead,
    /// Dropped packets by priority, if switches have priority queues. The last entry is for
    /// acknowledgements and trimmed packets.
    pub drops_by_priority: Vec<u64>,
    /// How much simulation was avoided by exact sharing. `None` if everything was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseCount>,
    /// The ratio of the fabric's sizes and times to the run's. All sizes and times here are the
    /// fabric's.
    pub scale: u64,
    /// Treatment of packets on a circuit that a change removes. `None` without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// Every collective in every group, and every repetition of every other workload.
    pub workloads: Vec<WorkloadResult>,
    /// Every phase of every step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseResult>,
    /// Every step.
    #[serde(skip_serializing_if = "Steps::is_empty")]
    pub steps: Steps,
    /// Number of exchanges around idle rings that reused the time of an identical one, which is
    /// exact. `None` without training jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanges_reused: Option<u64>,
    /// Percentiles of the step times. `None` if no step ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_percentiles: Option<Percentiles>,
    /// How the optical ports spent their time. `None` without phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortTime>,
    /// Flow completion times.
    pub flows: FlowFigures,
    /// Queue lengths that packets found, over all used links.
    pub queues: QueueFigures,
    /// Results of the shipped daemon. `None` if the control plane is modelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lightloomd: Option<Box<DaemonResult>>,
    /// The effects of each fault.
    pub faults: Vec<FaultResult>,
    /// Every group in every job, with its losses and delay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupResult>,
    /// Metrics of the final plan. `None` on a network without a plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanResult>,
    /// Shares of the time, defined in docs/metrics.md.
    pub metrics: Metrics,
    /// Utilisation and queues of the links.
    pub links: Vec<LinkClass>,
    /// Why the run was stopped before its work was done. `None` if it finished.
    pub stop: Option<Stop>,
    /// Whether the run was stopped in a way that the scenario does not intend.
    pub never_ended: bool,
    /// Work that was unfinished when the run was stopped, when it last made progress, and what it
    /// depends on.
    pub waiting: Vec<Waiting>,
    /// The expectations and whether they held.
    pub expectations: Vec<ExpectationResult>,
    /// Every flow, for `--flows-out`.
    #[serde(skip)]
    pub flow_records: Vec<FlowRow>,
}

/// One flow, as written by `--flows-out`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRow {
    /// The source.
    pub source: Arc<str>,
    /// The destination.
    pub destination: Arc<str>,
    /// The size in the run.
    pub size: Bytes,
    /// Time when it could begin.
    pub start: SimTime,
    /// Time when its last byte arrived. `None` if it never did.
    pub end: Option<SimTime>,
    /// Whether it was abandoned.
    pub cancelled: bool,
    /// Workload in `traffic` that the flow belongs to. `None` for flows of groups, steps and
    /// phases.
    pub workload: Option<Arc<str>>,
}

impl FlowRow {
    /// Creates a flow's row. `name` returns the displayed name of a vertex.
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
    /// Returns whether every expectation held and no unintended limit stopped the run.
    #[must_use]
    pub fn passed(&self) -> bool {
        !self.never_ended && self.expectations.iter().all(|expectation| expectation.passed)
    }
}

/// One collective within a group, or one between a job's groups.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadResult {
    /// The name in the scenario.
    pub name: String,
    /// The group. `None` for a collective between all groups of the job.
    pub group: Option<GroupId>,
    /// The kind of collective.
    pub kind: &'static str,
    /// The size as in NCCL's tests: the whole buffer of one rank.
    pub bytes: Bytes,
    /// Time when it began (for the first time, if it was restarted).
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// Time when its last byte arrived. `None` if it never ended.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// The closed form for the undisturbed collective.
    #[serde(rename = "ideal_ps")]
    pub ideal: Picoseconds,
    /// The tightest lower bound on its time.
    #[serde(rename = "lower_bound_ps")]
    pub lower_bound: Picoseconds,
    /// The source of that bound: `path` for the closed form of the messages, or a loaded interface,
    /// such as `h3 receives`. For a collective within a group, it is `an interface`.
    pub lower_bound_of: String,
    /// Time when the same collective ended in the run without faults.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Size divided by time, in bytes per second.
    pub algbw_bytes_per_s: f64,
    /// Bandwidth on the slowest link: algorithm bandwidth times the collective's factor, in bytes
    /// per second.
    pub busbw_bytes_per_s: f64,
    /// Number of restarts.
    pub restarts: u32,
    /// Number of ranks in the ring, or number of groups for a collective between groups.
    pub ranks: u32,
    /// Completion times of the flows. `None` for collectives in groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowFigures>,
}

/// Flow completion times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowFigures {
    /// Number of flows that ended.
    pub count: u64,
    /// Number of flows abandoned for a restart, or because no path to their destination was left.
    pub cancelled: u64,
    /// The median.
    #[serde(rename = "fct_p50_ps")]
    pub fct_p50: Picoseconds,
    /// The 99th percentile.
    #[serde(rename = "fct_p99_ps")]
    pub fct_p99: Picoseconds,
    /// The maximum.
    #[serde(rename = "fct_max_ps")]
    pub fct_max: Picoseconds,
    /// Index of the first flow of which some packet was received more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_with_duplicates: Option<u64>,
}

impl FlowFigures {
    /// Returns the completion times of `flows`.
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
    /// The number of GPUs in the group.
    pub gpus: u32,
    /// Time when its last collective ended. `None` if work is left.
    #[serde(rename = "end_ps")]
    pub end: Option<SimTime>,
    /// Time when it ended in the run without faults. `None` for a group that exists only thanks to
    /// a repair.
    #[serde(rename = "end_without_faults_ps")]
    pub end_without_faults: Option<SimTime>,
    /// Delay of its end compared with the run without faults. `None` if work is left.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// Downtime caused by faults.
    #[serde(rename = "down_ps")]
    pub down: Picoseconds,
    /// Whether the group was lost and never re-formed.
    pub lost: bool,
    /// Whether every step and collective ended at the same picosecond as in the run without faults.
    /// `None` for a group without work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unaffected: Option<bool>,
    /// For a training job, when the group's last task in each step ended. `None` for a step that never ended.
    #[serde(rename = "step_ends_ps", skip_serializing_if = "Vec::is_empty")]
    pub step_ends: Vec<Option<SimTime>>,
}

/// Percentiles of times, by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// The median.
    #[serde(rename = "p50_ps")]
    pub p50: Picoseconds,
    /// The 99th percentile.
    #[serde(rename = "p99_ps")]
    pub p99: Picoseconds,
    /// The maximum.
    #[serde(rename = "max_ps")]
    pub max: Picoseconds,
}

impl Percentiles {
    /// Returns the percentiles of `times`, or `None` if it is empty.
    pub(crate) fn of(mut times: Vec<Picoseconds>) -> Option<Self> {
        times.sort_unstable();
        let at = |per_cent| percentile(&times, per_cent);
        Some(Self { p50: at(50)?, p99: at(99)?, max: at(100)? })
    }
}

/// Queue lengths that packets found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueFigures {
    /// Median queue length that packets found, in bytes.
    pub p50_bytes: Bytes,
    /// 99th percentile of the queue length that packets found, in bytes.
    pub p99_bytes: Bytes,
    /// The longest queue that a packet found, in bytes and to three digits.
    pub max_bytes: Bytes,
    /// Pause time summed over all ports, as defined in docs/metrics.md.
    #[serde(rename = "paused_ps")]
    pub paused: Picoseconds,
    /// Pause time of the port that was paused longest.
    #[serde(rename = "paused_max_ps")]
    pub paused_max: Picoseconds,
}

/// Shares of a run's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Share of the workers' time that is free of downtime due to faults.
    pub availability: f64,
    /// Time that the same work takes without faults, as a share of the workers' time.
    pub goodput: f64,
}

/// A measured time and the predictions of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// The measured time. `None` if some packets never arrived.
    #[serde(rename = "packets_ps")]
    pub packets: Option<Picoseconds>,
    /// The time measured without the scenario's faults.
    #[serde(rename = "packets_without_faults_ps")]
    pub packets_without_faults: Option<Picoseconds>,
    /// The prediction of the fluid model for the plan without faults. Over packet switches, the time of the fullest link by
    /// the paths that hashes gave the flows; `None` if switches choose by their queues.
    #[serde(rename = "fluid_ps")]
    pub fluid: Option<Picoseconds>,
    /// The planner's prediction.
    #[serde(rename = "closed_form_ps")]
    pub closed_form: Picoseconds,
}

/// One phase in one step. Times of the phase count from the end of its slack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseResult {
    /// Index of the step, from 0.
    pub step: u32,
    /// The name of the phase.
    pub name: String,
    /// Number of bytes to send.
    pub demand_bytes: Bytes,
    /// Number of circuits that carry traffic at the end.
    pub circuits_up: usize,
    /// Number of planned circuits.
    pub circuits_planned: usize,
    /// Time when the previous phase ended.
    #[serde(rename = "start_ps")]
    pub start: SimTime,
    /// Measured and predicted times.
    #[serde(flatten)]
    pub times: Times,
    /// Time from the first command of the previous change until the last circuit is up.
    #[serde(rename = "transition_ps")]
    pub transition: Picoseconds,
    /// Bytes of this phase that were sent more than once because circuits changed, at full size.
    pub resent_bytes: Bytes,
    /// Packets lost on links dedicated to phases, which are circuits and leaf interfaces.
    pub packets_lost: u64,
    /// Bytes that never had a path.
    pub held_bytes: Bytes,
    /// Whether the change before this phase was missed because the control plane was down.
    pub change_missed: bool,
}

/// One step: the sums over its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepResult {
    /// Index of the step, from 0.
    pub step: u32,
    /// Measured and predicted times.
    #[serde(flatten)]
    pub times: Times,
}

/// How the optical ports spent their time, as shares of all ports' time over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PortTime {
    /// Share spent drained, switching or training in a planned change.
    pub switching_share: f64,
    /// Share spent dark or drained because of a failure.
    pub fault_share: f64,
}

/// Metrics of the plan at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanResult {
    /// Number of GPUs working for jobs.
    pub gpus_used: u64,
    /// Share of all GPUs that are healthy but not in a complete ring.
    pub waste_ratio: f64,
    /// Waste ratio of an ideal switch.
    pub waste_ratio_lower_bound: f64,
    /// Share of inner data-parallel hops that cross top-of-rack switches.
    pub cross_tor_share: f64,
}

/// One expectation and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectationResult {
    /// The expectation as written.
    pub expect: String,
    /// Whether it held.
    pub passed: bool,
    /// The measured value, in words.
    pub value: String,
    /// The margin to the bound as a share of the bound (or of 1 if the bound is 0), which is
    /// negative if the bound was exceeded. `None` if the expectation has no measurable figure.
    pub margin: Option<f64>,
    /// Indices in the list of faults that exceeded the bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breached_by: Vec<usize>,
}
