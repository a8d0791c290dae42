// SPDX-License-Identifier: Apache-2.0

use std::sync::Arc;

use lightloom_collective::{CollectiveKind, Directions, Method};
use lightloom_engine::VertexId;
use lightloom_training::described::Described;
use lightloom_units::{Bytes, Picoseconds};

use super::flow_sizes::FlowSizes;
use super::flow_table::ListedFlow;

/// Workload of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Name in reports.
    pub name: String,
    /// Kind of workload.
    pub run: Pattern,
    /// Participants in rank order.
    pub hosts: Vec<VertexId>,
    /// Size: the whole buffer of one rank for a collective (as in nccl-tests), or each flow for a flow pattern.
    pub bytes: Bytes,
    /// Directions around its ring, if it uses one.
    pub directions: Directions,
    /// Priority at switches with priority queues.
    pub priority: u8,
    /// Delay after the start of the run, or after the prerequisites.
    pub delay: Picoseconds,
    /// Prerequisites.
    pub after: Vec<Prior>,
    /// Number of sequential repetitions.
    pub repeat: u32,
}

/// Prerequisite of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prior {
    /// All repetitions of the traffic with this index.
    Traffic(usize),
    /// All repetitions of the collective with this index, in all groups that are not lost.
    Collective(usize),
}

/// Kind of workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Every host sends to one host and receives from one, in a random cycle or with a fixed shift.
    Permutation {
        /// Shift in positions. `None` selects the random cycle.
        by: Option<u32>,
    },
    /// All other hosts send to one host.
    Incast {
        /// Destination.
        into: VertexId,
    },
    /// A collective of all hosts.
    Collective(Method),
    /// Flows of a table.
    Flows(Arc<[ListedFlow]>),
    /// Random flows.
    Random {
        /// Flow sizes.
        sizes: FlowSizes,
        /// Data load of a host's first cable.
        load: f64,
        /// Period in which new flows start.
        lasts: Picoseconds,
    },
    /// A step recorded or described by another tool.
    Recorded(Arc<Described>),
    /// Computation for this time, without traffic.
    Compute(Picoseconds),
}

impl Pattern {
    /// Returns the name used in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Permutation { .. } => "permutation",
            Self::Incast { .. } => "incast",
            Self::Collective(method) => method.kind().name(),
            Self::Flows(_) | Self::Random { .. } => CollectiveKind::Flows.name(),
            Self::Recorded(_) => "recorded",
            Self::Compute(_) => "compute",
        }
    }

    /// Returns the ratio of bus bandwidth to algorithm bandwidth, as defined by nccl-tests.
    pub fn bus_factor(&self, ranks: usize) -> f64 {
        match self {
            Self::Collective(method) => method.kind().bus_factor(ranks),
            _ => 1.0,
        }
    }

    /// Returns whether the pattern needs a size.
    pub fn has_size(&self) -> bool {
        !matches!(self, Self::Flows(_) | Self::Random { .. } | Self::Recorded(_) | Self::Compute(_))
    }
}

impl Traffic {
    /// Returns the priorities of the flows.
    pub fn priorities(&self) -> Vec<u8> {
        match &self.run {
            Pattern::Compute(_) => Vec::new(),
            Pattern::Flows(rows) => {
                rows.iter().map(|row| row.priority.unwrap_or(self.priority)).collect()
            }
            _ => vec![self.priority],
        }
    }
}
