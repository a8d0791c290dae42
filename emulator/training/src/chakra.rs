// SPDX-License-Identifier: Apache-2.0
//! Task graphs as Chakra execution traces (MLCommons), both ways.
//!
//! A trace is one stream a rank: a `GlobalMetadata` message, then `Node` messages, each behind its length. A collective stands in the
//! stream of every rank that takes part; the n-th of its kind in a process group is the same one for all. Sizes, peers
//! and groups are attributes (`comm_type`, `comm_size`, `comm_src`, `comm_dst`, `comm_tag`, `pg_name`), as ASTRA-sim reads them.
//! Only what a task graph knows is kept; other messages and attributes are passed over.

mod export;
mod import;
mod messages;
mod wire;

use lightloom_collective::CollectiveKind;

use super::graph::GraphError;

pub use export::{export, groups};
pub use import::import;

const PICOSECONDS_PER_MICROSECOND: u64 = 1_000_000;

/// Why streams are no trace that can be run here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChakraError {
    /// Not protobuf messages behind their lengths.
    #[error("the trace of rank {rank} is broken after {messages} messages: {reason}")]
    Broken {
        /// Which stream.
        rank: u32,
        /// How many messages could be read.
        messages: usize,
        /// What the decoder said.
        reason: String,
    },
    /// A node without what its kind needs.
    #[error("rank {rank}, node {id} `{name}`: {reason}")]
    Node {
        /// Which stream.
        rank: u32,
        /// Its id.
        id: u64,
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The tasks do not make a graph.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// The code of a collective in `CollectiveCommType`.
fn code(kind: CollectiveKind) -> Option<i64> {
    match kind {
        CollectiveKind::AllReduce => Some(0),
        CollectiveKind::AllGather => Some(2),
        CollectiveKind::AllToAll => Some(6),
        CollectiveKind::ReduceScatter => Some(7),
        CollectiveKind::Broadcast | CollectiveKind::Flows => None,
    }
}

fn kind_of(code: u64) -> Option<CollectiveKind> {
    [
        CollectiveKind::AllReduce,
        CollectiveKind::AllGather,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllToAll,
    ]
    .into_iter()
    .find(|kind| self::code(*kind) == i64::try_from(code).ok())
}
