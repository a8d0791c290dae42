// SPDX-License-Identifier: Apache-2.0
//! Scenarios: the workloads, the network, the faults and the expectations of a run.

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
pub use start::{CircuitPlan, FirstPlan, RunStart, StartError, plan};
pub use traffic::{AllReduceWay, Pattern, Prior, Traffic};
pub use train::{Train, TrainError, TrainStep};

use crate::substrate::{PacketSwitches, Substrate};

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in reports.
    pub name: String,
    /// SHA-256 of the fabric file, or of the scenario file if it defines the network.
    pub sha256: String,
    /// The fabric or network.
    pub on: On,
    /// The plan to use. `None` makes a plan for the initial state of the fabric.
    pub plan: Option<Arc<Plan>>,
    /// The plan made when the file was loaded, which a run of the same seed and faults takes.
    pub first: Option<FirstPlan>,
    /// Seed of every random draw.
    pub seed: Seed,
    /// Parts that are broken from the start.
    pub broken: Vec<Part>,
    /// The day in a fault trace that provides further parts that are broken from the start.
    pub broken_by: Option<TraceDay>,
    /// The collectives that the groups of every job run, in order.
    pub collectives: Vec<Collective>,
    /// Additional traffic between hosts.
    pub traffic: Vec<Traffic>,
    /// Training jobs.
    pub train: Vec<Train>,
    /// The phases of the fabric's step.
    pub phases: Option<PhaseRun>,
    /// Prerequisites of the first phase.
    pub phases_after: Vec<Prior>,
    /// Faults during the run, whose parts and times have yet to be drawn.
    pub faults: Vec<ScenarioFault>,
    /// Days in a fault trace that provide additional faults.
    pub replay: Option<Replay>,
    /// Whether a program also sends traffic.
    pub is_called: bool,
    /// How long its jobs train, and the failures during that time. `None` for a run with a few steps.
    pub span: Option<Span>,
    /// The delays of the control plane.
    pub control: ControlDelays,
    /// How data is divided into packets and how losses are repaired.
    pub transport: Transport,
    /// Queues of the packet switches.
    pub switches: PacketSwitches,
    /// Time that a host takes to react to the last bit of a packet.
    pub host_delay: Picoseconds,
    /// Time limit of the run.
    pub time_limit: SimTime,
    /// Whether the scenario intends to end at the time limit.
    pub ends_at_limit: bool,
    /// Maximum number of packets put on a wire.
    pub packet_limit: u64,
    /// Conditions that must hold at the end.
    pub expectations: Vec<Expectation>,
}

impl Scenario {
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

/// The network of a scenario.
#[derive(Clone, Debug)]
pub enum On {
    /// A fabric with a plan.
    Fabric(Arc<Fabric>),
    /// A network defined in the scenario.
    Network(Arc<Substrate>),
}

/// Repeated phases of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRun {
    /// Number of repetitions of the step.
    pub steps: u32,
    /// Handling of packets on a circuit that a change removes.
    pub in_flight: InFlight,
    /// The ratio of the fabric's sizes and times to the run's. `None` chooses a scale that keeps
    /// the run within about [`PACKETS_MAX`] packets.
    pub scale: Option<u64>,
}

/// Maximum number of data packets in a run whose file does not specify a scale.
pub const PACKETS_MAX: u64 = 12_000_000;

/// Handling of packets on a circuit that a change removes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    /// Flows stop at the command, and packets already sent arrive.
    #[default]
    Drain,
    /// The circuit is used until the mirrors move; packets on it are then lost and sent again.
    Lose,
}

/// A collective operation that every group of every job performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Its name in reports.
    pub name: String,
    /// The operation.
    pub kind: CollectiveOperation,
    /// The buffer of one rank.
    pub bytes: Bytes,
    /// How many times in succession it runs.
    pub repeat: u32,
    /// Priority of the workload at switches with priority queues.
    pub priority: u8,
    /// The directions around the ring of a group.
    pub directions: Directions,
}

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveOperation {
    /// Every rank in the group gets the sum.
    AllReduce,
    /// Every rank in the group gets its part of the sum.
    ReduceScatter,
    /// Every rank in the group gets all parts.
    AllGather,
    /// Corresponding ranks in all of the job's groups get the sum.
    DataParallelAllReduce,
}

impl CollectiveOperation {
    /// Returns the collective on the ring of one group, or `None` for an operation between groups.
    #[must_use]
    pub const fn of_group(self) -> Option<collective::CollectiveKind> {
        match self {
            Self::AllReduce => Some(collective::CollectiveKind::AllReduce),
            Self::ReduceScatter => Some(collective::CollectiveKind::ReduceScatter),
            Self::AllGather => Some(collective::CollectiveKind::AllGather),
            Self::DataParallelAllReduce => None,
        }
    }
    /// Returns the name used in scenario files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.of_group() {
            Some(kind) => kind.name(),
            None => "data-parallel-all-reduce",
        }
    }
    /// Returns whether it runs between groups rather than inside one.
    #[must_use]
    pub const fn is_between_groups(self) -> bool {
        self.of_group().is_none()
    }
    /// Returns NCCL's ratio of bus bandwidth to algorithm bandwidth for this number of ranks.
    #[must_use]
    pub fn bus_factor(self, ranks: u32) -> f64 {
        self.of_group().unwrap_or(collective::CollectiveKind::AllReduce).bus_factor(ranks as usize)
    }
}

/// The delays of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDelays {
    /// Delay from a fault to its detection.
    pub detection_delay: Picoseconds,
    /// Delay from detection to the next plan.
    pub planning_delay: Picoseconds,
    /// Delay from a fault or repair until flows have new paths.
    pub reroute_delay: Picoseconds,
    /// The settings of the shipped daemon if it runs. `None` means that the delays above are
    /// assumed instead.
    pub lightloomd: Option<DaemonSetup>,
}

impl Default for ControlDelays {
    /// Assumes one millisecond each.
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
