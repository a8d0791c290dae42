//! Collectives as flows that wait for each other, with the time they would take undisturbed.
//!
//! Nothing here runs: a collective is laid out once as flows whose messages are gated by the messages
//! that a rank has to receive first, and the engine does the rest. That keeps the exact order of a
//! real implementation (a rank passes a piece on when it has all of it) without anybody looking on.
//!
//! The size of a collective is that of NCCL's tests: all-reduce, what each rank has before and after;
//! reduce-scatter, what each has before; all-gather, what each has after; all-to-all, what each has for
//! all; broadcast, what everybody ends with. Pieces are rounded up to
//! whole bytes.

mod all_to_all;
mod bag;
mod draft;
mod halving_doubling;
mod hierarchical;
mod ring;
mod torus;
mod tree;

use lightloom_units::{Bytes, Picoseconds, SimTime};

use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, EngineError, FlowId};

pub use all_to_all::{AllToAll, Exchange, Shift};
pub use bag::start_bag;
pub use halving_doubling::HalvingDoubling;
pub use hierarchical::Hierarchical;
pub use ring::{Directions, RingCollective};
pub use torus::TorusAllReduce;
pub use tree::{Tree, TreeOperation};

/// What a collective computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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

impl Kind {
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

/// A collective whose flows have been added to an engine.
#[derive(Clone, Debug)]
pub struct Collective {
    /// What it computes.
    pub kind: Kind,
    /// How many ranks take part.
    pub ranks: usize,
    /// Its size, see the module's description.
    pub size: Bytes,
    /// When it may begin.
    pub start: SimTime,
    /// What it takes when no packet waits for one of another flow, and no acknowledgement takes a
    /// link from data: nobody can be faster on these paths.
    pub ideal: Picoseconds,
    /// Its flows, and nobody else's, are in this batch.
    pub batch: BatchId,
    /// Its flows.
    pub flows: Vec<FlowId>,
}

/// Why a collective cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// One rank has nobody to talk to.
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
    /// A flow that the engine refuses.
    #[error(transparent)]
    Flow(#[from] EngineError),
}

impl Collective {
    /// When the last byte of its last flow arrived, or nothing yet.
    #[must_use]
    pub fn end<S: Stage>(&self, engine: &S) -> Option<SimTime> {
        self.flows
            .iter()
            .map(|flow| engine.record(*flow).end)
            .try_fold(self.start, |last, end| end.map(|end| last.max(end)))
    }
    /// Stops all its flows.
    pub fn cancel<S: Stage>(&self, engine: &mut S) {
        for flow in &self.flows {
            engine.cancel_flow(*flow);
        }
    }
    /// Size over time: algorithm bandwidth, bytes a second.
    #[must_use]
    pub fn algorithm_bandwidth(&self, took: Picoseconds) -> f64 {
        self.size.0 as f64 / took.as_secs_f64()
    }
    /// Algorithm bandwidth times [`Kind::bus_factor`]: bytes a second, comparable over ranks.
    #[must_use]
    pub fn bus_bandwidth(&self, took: Picoseconds) -> f64 {
        self.algorithm_bandwidth(took) * self.kind.bus_factor(self.ranks)
    }
}

/// `size` in `parts`, rounded up.
fn part_of(size: Bytes, parts: u64) -> Bytes {
    Bytes(size.0.div_ceil(parts))
}
