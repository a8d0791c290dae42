// SPDX-License-Identifier: Apache-2.0
//! What a run found: the result document of `lightloom emulate`, one for every kind of scenario.

mod head;
mod links;
mod steps;

use std::fmt;
use std::sync::Arc;

use lightloom_engine::steady::Reuse;
use lightloom_engine::{FlowRecord, VertexId};
use lightloom_units::id::{GroupId, LeafId};
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

pub(crate) use head::Of;
pub use head::{Head, Packets, RUN_SCHEMA};
pub use links::{LinkClass, LinkResult, QueueResult, QueueRow};
pub use steps::{ClosedForm, Exposed, JobStep, Steps, WhyResult};

pub use crate::run::log::Stop;
pub use crate::run::{Waiting, WaitsFor};
use crate::scenario::InFlight;
pub use crate::stages::{CostModel, DaemonResult, Stage, StageName};

/// The result of a run. Everything but the two wall-clock figures depends on the scenario and the
/// seed alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What was run, for how long, and what became of the packets.
    #[serde(flatten)]
    pub head: Head,
    /// Packets that found no room, by priority, where switches keep priorities apart; acknowledgements and
    /// trimmed packets come last.
    pub drops_by_priority: Vec<u64>,
    /// How much of the run was spared, exactly; nothing where everything was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
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
    pub flows: Flows,
    /// What packets found in the queues of all links that were used.
    pub queues: Queues,
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
}

impl FlowRow {
    /// The row of a flow between vertices that users know as `name` calls them.
    pub(crate) fn new(flow: &FlowRecord, name: impl Fn(VertexId) -> Arc<str>) -> Self {
        Self {
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
    /// receive, such as `h3 receives`.
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
}

/// Flow completion times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flows {
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
}

impl Flows {
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
            count,
        }
    }
}

/// What one fault did, and how it was healed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultResult {
    /// What broke.
    pub parts: Vec<String>,
    /// How, as it is written.
    pub effect: String,
    /// When it broke. `None` if the run never came there.
    #[serde(rename = "at_ps")]
    pub at: Option<SimTime>,
    /// When the control plane knew.
    #[serde(rename = "detected_ps")]
    pub detected: Option<SimTime>,
    /// When the next plan was there.
    #[serde(rename = "replanned_ps")]
    pub replanned: Option<SimTime>,
    /// When the last transceiver was lit again and the last group went on; nothing if one never did.
    #[serde(rename = "restored_ps")]
    pub restored: Option<SimTime>,
    /// When the part worked again. `None` if it never did.
    #[serde(rename = "repaired_ps")]
    pub repaired: Option<SimTime>,
    /// Bundles that switched.
    pub bundles_switched: usize,
    /// Shortest and longest time a bundle was dark.
    #[serde(rename = "dark_ps")]
    pub dark: Option<[Picoseconds; 2]>,
    /// Groups whose collectives it stopped or delayed.
    pub groups_affected: Vec<GroupId>,
    /// Groups of jobs that train which end every step at the same picosecond in a run without this fault. `None` if that
    /// was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_unaffected: Option<Vec<GroupId>>,
    /// What the next two figures count: hosts where nothing says how many GPUs a host has.
    #[serde(default, skip_serializing_if = "Counted::is_gpus")]
    pub counted: Counted,
    /// GPUs of these groups.
    pub gpus_affected: u64,
    /// GPUs that went out of service: those of the part that broke, and of groups that were lost.
    pub gpus_lost: u64,
    /// How much later than without faults the slowest of these groups, or of the workloads it moved, ended; nothing
    /// if one of them has work left.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// What the daemon did about it, stage by stage; empty where the control plane is assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Stage>,
    /// What it did to traffic between hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficImpact>,
    /// What it did to the phases of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseImpact>,
}

/// What stands at the ends of a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// GPUs of a fabric.
    #[default]
    Gpus,
    /// Hosts of a network written in place.
    Hosts,
}

impl Counted {
    fn is_gpus(&self) -> bool {
        *self == Self::Gpus
    }

    fn of(self, number: u64) -> String {
        match self {
            Self::Gpus => count(number, "GPU", "GPUs"),
            Self::Hosts => count(number, "host", "hosts"),
        }
    }
}

/// What a fault did to the phases of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseImpact {
    /// Circuits that lost their light or their test because of it, over the whole run.
    pub circuits_lost: usize,
    /// Changes that nobody was there to command.
    pub changes_missed: u32,
    /// Leaves at the ends of these circuits.
    pub leaves_affected: Vec<LeafId>,
    /// Packets lost with this fault alone, beyond those without any.
    pub packets_lost: u64,
    /// Phases that took at least a thousandth longer with this fault alone than without, as
    /// `step/phase`.
    pub phases_slowed: Vec<String>,
    /// How much longer all steps took with this fault alone. `None` if they never ended.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
}

/// What a fault did to flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficImpact {
    /// Flows that were on its links when it happened.
    pub flows_hit: u64,
    /// Flows that ended at another picosecond than without faults, or not at all, for it.
    pub flows_moved: u64,
    /// Flows that were given up, for nothing leads around it.
    pub flows_given_up: u64,
    /// Workloads of the flows that moved.
    pub workloads: Vec<String>,
    /// Hosts at the ends of the flows that moved.
    pub hosts: Vec<String>,
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
        let at = |per_cent: usize| times[(times.len() * per_cent).div_ceil(100).max(1) - 1];
        (!times.is_empty()).then(|| Self { p50: at(50), p99: at(99), max: at(100) })
    }
}

/// What packets found in queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queues {
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
    /// Whether nobody was there to command the change before it.
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

impl FaultResult {
    /// What broke, as it is written.
    #[must_use]
    pub fn what(&self) -> String {
        self.parts.join(", ")
    }
}

/// One line: when it was known, planned around and restored, and what it affected.
impl fmt::Display for FaultResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what();
        let effect =
            if self.effect == "down" { String::new() } else { format!(" ({})", self.effect) };
        let Some(at) = self.at else { return write!(f, "{what}{effect}: never reached") };
        write!(f, "{what}{effect} at {at}: ")?;
        let since = |time: Option<SimTime>| {
            time.map_or("never".to_owned(), |t| format!("+{}", t.since(at)))
        };
        let groups: Vec<String> = self.groups_affected.iter().map(ToString::to_string).collect();
        let is_planned = self.replanned.is_some() && self.traffic.is_none()
            || self.bundles_switched > 0
            || !groups.is_empty();
        match (is_planned, self.restored) {
            (true, restored) => write!(
                f,
                "detected {}, replanned {}, restored {}; {}",
                since(self.detected),
                since(self.replanned),
                since(restored),
                count(self.bundles_switched as u64, "bundle switched", "bundles switched"),
            )?,
            (false, Some(restored)) => write!(f, "restored +{}", restored.since(at))?,
            (false, None) => f.write_str("not restored")?,
        }
        if let Some([least, most]) = self.dark {
            write!(f, ", dark for {least} to {most}")?;
        }
        if !groups.is_empty() {
            let gpus = count(self.gpus_affected, "GPU", "GPUs");
            write!(f, "; affected {} ({gpus})", groups.join(" "))?;
        } else if self.traffic.is_none() && self.phases.is_none() {
            f.write_str("; affected no group")?;
        }
        if let Some(traffic) = &self.traffic {
            write!(f, "; {traffic}")?;
        }
        if let Some(phases) = &self.phases {
            write!(f, "; {phases}")?;
        }
        if self.gpus_lost > 0 {
            write!(f, "; {} out of service", self.counted.of(self.gpus_lost))?;
        }
        match self.delay {
            Some(Picoseconds(0)) => f.write_str("; nothing ended later"),
            Some(delay) => write!(f, "; {delay} late at most"),
            None => f.write_str("; work left undone"),
        }
    }
}

impl fmt::Display for TrafficImpact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = count(self.hosts.len() as u64, "host", "hosts");
        let parts = [
            (self.flows_hit, format!("{} on its links", count(self.flows_hit, "flow", "flows"))),
            (
                self.flows_moved,
                format!("{} ended at another time", count(self.flows_moved, "flow", "flows")),
            ),
            (
                self.flows_given_up,
                format!("{} given up", count(self.flows_given_up, "flow", "flows")),
            ),
            (
                self.workloads.len() as u64,
                format!("affected {hosts} of {}", self.workloads.join(", ")),
            ),
        ];
        what_happened(f, parts, "affected no flow")
    }
}

impl fmt::Display for PhaseImpact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [circuits, leaves, changes] = [
            self.circuits_lost as u64,
            self.leaves_affected.len() as u64,
            u64::from(self.changes_missed),
        ];
        let slowed = self.phases_slowed.len() as u64;
        let parts = [
            (circuits, format!("{} lost", count(circuits, "circuit", "circuits"))),
            (leaves, format!("{} affected", count(leaves, "leaf", "leaves"))),
            (changes, format!("{} of circuits missed", count(changes, "change", "changes"))),
            (self.packets_lost, format!("{} lost", count(self.packets_lost, "packet", "packets"))),
            (slowed, format!("slowed {}", self.phases_slowed.join(", "))),
        ];
        what_happened(f, parts, "affected no phase")
    }
}

/// Of what can happen, what did; `nothing` where none of it did.
fn what_happened<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    parts: [(u64, String); N],
    nothing: &str,
) -> fmt::Result {
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts.map(|(_, words)| words).collect();
    f.write_str(&if parts.is_empty() { nothing.to_owned() } else { parts.join(", ") })
}

/// A number with its noun.
fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
