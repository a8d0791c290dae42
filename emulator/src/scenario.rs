//! Scenarios: a fabric, what its jobs do, what breaks when, and what is expected of the run.
//!
//! ```text
//!   scenario.yaml ─▶ Scenario ─┐                     ┌─▶ story with faults ────┐
//!   fabric.yaml ──▶ Fabric ────┴─▶ plan, check ─▶ run┤                         ├─▶ Outcome
//!                                                    └─▶ story without faults ─┘
//! ```
//!
//! The same scenario is run twice, once without its faults: what a fault did is what differs
//! between the two, to the picosecond.

mod collectives;
pub(crate) mod congestion_file;
mod expectation;
pub(crate) mod expectation_file;
mod fault;
pub(crate) mod fault_file;
pub(crate) mod file;
mod groups;
pub(crate) mod head;
mod installed;
pub(crate) mod judge;
pub(crate) mod links;
pub(crate) mod neighbours;
pub(crate) mod outcome;
pub(crate) mod replay_file;
mod story;
mod sweep;
pub(crate) mod switches;
pub(crate) mod transport_file;

use std::sync::Arc;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultError, FaultSet, Part};
use lightloom_fabric::id::NodeId;
use lightloom_fabric::plan::Plan;
use lightloom_fabric::seed::Seed;
use lightloom_fabric::trace::{FaultTrace, Health, NodesError, Timeline, TraceTime};
use lightloom_fabric::units::{Bytes, Picoseconds, SimTime};
use lightloom_planner::check::{Verdict, Violation, check};
use lightloom_planner::khop::{self, Layout, Method, PlanError, to_document};

pub use congestion_file::{CongestionFile, DcqcnFile, DctcpFile, NsccFile, SwiftFile};
pub use expectation::{Comparison, Expectation, ExpectationError, Figure};
pub use fault::{Effect, Fault, Strike, Target, TargetError, TargetNameError};
pub use fault_file::{FaultListFile, load as load_faults};
pub use file::{Loaded, ScenarioFile, codes, load};
pub use head::{Head, Packets};
pub use installed::{Carrier, DCN, HBD, Installed};
pub use links::{LinkClass, LinkResult, QueueResult};
pub use neighbours::{Neighbour, ReadNeighbour};
pub use outcome::{
    CollectiveResult, ExpectationResult, FaultResult, FlowEnd, FlowRow, Flows, GroupResult,
    Outcome, PlanResult, Stop, TrafficFelt,
};
pub use story::Progress;
pub use sweep::{
    MergeError, SWEEP_SCHEMA, SeedRange, SeedRangeError, SeedRun, Shard, ShardError, Subject,
    Sweep, Tally,
};
pub use switches::{Switches, SwitchesFile};
pub use transport_file::TransportFile;

use crate::capture::Watch;
use crate::collective::{self, CollectiveError, Directions};
use crate::engine::{EngineError, NetworkError, VertexId};
use crate::steady::{Difference, Islands};
use crate::traffic::{TrafficError, Workload};
use crate::transport::{Balance, Transport};

/// A run to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name in reports.
    pub name: String,
    /// The fabric file, relative to the scenario file.
    pub fabric: String,
    /// Seed of every random draw.
    pub seed: Seed,
    /// What is broken from the start.
    pub broken: Vec<Part>,
    /// Where more of what is broken from the start is to be read.
    pub broken_by: Option<TraceDay>,
    /// What every job does, in order.
    pub collectives: Vec<Collective>,
    /// What runs beside them on the data-centre network.
    pub workloads: Vec<Workload>,
    /// What breaks during the run, as far as the seed lets it.
    pub faults: Vec<Fault>,
    /// Days of a fault trace, as more of what breaks.
    pub replay: Option<Replay>,
    /// How fast the control plane is.
    pub control: Control,
    /// How data is cut into packets and repaired.
    pub transport: Transport,
    /// How the switches of the data-centre network queue.
    pub switches: Switches,
    /// How long a host takes from a packet's last bit to what it does because of it.
    pub host_delay: Picoseconds,
    /// The run is stopped here.
    pub time_limit: SimTime,
    /// Whether the scenario asks for that, rather than nobody having said anything.
    pub ends_at_limit: bool,
    /// The run is stopped after so many packets on a wire.
    pub packet_limit: u64,
    /// What must be true in the end.
    pub expectations: Vec<Expectation>,
}

/// One moment of a fault trace: the nodes it has out are broken from the start.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceDay {
    /// The trace.
    pub trace: Arc<FaultTrace>,
    /// The day, counted from its start.
    pub day: f64,
}

/// Some days of a fault trace, in compressed time.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// The trace.
    pub trace: Arc<FaultTrace>,
    /// The first day; what is broken then is broken from the start.
    pub from_day: f64,
    /// Where it ends.
    pub to_day: f64,
    /// Simulated time of one day.
    pub day_takes: Picoseconds,
}

/// A collective operation that every group of every job performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Its name in reports.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// The buffer of one rank.
    pub bytes: Bytes,
    /// How often, one after the other.
    pub repeat: u32,
    /// Its priority at switches with real queues.
    pub priority: u8,
    /// Which ways round the ring of a group.
    pub directions: Directions,
}

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everybody in the group ends with the sum.
    AllReduce,
    /// Everybody in the group ends with its part of the sum.
    ReduceScatter,
    /// Everybody in the group ends with all parts.
    AllGather,
    /// Equal ranks of all groups of the job end with the sum.
    DataParallelAllReduce,
}

impl Kind {
    /// What the ring of one group computes; nothing for what runs between groups.
    #[must_use]
    pub const fn of_group(self) -> Option<collective::Kind> {
        match self {
            Self::AllReduce => Some(collective::Kind::AllReduce),
            Self::ReduceScatter => Some(collective::Kind::ReduceScatter),
            Self::AllGather => Some(collective::Kind::AllGather),
            Self::DataParallelAllReduce => None,
        }
    }
    /// How it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.of_group() {
            Some(kind) => kind.name(),
            None => "data-parallel-all-reduce",
        }
    }
    /// Whether it runs between groups rather than inside one.
    #[must_use]
    pub const fn is_between_groups(self) -> bool {
        self.of_group().is_none()
    }
}

/// How fast the control plane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// From the fault until the control plane knows.
    pub detection_delay: Picoseconds,
    /// From there until the next plan is there.
    pub planning_delay: Picoseconds,
}

impl Default for Control {
    /// One millisecond each: assumptions.
    fn default() -> Self {
        let millisecond = Picoseconds::from_millis(1);
        Self { detection_delay: millisecond, planning_delay: millisecond }
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A broken part that does not exist.
    #[error(transparent)]
    Part(#[from] FaultError),
    /// No plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan is wrong, which is a mistake of this program.
    #[error("the plan is not sound (a mistake in the planner, please report it): {}", .0[0])]
    Unsound(Vec<Violation>),
    /// A fabric that cannot be emulated.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The engine refuses something.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What was spared would have come out otherwise, which is a mistake of this program.
    #[error("the exact shortcut is not exact (a mistake in the engine, please report it): {0}")]
    NotTheSame(#[from] Difference),
    /// A proof was asked for where nothing is spared.
    #[error("there is nothing to prove: {0}, so everything is simulated anyway")]
    NothingSpared(&'static str),
    /// A collective that cannot be laid out.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// What runs beside the rings cannot be run.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A target that does not exist.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A trace that does not fit the fabric.
    #[error("the fault trace does not fit this fabric: {0}")]
    Trace(#[from] NodesError),
    /// An expectation about a group that does not exist.
    #[error("the scenario expects something of {group}, but the plan has {groups} groups")]
    NoSuchGroup {
        /// The group.
        group: lightloom_fabric::id::GroupId,
        /// How many there are.
        groups: usize,
    },
    /// No job, or no group of it.
    #[error("no group of any job can be formed: give the fabric a job, or fewer faults")]
    NothingRuns,
}

/// Where a run begins: what is broken, what will break, and the plan for it.
#[derive(Clone, Debug)]
pub struct Start {
    /// Broken from the start.
    pub faults: FaultSet,
    /// What the seed lets happen; what a replay has broken from the start comes last.
    pub strikes: Vec<Strike>,
    /// The plan, as the fabric reads it.
    pub plan: Plan,
    /// What the checker found.
    pub verdict: Verdict,
    layout: Layout,
}

impl Start {
    /// Groups of jobs in the plan.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.layout.groups.iter().filter(|group| group.job.is_some()).count()
    }

    /// What runs beside the rings, on the nodes that work.
    fn workloads(&self, fabric: &Fabric, scenario: &Scenario) -> Vec<Workload> {
        // GPUs are the first vertices of the network, in order.
        let node = |host: &VertexId| NodeId(host.0 / u32::from(fabric.hbd.gpus_per_node()));
        let works = |host: &VertexId| !self.faults.nodes.contains(&node(host));
        let mut workloads = scenario.workloads.clone();
        workloads.iter_mut().for_each(|workload| workload.hosts.retain(works));
        workloads
    }
}

/// Draws the faults of `scenario` and plans `fabric` as it is at the start; the plan is proven.
///
/// # Errors
/// If a part does not exist, the trace does not fit, or no group can be formed.
pub fn plan(fabric: &Fabric, scenario: &Scenario) -> Result<Start, ScenarioError> {
    let mut faults = FaultSet::of(&fabric.hbd, scenario.broken.iter().copied())?;
    if let Some(TraceDay { trace, day }) = &scenario.broken_by {
        let timeline = on_nodes(fabric, scenario, trace)?;
        for node in timeline.faulty_at(TraceTime::from_days(*day)) {
            faults.insert(&fabric.hbd, Part::Node(node))?;
        }
    }
    let from_start = scenario.replay.as_ref().map(|replay| replay.strikes(fabric, scenario));
    let from_start = from_start.transpose()?.unwrap_or_default();
    let mut strikes = drawn(fabric, scenario, &faults)?;
    let (old, new): (Vec<Strike>, Vec<Strike>) =
        from_start.into_iter().partition(|strike| strike.from_start);
    strikes.extend(new);
    for strike in old {
        for part in strike.parts(fabric) {
            faults.insert(&fabric.hbd, part)?;
        }
        strikes.push(strike);
    }
    let layout = khop::plan(fabric, &faults, Method::Scan)?;
    let plan = to_document(fabric, &faults, scenario.seed, &layout);
    let verdict = check(fabric, &faults, &plan).map_err(ScenarioError::Unsound)?;
    if layout.groups.iter().all(|group| group.job.is_none()) {
        return Err(ScenarioError::NothingRuns);
    }
    Ok(Start { faults, strikes, plan, verdict, layout })
}

fn on_nodes(
    fabric: &Fabric,
    scenario: &Scenario,
    trace: &FaultTrace,
) -> Result<Timeline, NodesError> {
    let per_node = u32::from(fabric.hbd.gpus_per_node());
    trace.on_nodes(fabric.hbd.nodes(), per_node, scenario.seed, 0)
}

/// What the seed makes of the declared faults.
fn drawn(
    fabric: &Fabric,
    scenario: &Scenario,
    faults: &FaultSet,
) -> Result<Vec<Strike>, ScenarioError> {
    let working: Vec<NodeId> =
        (0..fabric.hbd.nodes()).map(NodeId).filter(|node| !faults.nodes.contains(node)).collect();
    let mut strikes = Vec::new();
    for (index, fault) in scenario.faults.iter().enumerate() {
        for target in &fault.targets {
            target.require(fabric)?;
        }
        strikes.extend(fault.draw(scenario.seed, index as u64, &working));
    }
    Ok(strikes)
}

/// A node that a replayed trace has out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) node: NodeId,
    pub(crate) at: SimTime,
    pub(crate) repaired_at: Option<SimTime>,
    /// It was out already on the first day.
    pub(crate) from_start: bool,
}

impl Outage {
    /// The fault of these parts, which are those of the node.
    pub(crate) fn of<T>(self, targets: Vec<T>) -> Strike<T> {
        let Self { at, repaired_at, from_start, .. } = self;
        Strike { targets, effect: Effect::Down, at, repaired_at, from_start }
    }
}

impl Replay {
    /// Every outage between the two days, in compressed time, on so many nodes of so many GPUs.
    pub(crate) fn outages(
        &self,
        nodes: u32,
        gpus_per_node: u32,
        seed: Seed,
    ) -> Result<Vec<Outage>, NodesError> {
        let timeline = self.trace.on_nodes(nodes, gpus_per_node, seed, 0)?;
        let (from, to) = (TraceTime::from_days(self.from_day), TraceTime::from_days(self.to_day));
        let when = |at: TraceTime| {
            let days = at.ms_since(from) as f64 / 86_400_000.0;
            SimTime((days * self.day_takes.get() as f64) as u64)
        };
        let out = |node, at, from_start| Outage { node, at, repaired_at: None, from_start };
        let broken = timeline.faulty_at(from).into_iter();
        let mut outages: Vec<Outage> = broken.map(|node| out(node, SimTime::START, true)).collect();
        let inside = timeline.changes().iter().filter(|change| change.at > from && change.at < to);
        for change in inside {
            let at = when(change.at);
            match change.health {
                Health::Faulty => outages.push(out(change.node, at, false)),
                Health::Healthy => {
                    let open = outages.iter_mut().rev().find(|outage| outage.node == change.node);
                    open.expect("what comes back has gone").repaired_at = Some(at);
                }
            }
        }
        Ok(outages)
    }

    fn strikes(&self, fabric: &Fabric, scenario: &Scenario) -> Result<Vec<Strike>, ScenarioError> {
        let per_node = u32::from(fabric.hbd.gpus_per_node());
        let outages = self.outages(fabric.hbd.nodes(), per_node, scenario.seed)?;
        let strike = |outage: Outage| outage.of(vec![Target::Part(Part::Node(outage.node))]);
        Ok(outages.into_iter().map(strike).collect())
    }
}

/// A run that has come to its end: its result, and the engine to look into.
pub struct Finished {
    /// The result.
    pub outcome: Outcome,
    /// The engine after the run with faults.
    pub engine: Islands<Watch>,
    /// What its links are.
    pub installed: Installed,
}

/// Plans `fabric` and runs `scenario` on it, with its faults and without.
///
/// # Errors
/// If the scenario does not fit the fabric, or no plan can be made.
pub fn run(
    fabric: &Fabric,
    scenario: &Scenario,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Outcome, ScenarioError> {
    let start = plan(fabric, scenario)?;
    run_from(
        fabric,
        scenario,
        &start,
        Settings { threads, watch: Watch::default(), sharing: Sharing::Reuse },
        progress,
    )
    .map(|finished| finished.outcome)
}

/// How to run a scenario, besides what it says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Threads; the result does not depend on it.
    pub threads: usize,
    /// What to look at.
    pub watch: Watch,
    /// Whether equal parts are simulated once; the result does not depend on it.
    pub sharing: Sharing,
}

/// Whether parts of the run that are the same are simulated once; see [`steady`](crate::steady).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Where that is exact.
    #[default]
    Reuse,
    /// The same, and the whole is simulated too: every arrival is compared.
    Proven,
    /// Everything is simulated.
    Whole,
}

impl Settings {
    /// Why nothing can be shared, if so: rings of groups can, while nothing is drawn by the name of a link and
    /// nobody looks at single packets.
    fn whole_because(&self, scenario: &Scenario, strikes: &[Strike]) -> Option<&'static str> {
        let hits = |what: fn(&Effect) -> bool| strikes.iter().any(|strike| what(&strike.effect));
        if scenario.collectives.iter().any(|one| one.kind.is_between_groups()) {
            Some("collectives between groups share links")
        } else if !scenario.workloads.is_empty() {
            Some("traffic on the data-centre network shares links")
        } else if hits(|effect| matches!(effect, Effect::BitErrors(_))) {
            Some("bit errors are drawn for each link by itself")
        } else if hits(|effect| matches!(effect, Effect::PauseStorm(_))) {
            Some("pauses spread")
        } else if self.watch.keeps_packets() {
            Some("single packets are looked at")
        } else if scenario.transport.balance != Balance::PerFlow {
            Some("flows take several paths, drawn for each by itself")
        } else {
            None
        }
    }

    /// What can be shared, given whether a proof was asked for.
    fn sharing(&self, scenario: &Scenario, strikes: &[Strike]) -> Result<Sharing, ScenarioError> {
        match (self.whole_because(scenario, strikes), self.sharing) {
            (Some(reason), Sharing::Proven) => Err(ScenarioError::NothingSpared(reason)),
            (Some(_), _) => Ok(Sharing::Whole),
            (None, sharing) => Ok(sharing),
        }
    }
}

/// Runs `scenario` from its start on, with its faults and without.
///
/// # Errors
/// If a later plan cannot be made, or the engine refuses something.
pub fn run_from(
    fabric: &Fabric,
    scenario: &Scenario,
    start: &Start,
    settings: Settings,
    progress: &mut dyn Progress,
) -> Result<Finished, ScenarioError> {
    judge::require_groups(scenario, &start.layout)?;
    let sharing = settings.sharing(scenario, &start.strikes)?;
    let Settings { threads, watch, .. } = settings;
    let workloads = start.workloads(fabric, scenario);
    let begin = |strikes, watch| story::Beginning {
        workloads: &workloads,
        sharing,
        strikes,
        faults: start.faults.clone(),
        layout: start.layout.clone(),
        watch,
        threads,
    };
    let told = story::tell(fabric, scenario, begin(&start.strikes, watch), progress)?;
    if sharing == Sharing::Proven && told.engine.prove()?.is_none() {
        return Err(ScenarioError::NothingSpared("parts of the run grew together"));
    }
    let undisturbed = if start.strikes.is_empty() {
        None
    } else {
        Some(story::tell(fabric, scenario, begin(&[], Watch::default()), progress)?)
    };
    let strikes = &start.strikes;
    let run = judge::Run { fabric, scenario, workloads: &workloads, strikes, threads };
    Ok(judge::finish(&run, told, undisturbed))
}

/// Holds a layout against the independent checker.
fn prove(fabric: &Fabric, faults: &FaultSet, layout: &Layout) -> Result<(), ScenarioError> {
    let document = to_document(fabric, faults, Seed(0), layout);
    check(fabric, faults, &document).map(|_| ()).map_err(ScenarioError::Unsound)
}
