// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::fmt;

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::IslandEngine;
use lightloom_engine::{FlowId, LinkId, VertexId};
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::khop::Layout;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

use super::series::Series;
use super::waiting::Waiting;
use super::workload::{GroupLog, Job, RingCounts, StepLog, TrainLog};
use crate::daemon_result::DaemonResult;
use crate::scenario::FaultEvent;
use crate::stages::StageName;

#[derive(Default)]
pub(crate) struct RunLog {
    pub(crate) ended: SimTime,
    pub(crate) stop: Option<Stop>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) faults: Vec<FaultLog>,
    pub(crate) groups: Vec<GroupLog>,
    pub(crate) between: Vec<Vec<StepLog>>,
    pub(crate) program_length: usize,
    pub(crate) jobs: Vec<Job>,
    pub(crate) trained: Vec<TrainLog>,
    pub(crate) rings: RingCounts,
    pub(crate) phases: Vec<PhaseLog>,
    pub(crate) layout: Option<(Layout, FaultSet)>,
    pub(crate) switching: u128,
    pub(crate) broken: u128,
    pub(crate) out_of_service: Vec<(SimTime, SimTime)>,
    pub(crate) daemon: Option<Box<DaemonResult>>,
    pub(crate) series: Series,
    pub(super) engine: Option<IslandEngine<Watch>>,
}

impl RunLog {
    pub(super) fn new(ended: SimTime, stop: Option<Stop>, waiting: Vec<Waiting>) -> Self {
        Self { ended, stop, waiting, ..Self::default() }
    }

    pub(crate) fn engine(&self) -> &IslandEngine<Watch> {
        self.engine.as_ref().expect("a finished run still has its engine")
    }

    pub(crate) fn into_engine(self) -> IslandEngine<Watch> {
        self.engine.expect("a finished run still has its engine")
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FaultLog {
    pub(crate) at: Option<SimTime>,
    /// When the fault took effect. For stuck bundles, the time of the first command.
    pub(crate) mattered: Option<SimTime>,
    pub(crate) detected: Option<SimTime>,
    pub(crate) replanned: Option<SimTime>,
    pub(crate) restored: Option<SimTime>,
    pub(crate) repaired: Option<SimTime>,
    pub(super) out: bool,
    pub(super) closed: Vec<LinkId>,
    pub(crate) bundles: usize,
    pub(crate) dark: Option<[Picoseconds; 2]>,
    pub(crate) timeline: Vec<(StageName, SimTime)>,
    pub(crate) groups: BTreeSet<usize>,
    pub(crate) gpus_lost: u64,
    pub(crate) flows_hit: Vec<FlowId>,
    pub(crate) flows_given_up: Vec<FlowId>,
    pub(crate) hosts_lost: BTreeSet<VertexId>,
    pub(crate) circuits: BTreeSet<CrossConnect>,
    pub(crate) leaves: BTreeSet<LeafId>,
    pub(crate) changes_missed: u32,
}

impl FaultLog {
    pub(super) fn new(event: &FaultEvent) -> Self {
        Self { at: event.at(), ..Self::default() }
    }

    pub(crate) fn took(&self) -> Option<Picoseconds> {
        Some(self.restored?.since(self.mattered?))
    }

    pub(crate) fn over(&self) -> SimTime {
        self.repaired.or(self.restored).unwrap_or(SimTime(u64::MAX))
    }

    pub(super) fn times(&self) -> impl Iterator<Item = SimTime> + use<> {
        let began = self.mattered.and(self.at);
        [began, self.mattered, self.detected, self.replanned, self.restored].into_iter().flatten()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseLog {
    pub(crate) start: SimTime,
    pub(crate) time: Option<Picoseconds>,
    pub(crate) transition: Picoseconds,
    /// Time that the most loaded link needs if the actual paths cross packet switches.
    pub(crate) fullest: Option<Picoseconds>,
    pub(crate) circuits_up: usize,
    pub(crate) resent: Bytes,
    pub(crate) packets_lost: u64,
    pub(crate) held: Bytes,
    pub(crate) change_missed: bool,
}

/// Reasons why a run stopped early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Time limit of the scenario.
    Time {
        /// The limit, in simulated time.
        #[serde(rename = "limit_ps")]
        limit: SimTime,
    },
    /// Packet limit of the scenario.
    Packets {
        /// The limit, in packet-hops.
        limit: u64,
    },
    /// Work is unfinished, but no packets are in flight and no repair is pending.
    Standstill,
    /// Cycle of ports that pause each other forever.
    Deadlock {
        /// Ports in the cycle. Each port waits for the next one, and the last port waits for the first.
        ports: Vec<String>,
    },
}

impl Stop {
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
                    "a deadlock: these ports pause each other in a cycle: {}",
                    ports.join(", ")
                )
            }
        }
    }
}
