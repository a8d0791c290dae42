//! What a run of a scenario found: the result document of `lightloom emulate`.

use std::fmt;
use std::sync::Arc;

use lightloom_engine::steady::Reuse;
use lightloom_engine::{Engine, FlowRecord, LinkId, Probe, VertexId};
use lightloom_units::id::{GpuId, GroupId};
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

use super::head::Head;
use super::links::LinkClass;

/// The result of a run. Everything but the two wall-clock figures depends on the scenario and the
/// seed alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What was run, for how long, and what became of the packets.
    #[serde(flatten)]
    pub head: Head,
    /// Packets that found no room, by priority, where switches tell priorities apart; acknowledgements and
    /// trimmed packets come last.
    pub drops_by_priority: Vec<u64>,
    /// How much of the run was spared, exactly; nothing where everything was simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// Every collective of every group.
    pub collectives: Vec<CollectiveResult>,
    /// Flow completion times.
    pub flows: Flows,
    /// What each fault did.
    pub faults: Vec<FaultResult>,
    /// Every group of every job: what it lost, and by how much it was late.
    pub groups: Vec<GroupResult>,
    /// What the plan is worth at the end; nothing on a network that is not planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanResult>,
    /// Share of the groups' time, weighted by their GPUs, in which no fault kept them still.
    pub availability: f64,
    /// Share of the groups' time, weighted by their GPUs, that the same work takes without faults.
    pub goodput: f64,
    /// How busy the links were, and how full their queues.
    pub links: Vec<LinkClass>,
    /// Why the run was stopped before its work was done; nothing when it came to its end.
    pub stop: Option<Stop>,
    /// Whether it was stopped by a limit that its scenario does not write: it would never have ended.
    pub never_ended: bool,
    /// What was waiting for what when it was stopped.
    pub waiting: Vec<String>,
    /// What was expected, and whether it came true.
    pub expectations: Vec<ExpectationResult>,
    /// Every flow, for `--flows-out`.
    #[serde(skip)]
    pub flow_records: Vec<FlowRow<FlowEnd>>,
}

/// An end of a flow by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// A GPU of a fabric.
    Gpu(GpuId),
    /// A host of a network.
    Host(Arc<str>),
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(gpu) => gpu.fmt(f),
            Self::Host(name) => f.write_str(name),
        }
    }
}

/// One flow, as `--flows-out` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRow<End> {
    /// Where it came from.
    pub source: End,
    /// Where it went to.
    pub destination: End,
    /// Its size in the run.
    pub size: Bytes,
    /// When it could begin.
    pub start: SimTime,
    /// When its last byte arrived; nothing if it was given up.
    pub end: Option<SimTime>,
}

impl<End> FlowRow<End> {
    /// The row of a flow between vertices that users know as `name` calls them.
    pub(crate) fn new(flow: &FlowRecord, name: impl Fn(VertexId) -> End) -> Self {
        Self {
            source: name(flow.source),
            destination: name(flow.destination),
            size: flow.size,
            start: flow.start,
            end: flow.end,
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
pub struct CollectiveResult {
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
        let mut times: Vec<Picoseconds> =
            flows.iter().filter_map(|flow| flow.end.map(|end| end.since(flow.start))).collect();
        times.sort_unstable();
        // Nearest rank: the smallest value that so many of all do not exceed.
        let at = |per_cent: usize| {
            let rank = (times.len() * per_cent).div_ceil(100);
            times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        Self {
            count: times.len() as u64,
            cancelled: flows.iter().filter(|flow| flow.cancelled).count() as u64,
            fct_p50: at(50),
            fct_p99: at(99),
            fct_max: at(100),
        }
    }
}

/// What one fault did, and how it was healed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultResult {
    /// What broke.
    pub what: String,
    /// How: `down`, `flapping`, `stuck`, `rate`, `bit_errors`, `slower`.
    pub effect: String,
    /// When it broke.
    #[serde(rename = "at_ps")]
    pub at: SimTime,
    /// When the control plane knew.
    #[serde(rename = "detected_ps")]
    pub detected: Option<SimTime>,
    /// When the next plan was there.
    #[serde(rename = "replanned_ps")]
    pub replanned: Option<SimTime>,
    /// When the last transceiver was lit again and the last group went on; nothing if one never did.
    #[serde(rename = "restored_ps")]
    pub restored: Option<SimTime>,
    /// Bundles that switched.
    pub bundles_switched: usize,
    /// Shortest and longest time a bundle was dark.
    #[serde(rename = "dark_ps")]
    pub dark: Option<[Picoseconds; 2]>,
    /// Groups whose collectives it stopped or delayed.
    pub groups_affected: Vec<GroupId>,
    /// GPUs of these groups.
    pub gpus_affected: u64,
    /// GPUs that went out of service: those of the part that broke, and of groups that were lost.
    pub gpus_lost: u64,
    /// How much later than without faults the slowest of these groups, or of the workloads it moved, ended; nothing
    /// if one of them has work left.
    #[serde(rename = "delay_ps")]
    pub delay: Option<Picoseconds>,
    /// What it did to flows; on a network that is not planned, and beside the rings of a fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficFelt>,
    /// What it did, in words; in a phase sequence, which has neither groups nor workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story: Option<String>,
}

/// What a fault did to flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficFelt {
    /// Flows that were on its links when it struck.
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
}

/// Why a run was stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The time limit of the scenario.
    Time {
        /// The limit.
        #[serde(rename = "limit_ps")]
        limit: SimTime,
    },
    /// The packet limit of the scenario.
    Packets {
        /// The limit, in packets put on a wire.
        limit: u64,
    },
    /// Nothing is under way or will be repaired, and there is work left.
    Standstill,
    /// Ports that pause each other in a circle, for ever.
    Deadlock {
        /// Each waits for the next one, the last for the first.
        ports: Vec<String>,
    },
}

impl Stop {
    /// The circle of pauses that an engine is caught in, if there is one.
    pub(crate) fn of_deadlock<P: Probe>(
        engine: &Engine<P>,
        name: impl Fn(LinkId) -> String,
    ) -> Option<Self> {
        let ports = engine.deadlock()?.into_iter().map(name).collect();
        Some(Self::Deadlock { ports })
    }

    /// Whether nobody asked for it: the run would never have ended.
    pub(crate) fn is_unwanted(&self, ends_at_limit: bool) -> bool {
        match self {
            Self::Time { .. } => !ends_at_limit,
            Self::Packets { .. } | Self::Standstill | Self::Deadlock { .. } => true,
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time { limit } => write!(f, "its time limit of {limit}"),
            Self::Packets { limit } => write!(f, "its limit of {limit} packet-hops"),
            Self::Standstill => f.write_str("a standstill"),
            Self::Deadlock { ports } => {
                write!(
                    f,
                    "a deadlock: these ports pause each other, {} and again",
                    ports.join(", ")
                )
            }
        }
    }
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

/// One line: when it was known, planned around and healed, and what felt it.
impl fmt::Display for FaultResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(story) = &self.story {
            return f.write_str(story);
        }
        // Where no group felt it, or there is none, what it did to flows is all there is to tell.
        if let Some(traffic) = self.traffic.as_ref().filter(|_| self.groups_affected.is_empty()) {
            return self.tell_traffic(traffic, f);
        }
        let since = |at: Option<SimTime>| {
            at.map_or("never".to_owned(), |at| format!("+{}", at.since(self.at)))
        };
        write!(
            f,
            "{}{} at {}: detected {}, replanned {}, restored {}; {}",
            self.what,
            if self.effect == "down" { String::new() } else { format!(" ({})", self.effect) },
            self.at,
            since(self.detected),
            since(self.replanned),
            since(self.restored),
            count(self.bundles_switched as u64, "bundle switched", "bundles switched"),
        )?;
        if let Some([least, most]) = self.dark {
            write!(f, ", dark for {least} to {most}")?;
        }
        let groups: Vec<String> = self.groups_affected.iter().map(ToString::to_string).collect();
        let groups = if groups.is_empty() { "no group".to_owned() } else { groups.join(" ") };
        write!(
            f,
            "; felt by {groups} ({}; {} out of service)",
            count(self.gpus_affected, "GPU", "GPUs"),
            self.gpus_lost
        )?;
        match (self.delay, self.groups_affected.is_empty()) {
            (_, true) => Ok(()),
            (Some(delay), _) => write!(f, ", {delay} late at most"),
            (None, _) => write!(f, ", work left undone"),
        }?;
        self.traffic.as_ref().map_or(Ok(()), |traffic| write!(f, "; {traffic}"))
    }
}

impl FaultResult {
    /// The same where nothing is planned: when flows were led around it, and what it did to them.
    fn tell_traffic(&self, felt: &TrafficFelt, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect =
            if self.effect == "down" { String::new() } else { format!(" ({})", self.effect) };
        write!(f, "{}{effect} at {}: ", self.what, self.at)?;
        match self.restored {
            Some(restored) => write!(f, "restored +{}; ", restored.since(self.at))?,
            None => f.write_str("not restored; ")?,
        }
        write!(f, "{felt}; {} out of service", self.gpus_lost)?;
        match self.delay {
            Some(delay) => write!(f, ", {delay} late at most"),
            None => f.write_str(", work left undone"),
        }
    }
}

impl fmt::Display for TrafficFelt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on its links, {} moved, {} given up; felt by {} of {}",
            count(self.flows_hit, "flow", "flows"),
            self.flows_moved,
            self.flows_given_up,
            count(self.hosts.len() as u64, "host", "hosts"),
            match self.workloads.as_slice() {
                [] => "no workload".to_owned(),
                names => names.join(", "),
            },
        )
    }
}

/// A number with its noun.
fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
