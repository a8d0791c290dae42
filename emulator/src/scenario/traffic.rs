// SPDX-License-Identifier: Apache-2.0
//! What hosts send to each other: collectives and patterns of flows.

use std::sync::Arc;

use lightloom_collective::{CollectiveKind, Directions, Exchange};
use lightloom_engine::VertexId;
use lightloom_training::described::Described;
use lightloom_units::{Bytes, Picoseconds};
use schemars::JsonSchema;
use serde::Deserialize;

use super::flow_sizes::FlowSizes;
use super::flow_table::ListedFlow;

/// Something that hosts do.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Its name in reports.
    pub name: String,
    /// What it is.
    pub run: Pattern,
    /// Who takes part, in order of rank.
    pub hosts: Vec<VertexId>,
    /// Its size; of a collective by the convention of NCCL's tests, of a pattern of flows that of each.
    pub bytes: Bytes,
    /// Which ways round its ring, if it goes around one.
    pub directions: Directions,
    /// Its priority at switches with real queues.
    pub priority: u8,
    /// It begins so long after the start of the run, or after what it waits for.
    pub delay: Picoseconds,
    /// What it waits for.
    pub after: Vec<Prior>,
    /// How often, one after the other.
    pub repeat: u32,
}

/// Something that is done before something else begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prior {
    /// The traffic at this place, as often as it is repeated.
    Traffic(usize),
    /// The collective at this place, by every group of every job that is not lost, as often as it is repeated.
    Collective(usize),
}

/// What a workload is.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Every host sends to one and receives from one: a seeded cycle through all, or the host so many
    /// places further.
    Permutation {
        /// How many places further.
        by: Option<u32>,
    },
    /// Every other host sends to one.
    Incast {
        /// The one.
        into: VertexId,
    },
    /// Everybody has a piece for everybody.
    AllToAll(Exchange),
    /// Everybody ends with the sum.
    AllReduce(AllReduceWay),
    /// Everybody ends with its part of the sum, on a ring.
    ReduceScatter,
    /// Everybody ends with all parts, on a ring.
    AllGather,
    /// From the host in the middle to everybody, down a binary tree.
    Broadcast {
        /// In how many pieces.
        pieces: u32,
    },
    /// All-to-all by binary exchange, circuits switched between steps.
    CircuitExchange,
    /// Flows of a table.
    Flows(Arc<[ListedFlow]>),
    /// Flows at random.
    Random {
        /// How large.
        sizes: FlowSizes,
        /// Share of a host's first cable that they use.
        load: f64,
        /// For how long new ones begin.
        lasts: Picoseconds,
    },
    /// A step that another tool recorded or described.
    Recorded(Arc<Described>),
    /// Nothing is sent for so long.
    Compute(Picoseconds),
}

/// How an all-reduce goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllReduceWay {
    /// Around the hosts in order of rank, both ways.
    Ring,
    /// Up and down a binary tree.
    Tree,
    /// Two trees at once.
    DoubleTree,
    /// Recursive halving and doubling.
    HalvingDoubling,
    /// Along all dimensions of a torus at once.
    Torus,
    /// Inside groups of so many hosts, in order of rank, then between groups, then inside again.
    Hierarchical(u32),
}

impl Pattern {
    /// Whether hosts are halved again and again, which takes a power of two of them.
    #[must_use]
    pub(crate) fn halves(&self) -> bool {
        matches!(
            self,
            Self::AllToAll(Exchange::Binary) | Self::AllReduce(AllReduceWay::HalvingDoubling)
        )
    }

    /// How it is called in results.
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

    /// NCCL's factor from algorithm to bus bandwidth over so many ranks.
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

    /// Whether it needs a size.
    #[must_use]
    pub fn has_size(&self) -> bool {
        !matches!(self, Self::Flows(_) | Self::Random { .. } | Self::Recorded(_) | Self::Compute(_))
    }
}

impl Traffic {
    /// Whether it goes around one ring.
    #[must_use]
    pub const fn is_ring(run: &Pattern) -> bool {
        matches!(
            run,
            Pattern::ReduceScatter | Pattern::AllGather | Pattern::AllReduce(AllReduceWay::Ring)
        )
    }

    /// The priorities that its flows have.
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
