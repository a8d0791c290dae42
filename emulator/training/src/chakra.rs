// SPDX-License-Identifier: Apache-2.0
//! Converts between task graphs and Chakra execution traces (MLCommons).
//!
//! A trace has one stream per rank: a `GlobalMetadata` message, then `Node` messages, each preceded
//! by its length. A collective is in the stream of every rank that takes part, and the n-th
//! collective of a kind in a process group is the same one on all ranks. Sizes, peers and groups
//! are attributes (`comm_type`, `comm_size`, `comm_src`, `comm_dst`, `comm_tag`, `pg_name`), as
//! ASTRA-sim reads them. Messages and attributes without an equivalent in a task graph are ignored.

mod export;
mod import;
mod messages;
mod wire;

use lightloom_collective::CollectiveKind;

use super::graph::GraphError;

pub use export::{export, groups};
pub use import::import;

const PICOSECONDS_PER_MICROSECOND: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChakraError {
    /// The stream is not a sequence of length-prefixed protobuf messages.
    #[error("the trace of rank {rank} is broken after {messages} messages: {reason}")]
    Broken { rank: u32, messages: usize, reason: String },
    /// A node lacks an attribute that its kind requires, or is inconsistent.
    #[error("rank {rank}, node {id} `{name}`: {reason}")]
    Node { rank: u32, id: u64, name: String, reason: String },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

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
