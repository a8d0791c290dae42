// SPDX-License-Identifier: Apache-2.0
//! Collective operations as schedules of messages: which rank sends what to which, after what, and in what time at least.
//!
//! Each algorithm (ring, binary trees, halving-doubling, all-to-all, torus, hierarchical) makes a [`Schedule`]: its messages
//! with those that each waits for, in the order of a real implementation. An engine sends a schedule packet by packet;
//! its closed form is a lower bound of the time.
//!
//! Ranks are numbers from 0, sizes bytes, times picoseconds. The size of a collective is that of NCCL's tests: of all-reduce
//! and reduce-scatter what each rank has before, of all-gather and broadcast what each has after, of all-to-all what each
//! has for all. Pieces are rounded up to whole bytes.
//!
//! Not here: networks, hosts, packets. The caller says which host is which rank.

mod all_to_all;
mod halving_doubling;
mod hierarchical;
mod library;
mod ring;
mod schedule;
mod torus;
mod tree;

use lightloom_units::Bytes;

pub use all_to_all::{AllToAll, Exchange, Shift};
pub use halving_doubling::HalvingDoubling;
pub use hierarchical::Hierarchical;
pub use library::{
    Algorithm, Generation, Hops, Joined, LibraryPlan, LibraryTime, Pace, Protocol, Shape, Site,
};
pub use ring::{Directions, Ring};
pub use schedule::{Await, MessageTime, NetworkLevel, Schedule, Sending};
pub use torus::TorusAllReduce;
pub use tree::{Tree, TreeOperation};

/// What a collective computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Everybody ends with the sum of all.
    AllReduce,
    /// Everybody ends with its share of the sum.
    ReduceScatter,
    /// Everybody ends with the shares of all.
    AllGather,
    /// Everybody ends with the piece that each had for it.
    AllToAll,
    /// Everybody ends with what one had.
    Broadcast,
    /// Flows without order among them; the size is that of all together.
    Flows,
}

impl CollectiveKind {
    /// The name in results.
    #[must_use]
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
    /// Bytes that every rank must send, as a share of the size: NCCL's factor from algorithm to bus
    /// bandwidth (nccl-tests, doc/PERFORMANCE.md).
    #[must_use]
    pub fn bus_factor(self, ranks: usize) -> f64 {
        let share = (ranks as f64 - 1.0) / ranks as f64;
        match self {
            Self::AllReduce => 2.0 * share,
            Self::ReduceScatter | Self::AllGather | Self::AllToAll => share,
            Self::Broadcast | Self::Flows => 1.0,
        }
    }
}

/// Why a collective cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// One rank has no peer.
    #[error("a collective of {ranks} ranks: at least 2 are needed")]
    TooFewRanks {
        /// How many there are.
        ranks: usize,
    },
    /// Halving needs halves.
    #[error("{ranks} ranks: recursive halving needs a power of two")]
    NoPowerOfTwo {
        /// How many there are.
        ranks: usize,
    },
    /// Groups of a hierarchical collective differ in size.
    #[error("group {group} has {ranks} ranks where the first has {expected}")]
    UnequalGroups {
        /// The group's place in the list.
        group: usize,
        /// Its ranks.
        ranks: usize,
        /// The ranks of the first group.
        expected: usize,
    },
}

/// `size` in `parts`, rounded up.
fn part_of(size: Bytes, parts: u64) -> Bytes {
    Bytes(size.0.div_ceil(parts))
}
