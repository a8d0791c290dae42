// SPDX-License-Identifier: Apache-2.0
//! Converts between task graphs and Chakra execution traces (MLCommons).
//!
//! A trace has one stream per rank: a `GlobalMetadata` message, then `Node` messages, each preceded by its length. A
//! collective is in the stream of every participating rank. The n-th collective of a kind in a process group is the
//! same on all ranks. `comm_size` is the input size of a rank (`comm_size` of mlcommons/chakra's `pytorch_node.py`,
//! `Ring.cc` of ASTRA-sim). Sizes, peers and groups are attributes (`comm_type`, `comm_size`, `comm_src`, `comm_dst`,
//! `comm_tag`, `pg_name`), as in ASTRA-sim. Messages and attributes without an equivalent in a task graph are ignored.

mod export;
mod import;
mod messages;

use lightloom_collective::CollectiveKind;

use super::exchange::Operation;
use super::graph::GraphError;

pub use export::{export, groups};
pub use import::import;

const PICOSECONDS_PER_MICROSECOND: u64 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChakraError {
    #[error("the trace of rank {rank} is corrupt after {messages} messages: {reason}")]
    Broken { rank: u32, messages: usize, reason: String },
    #[error("rank {rank}, node {id} `{name}`: {reason}")]
    Node { rank: u32, id: u64, name: String, reason: String },
    #[error(
        "{exchange}: recorded by rank {with} as node {id}, but the file of rank {lacking} has no such \
         node"
    )]
    Lacking { exchange: String, with: u32, id: u64, lacking: u32 },
    #[error(
        "{exchange}: {bytes} B on rank {rank}, node {id}, but {others} B on rank {other}, node {other_id}"
    )]
    Sizes {
        exchange: String,
        rank: u32,
        id: u64,
        bytes: u64,
        other: u32,
        other_id: u64,
        others: u64,
    },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

const CODES: [(i64, Operation); 10] = [
    (0, Operation::ALL_REDUCE),
    (1, Operation::Reduce),
    (2, Operation::Collective(CollectiveKind::AllGather)),
    (3, Operation::Gather),
    (4, Operation::Scatter),
    (5, Operation::Collective(CollectiveKind::Broadcast)),
    (6, Operation::Collective(CollectiveKind::PAIRWISE)),
    (7, Operation::Collective(CollectiveKind::ReduceScatter)),
    (8, Operation::Collective(CollectiveKind::ReduceScatter)),
    (9, Operation::Barrier),
];

fn code(operation: Operation) -> i64 {
    CODES.iter().find(|(_, known)| *known == operation).map_or(0, |(code, _)| *code)
}

fn operation_of(code: u64) -> Option<Operation> {
    let code = i64::try_from(code).ok()?;
    CODES.iter().find(|(known, _)| *known == code).map(|(_, operation)| *operation)
}
