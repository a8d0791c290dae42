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
mod replay;
pub(crate) mod replay_file;
mod run;
mod start;
mod story;
mod sweep;
pub(crate) mod switches;
pub(crate) mod transport_file;

use lightloom_fabric::fault::{FaultError, Part};
use lightloom_fabric::trace::NodesError;
use lightloom_planner::check::Violation;
use lightloom_planner::khop::PlanError;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};

pub use congestion_file::{CongestionFile, DcqcnFile, DctcpFile, NsccFile, SwiftFile};
pub use expectation::{Comparison, Expectation, ExpectationError, Figure};
pub use fault::{Effect, Fault, Strike, Target, TargetError, TargetNameError};
pub use fault_file::{FaultListFile, load as load_faults};
pub use file::{Loaded, ScenarioFile, codes, load};
pub use head::{Head, Packets, RUN_SCHEMA};
pub use installed::{Carrier, DCN, HBD, Installed};
use lightloom_collective::{self as collective, Directions};
use lightloom_engine::collective::StartError;
use lightloom_engine::steady::Difference;
use lightloom_engine::transport::Transport;
use lightloom_engine::{EngineError, NetworkError};
pub use links::{LinkClass, LinkResult, QueueResult};
pub use neighbours::{Neighbour, ReadNeighbour};
pub use outcome::{
    CollectiveResult, ExpectationResult, FaultResult, FlowEnd, FlowRow, Flows, GroupResult,
    Outcome, PlanResult, Stop, TrafficFelt,
};
pub use replay::{Replay, TraceDay};
pub use run::{Finished, Settings, Sharing, run, run_from};
pub use start::{Start, plan};
pub use story::Progress;
pub use sweep::{
    MergeError, SWEEP_SCHEMA, SeedRange, SeedRangeError, SeedRun, Shard, ShardError, Subject,
    Sweep, Tally,
};
pub use switches::{Switches, SwitchesFile};
pub use transport_file::TransportFile;

use crate::traffic::{TrafficError, Workload};

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
    Collective(#[from] StartError),
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
        group: lightloom_units::id::GroupId,
        /// How many there are.
        groups: usize,
    },
    /// No job, or no group of it.
    #[error("no group of any job can be formed: give the fabric a job, or fewer faults")]
    NothingRuns,
}
