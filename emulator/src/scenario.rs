// SPDX-License-Identifier: Apache-2.0
//! Scenarios: the network, workloads, faults and expectations of a run.

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

use lightloom_collective::{CollectiveKind, Directions};
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
pub use fault::{Effect, Flapping, PartName, ScenarioFault};
pub use flow_sizes::{FlowSizes, SizeRow};
pub use flow_table::{FlowDependency, ListedFlow, read_flows};
pub use losses::{Case, JobRow, KnownLosses, KnownRun, LossPart, RunLoss};
pub use pool::{Rollout, RolloutLoop};
pub use replay::{Replay, TraceDay};
pub use restart::{Checkpoints, Elasticity, MemoryCopies, Migration, Restart};
pub use span::{FailureRate, FailureSource, Span};
pub use start::{CircuitPlan, FirstPlan, RunStart, StartError, plan};
pub use traffic::{Pattern, Prior, Traffic};
pub use train::{Train, TrainError, TrainStep};

use crate::substrate::{PacketSwitches, Substrate};

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name in reports.
    pub name: String,
    /// SHA-256 of the fabric file, or of the scenario file if it defines the network.
    pub sha256: String,
    /// Fabric or network.
    pub on: On,
    /// Plan to use. `None` plans the initial state of the fabric.
    pub plan: Option<Arc<Plan>>,
    /// Plan made when the file was loaded. Reused by runs with the same seed and faults.
    pub first: Option<FirstPlan>,
    /// Random seed.
    pub seed: Seed,
    /// Parts that have failed before the run starts.
    pub broken: Vec<Part>,
    /// Day of a fault trace with more parts that have failed before the run starts.
    pub broken_by: Option<TraceDay>,
    /// Collectives of every group of every job, in order.
    pub collectives: Vec<Collective>,
    /// Additional host-to-host traffic.
    pub traffic: Vec<Traffic>,
    /// Training jobs.
    pub train: Vec<Train>,
    /// Phases of the fabric's step.
    pub phases: Option<PhaseRun>,
    /// Prerequisites of the first phase.
    pub phases_after: Vec<Prior>,
    /// Faults during the run, before any random choices are made.
    pub faults: Vec<ScenarioFault>,
    /// Days of a fault trace with additional faults.
    pub replay: Option<Replay>,
    /// Whether an external program also sends traffic.
    pub is_called: bool,
    /// Training period with failures. `None` for a run of a few steps.
    pub span: Option<Span>,
    /// Delays of the control plane.
    pub control: ControlDelays,
    /// Packet sizes, load balancing, congestion control and loss recovery.
    pub transport: Transport,
    /// Queues of the packet switches.
    pub switches: PacketSwitches,
    /// Processing delay of a host after the last bit of a packet.
    pub host_delay: Picoseconds,
    /// Time limit of the run.
    pub time_limit: SimTime,
    /// Whether reaching the time limit is intended.
    pub ends_at_limit: bool,
    /// Maximum number of packets sent, counted once per link.
    pub packet_limit: u64,
    /// Conditions checked at the end.
    pub expectations: Vec<Expectation>,
}

impl Scenario {
    pub(crate) fn awaited_collectives(&self) -> Vec<usize> {
        let all = self.traffic.iter().flat_map(|one| &one.after).chain(&self.phases_after);
        let places = all.filter_map(|prior| match prior {
            Prior::Collective(place) => Some(*place),
            Prior::Traffic(_) => None,
        });
        let mut places: Vec<usize> = places.collect();
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
    /// A network that the scenario defines.
    Network(Arc<Substrate>),
}

/// Repetition of a step's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseRun {
    /// Number of repetitions of the step.
    pub steps: u32,
    /// Treatment of packets on a circuit that is removed.
    pub in_flight: InFlight,
    /// Ratio of full size to simulated size. `None` limits the run to about [`PACKETS_MAX`] packets.
    pub scale: Option<u64>,
}

/// Maximum number of data packets if the file does not specify a scale.
pub const PACKETS_MAX: u64 = 12_000_000;

/// Treatment of packets on a circuit that is removed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    /// Flows stop at the command, and packets in flight arrive.
    #[default]
    Drain,
    /// The circuit is used until the mirrors move. Packets on it are lost and retransmitted.
    Lose,
}

/// A collective of every group of every job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Name in reports.
    pub name: String,
    /// Collective operation.
    pub kind: CollectiveKind,
    /// Whether it runs between the same ranks of all groups of a job, rather than on the ring of each group.
    pub is_between_groups: bool,
    /// Buffer size of one rank.
    pub bytes: Bytes,
    /// Number of consecutive repetitions.
    pub repeat: u32,
    /// Priority at switches with priority queues.
    pub priority: u8,
    /// Directions around the ring of a group.
    pub directions: Directions,
}

impl Collective {
    /// Name of the operation between groups in scenario files.
    pub const BETWEEN_GROUPS: &'static str = "data-parallel-all-reduce";

    /// Returns the name of the operation in scenario files.
    pub const fn operation(&self) -> &'static str {
        if self.is_between_groups { Self::BETWEEN_GROUPS } else { self.kind.name() }
    }
}

/// Delays of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDelays {
    /// Time from a fault to its detection.
    pub detection_delay: Picoseconds,
    /// Time from detection to the next plan.
    pub planning_delay: Picoseconds,
    /// Time from a fault or repair until flows are rerouted.
    pub reroute_delay: Picoseconds,
    /// Setup of the shipped daemon. `None` uses the fixed delays instead.
    pub lightloomd: Option<DaemonSetup>,
}

impl Default for ControlDelays {
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
