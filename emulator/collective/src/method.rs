// SPDX-License-Identifier: Apache-2.0

use lightloom_units::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AllToAll, CollectiveError, CollectiveKind, Directions, Exchange, HalvingDoubling, Hierarchical,
    Ring, Schedule, TorusAllReduce, Tree, TreeOperation,
};

const TREE_PIECES: u32 = 16;

/// A collective with its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    AllToAll(Exchange),
    AllReduce(AllReduceWay),
    /// On a ring.
    ReduceScatter,
    /// On a ring.
    AllGather,
    /// Down a binary tree in this many pieces.
    Broadcast(u32),
}

/// Algorithm of an all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AllReduceWay {
    /// Around the hosts in rank order, in both directions.
    Ring,
    /// Along a binary tree, up and down.
    Tree,
    /// On two binary trees concurrently.
    DoubleTree,
    /// Recursive halving and doubling.
    HalvingDoubling,
    /// Along all dimensions of a torus concurrently.
    Torus,
    /// Within groups of this many hosts in rank order, then between groups, then within groups
    /// again.
    Hierarchical(u32),
}

impl Method {
    pub const fn kind(self) -> CollectiveKind {
        match self {
            Self::AllToAll(_) => CollectiveKind::AllToAll,
            Self::AllReduce(_) => CollectiveKind::AllReduce,
            Self::ReduceScatter => CollectiveKind::ReduceScatter,
            Self::AllGather => CollectiveKind::AllGather,
            Self::Broadcast(_) => CollectiveKind::Broadcast,
        }
    }

    /// Returns whether the number of ranks must be a power of two.
    pub const fn halves(self) -> bool {
        matches!(
            self,
            Self::AllToAll(Exchange::Binary) | Self::AllReduce(AllReduceWay::HalvingDoubling)
        )
    }

    /// Returns whether the method uses a single ring.
    pub const fn is_ring(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::AllGather | Self::AllReduce(AllReduceWay::Ring))
    }

    /// `rings` are the rings of each dimension of a torus.
    pub fn schedule(
        self,
        ranks: usize,
        size: Bytes,
        directions: Directions,
        rings: impl FnOnce() -> Vec<Vec<Vec<usize>>>,
    ) -> Result<Schedule, CollectiveError> {
        let (operation, pieces) = match self {
            Self::AllToAll(exchange) => return AllToAll { ranks, size, exchange }.schedule(),
            Self::ReduceScatter | Self::AllGather | Self::AllReduce(AllReduceWay::Ring) => {
                return Ring { kind: self.kind(), ranks, size, directions }.schedule();
            }
            Self::AllReduce(AllReduceWay::HalvingDoubling) => {
                return HalvingDoubling { ranks, size }.schedule();
            }
            Self::AllReduce(AllReduceWay::Hierarchical(of)) => {
                let of = of as usize;
                let groups = (0..ranks).step_by(of).map(|first| of.min(ranks - first)).collect();
                return Hierarchical { groups, size }.schedule();
            }
            Self::AllReduce(AllReduceWay::Torus) => {
                return TorusAllReduce { rings: rings(), size }.schedule();
            }
            Self::AllReduce(AllReduceWay::Tree) => (TreeOperation::AllReduce, TREE_PIECES),
            Self::AllReduce(AllReduceWay::DoubleTree) => {
                (TreeOperation::DoubleAllReduce, TREE_PIECES)
            }
            Self::Broadcast(pieces) => (TreeOperation::Broadcast, pieces),
        };
        Tree { operation, ranks, size, pieces }.schedule()
    }
}
