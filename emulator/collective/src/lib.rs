// SPDX-License-Identifier: Apache-2.0
//! Collective operations as schedules of messages with dependencies, and lower bounds on their duration.
//!
//! Each algorithm (ring, binary trees, halving-doubling, all-to-all, torus, hierarchical) produces a [`Schedule`] with
//! the message order of a real implementation. An engine sends it packet by packet; its closed form is a lower bound.
//!
//! Ranks are numbered from 0, sizes are in bytes, and times are in picoseconds. The size of a collective follows
//! nccl-tests. It is the data of each rank before an all-reduce or reduce-scatter and after an all-gather or
//! broadcast, or a rank's data for all ranks of an all-to-all. Pieces are rounded up to whole bytes.
//!
//! Networks, hosts and packets are not part of this crate. The caller maps ranks to hosts.

mod all_to_all;
mod expert;
mod halving_doubling;
mod hierarchical;
mod library;
mod method;
mod ring;
mod schedule;
mod torus;
mod tree;

use lightloom_units::Bytes;

pub use all_to_all::{AllToAll, Exchange, Shift};
pub use expert::{ExpertExchange, ExpertKernel};
pub use halving_doubling::HalvingDoubling;
pub use hierarchical::Hierarchical;
pub use library::{
    Algorithm, Delivery, Generation, Hops, Joined, Launch, LibraryPlan, LibraryTime, Pace,
    Protocol, Shape, Site, rows,
};
pub use method::{AllReduceWay, Method};
pub use ring::{Directions, Ring};
pub use schedule::{Await, MessageTime, NetworkLevel, Schedule, Sending};
pub use torus::TorusAllReduce;
pub use tree::{Tree, TreeOperation};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
    Broadcast,
    /// Unordered flows; the size is their total.
    Flows,
}

impl CollectiveKind {
    /// The kind with a different piece for every pair of ranks.
    pub const PAIRWISE: Self = Self::AllToAll;

    /// Kinds that files and options name.
    pub const NAMED: [Self; 5] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllToAll, Self::Broadcast];

    /// The halves of an all-reduce: afterwards, every rank has its part of the sum, then all parts.
    pub const HALVES: [Self; 2] = [Self::ReduceScatter, Self::AllGather];

    /// Looks up a kind by its name, also if written with underscores.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|kind| kind.name() == name.replace('_', "-"))
    }

    /// Returns whether every rank has a different piece for every other rank.
    pub const fn is_pairwise(self) -> bool {
        matches!(self, Self::AllToAll)
    }

    /// Returns whether a rank starts with only its piece of the size.
    pub const fn has_piece_before(self) -> bool {
        matches!(self, Self::AllGather)
    }

    /// Returns whether a rank ends with only its piece of the size.
    pub const fn has_piece_after(self) -> bool {
        matches!(self, Self::ReduceScatter)
    }

    /// Returns whether the data passes every rank of a ring.
    pub const fn is_around_a_ring(self) -> bool {
        !matches!(self, Self::AllToAll | Self::Broadcast)
    }

    /// Returns the schedule of all pieces sent at the start if every rank has one for every other rank; otherwise of a ring.
    pub fn schedule(
        self,
        ranks: usize,
        size: Bytes,
        directions: Directions,
    ) -> Result<Schedule, CollectiveError> {
        match self.is_pairwise() {
            true => AllToAll { ranks, size, exchange: Exchange::AtOnce }.schedule(),
            false => Ring { kind: self, ranks, size, directions }.schedule(),
        }
    }

    /// Returns the pairs of ranks between which data is sent: all, or neighbours around a ring.
    pub fn pairs(self, ranks: usize) -> Vec<(usize, usize)> {
        match self.is_pairwise() {
            true => (0..ranks)
                .flat_map(|from| (0..ranks).filter(move |to| *to != from).map(move |to| (from, to)))
                .collect(),
            false => (0..ranks).map(|from| (from, (from + 1) % ranks)).collect(),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::AllToAll => "all-to-all",
            Self::Broadcast => "broadcast",
            Self::Flows => "flows",
        }
    }
    /// Returns the bytes that every rank must send, as a fraction of the size. nccl-tests uses this
    /// factor to convert algorithm bandwidth to bus bandwidth (doc/PERFORMANCE.md).
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let share = (ranks as f64 - 1.0) / ranks as f64;
        match self {
            Self::AllReduce => 2.0 * share,
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => share,
            Self::Broadcast | Self::Flows => 1.0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    #[error("a collective requires at least 2 ranks, not {ranks}")]
    TooFewRanks { ranks: usize },
    #[error("recursive halving requires a power of two, not {ranks} ranks")]
    NoPowerOfTwo { ranks: usize },
    #[error("group {group} has {ranks} ranks, but the first group has {expected}")]
    UnequalGroups { group: usize, ranks: usize, expected: usize },
}

fn part_of(size: Bytes, parts: u64) -> Bytes {
    Bytes(size.0.div_ceil(parts))
}
