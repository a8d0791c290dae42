// SPDX-License-Identifier: Apache-2.0
//! Scenarios: what is run, on what, what breaks when, and what is expected of the run.

mod daemon;
mod event;
mod expectation;
mod fault;
pub mod file;
mod flow_sizes;
mod flow_table;
mod losses;
mod pool;
mod replay;
mod restart;
mod span;
mod start;
mod traffic;
mod train;

use std::sync::Arc;

use lightloom_collective::{self as collective, Directions};
use lightloom_engine::transport::Transport;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::plan::Plan;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::Serialize;

pub use daemon::{DaemonSetup, SwitchLanguage};
pub use event::{FaultEvent, When};
pub use expectation::{Comparison, Expectation, ExpectationError, Figure, FigureUnit};
pub use fault::{Effect, PartName, ScenarioFault};
pub use flow_sizes::{FlowSizes, SizeRow};
pub use flow_table::{FlowDependency, ListedFlow, read_flows};
pub use losses::{KnownJob, KnownLosses, KnownRun, LossPart, RunLoss};
pub use pool::Rollout;
pub use replay::{Replay, TraceDay};
pub use restart::{Checkpoints, MemoryCopies, Restart};
pub use span::{FailureRate, FailureSource, Span};
pub use start::{CircuitPlan, RunStart, StartError, plan};
pub use traffic::{AllReduceWay, Pattern, Prior, Traffic};
pub use train::{Train, TrainError, TrainStep};

use crate::substrate::{PacketSwitches, Substrate};

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in reports.
    pub name: String,
    /// SHA-256 of the fabric file, or of the scenario file that has its network in place.
    pub sha256: String,
    /// What it runs on.
    pub on: On,
    /// The plan in force; `None` makes one for the fabric as it is at the start.
    pub plan: Option<Arc<Plan>>,
    /// Seed of every random draw.
    pub seed: Seed,
    /// What is broken from the start.
    pub broken: Vec<Part>,
    /// Where more of what is broken from the start is to be read.
    pub broken_by: Option<TraceDay>,
    /// What the groups of every job do, in order.
    pub collectives: Vec<Collective>,
    /// What hosts send beside them.
    pub traffic: Vec<Traffic>,
    /// Jobs that train.
    pub train: Vec<Train>,
    /// The phases of the fabric's step.
    pub phases: Option<PhaseRun>,
    /// What is done before the first phase begins.
    pub phases_after: Vec<Prior>,
    /// What breaks during the run, as far as the seed lets it.
    pub faults: Vec<ScenarioFault>,
    /// Days of a fault trace, as more of what breaks.
    pub replay: Option<Replay>,
    /// Whether a program sends, beside what is written.
    pub is_called: bool,
    /// How long its jobs train, and what fails meanwhile. `None` for a run of some steps.
    pub span: Option<Span>,
    /// How fast the control plane is.
    pub control: ControlDelays,
    /// How data is cut into packets and repaired.
    pub transport: Transport,
    /// How the packet switches queue.
    pub switches: PacketSwitches,
    /// How long a host takes from a packet's last bit to what it does because of it.
    pub host_delay: Picoseconds,
    /// The run is stopped here.
    pub time_limit: SimTime,
    /// Whether the scenario asks for that.
    pub ends_at_limit: bool,
    /// The run is stopped after so many packets on a wire.
    pub packet_limit: u64,
    /// What must be true in the end.
    pub expectations: Vec<Expectation>,
}

impl Scenario {
    /// Collectives that something waits for, by their places.
    pub(crate) fn awaited_collectives(&self) -> Vec<usize> {
        let all = self.traffic.iter().flat_map(|one| &one.after).chain(&self.phases_after);
        let place = |prior: &Prior| match prior {
            Prior::Collective(place) => Some(*place),
            Prior::Traffic(_) => None,
        };
        let mut places: Vec<usize> = all.filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// What a scenario runs on.
#[derive(Clone, Debug)]
pub enum On {
    /// A fabric, which is planned.
    Fabric(Arc<Fabric>),
    /// A network that the scenario writes in place.
    Network(Arc<Substrate>),
}

/// The phases of a step, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRun {
    /// How often the step is repeated.
    pub steps: u32,
    /// What becomes of packets on a circuit that a change removes.
    pub in_flight: InFlight,
    /// How many times smaller than in the fabric sizes and times are. `None`: as small as keeps the run
    /// within about [`PACKETS_MAX`] packets.
    pub scale: Option<u64>,
}

/// Data packets at most in a run whose scale the file leaves out.
pub const PACKETS_MAX: u64 = 12_000_000;

/// What becomes of packets on a circuit that a change removes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    /// Its flows stop when the command goes out and what is on its way arrives.
    #[default]
    Drain,
    /// It is used until the mirrors move, and what is on its way then is lost and sent again.
    Lose,
}

/// A collective operation that every group of every job performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Its name in reports.
    pub name: String,
    /// What it does.
    pub kind: CollectiveOperation,
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
pub enum CollectiveOperation {
    /// Everybody in the group ends with the sum.
    AllReduce,
    /// Everybody in the group ends with its part of the sum.
    ReduceScatter,
    /// Everybody in the group ends with all parts.
    AllGather,
    /// Equal ranks of all groups of the job end with the sum.
    DataParallelAllReduce,
}

impl CollectiveOperation {
    /// What the ring of one group computes. `None` for what runs between groups.
    #[must_use]
    pub const fn of_group(self) -> Option<collective::CollectiveKind> {
        match self {
            Self::AllReduce => Some(collective::CollectiveKind::AllReduce),
            Self::ReduceScatter => Some(collective::CollectiveKind::ReduceScatter),
            Self::AllGather => Some(collective::CollectiveKind::AllGather),
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
    /// NCCL's factor from algorithm to bus bandwidth over so many ranks.
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> f64 {
        self.of_group().unwrap_or(collective::CollectiveKind::AllReduce).bus_factor(ranks as usize)
    }
}

/// How fast the control plane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDelays {
    /// From the fault until the control plane knows.
    pub detection_delay: Picoseconds,
    /// From there until the next plan is there.
    pub planning_delay: Picoseconds,
    /// From a fault or a repair until flows have other ways.
    pub reroute_delay: Picoseconds,
    /// The shipping daemon runs instead. `None` if these delays are assumed.
    pub lightloomd: Option<DaemonSetup>,
}

impl Default for ControlDelays {
    /// One millisecond each: assumptions.
    fn default() -> Self {
        let millisecond = Picoseconds::from_millis(1);
        Self {
            detection_delay: millisecond,
            planning_delay: millisecond,
            reroute_delay: millisecond,
            lightloomd: None,
        }
    }
}
