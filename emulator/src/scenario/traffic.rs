// SPDX-License-Identifier: Apache-2.0
//! Traffic between hosts: collectives and flow patterns.

use std::sync::Arc;

use lightloom_collective::{CollectiveKind, Directions, Exchange};
use lightloom_engine::VertexId;
use lightloom_training::described::Described;
use lightloom_units::{Bytes, Picoseconds};
use schemars::JsonSchema;
use serde::Deserialize;

use super::flow_sizes::FlowSizes;
use super::flow_table::ListedFlow;

/// A workload of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Name in reports.
    pub name: String,
    /// Kind of workload.
    pub run: Pattern,
    /// Participants in rank order.
    pub hosts: Vec<VertexId>,
    /// Size, which for a collective is defined as in NCCL's tests and for a flow pattern is the size of each flow.
    pub bytes: Bytes,
    /// Directions around its ring, if it uses one.
    pub directions: Directions,
    /// Priority at switches with priority queues.
    pub priority: u8,
    /// Delay after the start of the run, or after its dependencies.
    pub delay: Picoseconds,
    /// Dependencies.
    pub after: Vec<Prior>,
    /// Number of sequential repetitions.
    pub repeat: u32,
}

/// A dependency of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prior {
    /// The traffic at this index, with all its repetitions.
    Traffic(usize),
    /// The collective at this index with all its repetitions, in every group that is not lost.
    Collective(usize),
}

/// Kind of workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Every host sends to one host and receives from one, in a random cycle through all hosts or
    /// with a fixed shift.
    Permutation {
        /// Shift in positions. `None` means the random cycle.
        by: Option<u32>,
    },
    /// All other hosts send to one host.
    Incast {
        /// Destination.
        into: VertexId,
    },
    /// Every host has a piece for every other host.
    AllToAll(Exchange),
    /// Every host ends with the sum.
    AllReduce(AllReduceWay),
    /// Every host ends with its part of the sum, computed on a ring.
    ReduceScatter,
    /// Every host ends with all parts, gathered on a ring.
    AllGather,
    /// The middle host sends to all others down a binary tree.
    Broadcast {
        /// Number of pieces.
        pieces: u32,
    },
    /// All-to-all by binary exchange, with circuit changes between steps.
    CircuitExchange,
    /// Flows of a table.
    Flows(Arc<[ListedFlow]>),
    /// Random flows.
    Random {
        /// Flow sizes.
        sizes: FlowSizes,
        /// Load of a host's first cable.
        load: f64,
        /// Period in which new flows start.
        lasts: Picoseconds,
    },
    /// A step recorded or described by another tool.
    Recorded(Arc<Described>),
    /// Sends nothing for this time.
    Compute(Picoseconds),
}

/// Algorithm of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllReduceWay {
    /// Around the hosts in rank order, in both directions.
    Ring,
    /// Up and down a binary tree.
    Tree,
    /// Two binary trees concurrently.
    DoubleTree,
    /// Recursive halving and doubling.
    HalvingDoubling,
    /// Along all dimensions of a torus concurrently.
    Torus,
    /// Runs inside groups of this many hosts in rank order, then between groups, then inside again.
    Hierarchical(u32),
}

impl Pattern {
    /// Returns whether the pattern repeatedly halves the set of hosts, which requires a power of two.
    #[must_use]
    pub(crate) fn halves(&self) -> bool {
        matches!(
            self,
            Self::AllToAll(Exchange::Binary) | Self::AllReduce(AllReduceWay::HalvingDoubling)
        )
    }

    /// Returns the name in results.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Permutation { .. } => "permutation",
            Self::Incast { .. } => "incast",
            Self::AllToAll(_) => CollectiveKind::AllToAll.name(),
            Self::AllReduce(_) => CollectiveKind::AllReduce.name(),
            Self::ReduceScatter => CollectiveKind::ReduceScatter.name(),
            Self::AllGather => CollectiveKind::AllGather.name(),
            Self::Broadcast { .. } => CollectiveKind::Broadcast.name(),
            Self::CircuitExchange => "circuit-exchange",
            Self::Flows(_) | Self::Random { .. } => CollectiveKind::Flows.name(),
            Self::Recorded(_) => "recorded",
            Self::Compute(_) => "compute",
        }
    }

    /// Returns NCCL's ratio of bus bandwidth to algorithm bandwidth for this many ranks.
    #[must_use]
    pub fn bus_factor(&self, ranks: usize) -> f64 {
        let kind = match self {
            Self::AllToAll(_) | Self::CircuitExchange => CollectiveKind::AllToAll,
            Self::AllReduce(_) => CollectiveKind::AllReduce,
            Self::ReduceScatter => CollectiveKind::ReduceScatter,
            Self::AllGather => CollectiveKind::AllGather,
            _ => return 1.0,
        };
        kind.bus_factor(ranks)
    }

    /// Returns whether the pattern needs a size.
    #[must_use]
    pub fn has_size(&self) -> bool {
        !matches!(self, Self::Flows(_) | Self::Random { .. } | Self::Recorded(_) | Self::Compute(_))
    }
}

impl Traffic {
    /// Returns whether the pattern uses one ring.
    #[must_use]
    pub const fn is_ring(run: &Pattern) -> bool {
        matches!(
            run,
            Pattern::ReduceScatter | Pattern::AllGather | Pattern::AllReduce(AllReduceWay::Ring)
        )
    }

    /// Returns the priorities of the flows.
    #[must_use]
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
