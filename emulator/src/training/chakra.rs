//! Task graphs as Chakra execution traces (MLCommons), both ways.
//!
//! A trace is one stream a rank: a `GlobalMetadata` message, then `Node` messages, each behind its length. A collective stands in the
//! stream of every rank that takes part; the n-th of its kind in a process group is the same one for all. Sizes, peers
//! and groups are attributes (`comm_type`, `comm_size`, `comm_src`, `comm_dst`, `comm_tag`, `pg_name`), as ASTRA-sim reads them.
//! Only what a task graph knows is kept; other messages and attributes are passed over.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::units::{Bytes, Picoseconds};
use prost::Message;

use super::graph::{GraphError, Task, TaskGraph, TaskId, Work};
use super::replay::Machine;
use crate::collective::Kind;

const VERSION: &str = "0.0.4";
const METADATA_NODE: i32 = 1;
const COMP_NODE: i32 = 4;
const COMM_SEND_NODE: i32 = 5;
const COMM_RECV_NODE: i32 = 6;
const COMM_COLL_NODE: i32 = 7;
const PICOSECONDS_PER_MICROSECOND: u64 = 1_000_000;

/// `GlobalMetadata` of `et_def.proto`.
#[derive(Clone, PartialEq, Message)]
struct GlobalMetadata {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(message, repeated, tag = "2")]
    attr: Vec<Attribute>,
}

/// `AttributeProto`: the scalar kinds that carry numbers and names.
#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(oneof = "Value", tags = "7, 9, 11, 13, 27, 29")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(uint32, tag = "11")]
    Uint32(u32),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(string, tag = "29")]
    Text(String),
}

/// `Node` of `et_def.proto`, without tensors and storage.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    ctrl_deps: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    data_deps: Vec<u64>,
    #[prost(uint64, tag = "6")]
    start_time_micros: u64,
    #[prost(uint64, tag = "7")]
    duration_micros: u64,
    #[prost(message, repeated, tag = "10")]
    attr: Vec<Attribute>,
}

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
fn code(kind: Kind) -> Option<i64> {
    match kind {
        Kind::AllReduce => Some(0),
        Kind::AllGather => Some(2),
        Kind::AllToAll => Some(6),
        Kind::ReduceScatter => Some(7),
        Kind::Broadcast | Kind::Flows => None,
    }
}

fn kind_of(code: u64) -> Option<Kind> {
    [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll]
        .into_iter()
        .find(|kind| self::code(*kind) == i64::try_from(code).ok())
}

fn attribute(name: &str, value: Value) -> Attribute {
    Attribute { name: name.to_owned(), value: Some(value) }
}

/// The trace of `graph` on `machine`, one stream a rank. Where one rank of a ring computes, it stands for
/// all of them and its computing is written for each; its time is rounded to microseconds, the unit of the format.
#[must_use]
pub fn export(graph: &TaskGraph, machine: &Machine) -> Vec<Vec<u8>> {
    let mut ring_of = vec![None; machine.ranks as usize];
    for (index, ring) in machine.rings.iter().enumerate() {
        ring.iter().for_each(|rank| ring_of[*rank as usize] = Some(index));
    }
    // A ring in which one rank computes: it stands for all of them.
    let mut computing = vec![BTreeSet::new(); machine.rings.len()];
    for task in graph.tasks() {
        if let Work::Compute { rank, .. } = task.work
            && let Some(ring) = ring_of[rank as usize]
        {
            computing[ring].insert(rank);
        }
    }
    let shares = |task: &Task, rank: u32| match &task.work {
        Work::Compute { rank: own, .. } => {
            let ring = ring_of[*own as usize].filter(|ring| computing[*ring].len() == 1);
            *own == rank || (ring.is_some() && ring == ring_of[rank as usize])
        }
        Work::Ring { ring, .. } => machine.rings[*ring as usize].contains(&rank),
        Work::Across { ranks, .. } => ranks.contains(&rank),
        Work::Transfer { from, to, .. } => *from == rank || *to == rank,
    };
    (0..machine.ranks)
        .map(|rank| {
            let metadata = GlobalMetadata { version: VERSION.to_owned(), attr: Vec::new() };
            let mut stream = metadata.encode_length_delimited_to_vec();
            for (id, task) in
                graph.tasks().iter().enumerate().filter(|(_, task)| shares(task, rank))
            {
                let own = |id: &&TaskId| shares(&graph.tasks()[id.index()], rank);
                let deps = task.after.iter().filter(own).map(|id| u64::from(id.0)).collect();
                stream.extend(node(id as u64, task, rank, deps).encode_length_delimited_to_vec());
            }
            stream
        })
        .collect()
}

/// A task as a node of the stream of `rank`.
fn node(id: u64, task: &Task, rank: u32, data_deps: Vec<u64>) -> Node {
    let mut attr = vec![attribute("is_cpu_op", Value::Bool(false))];
    let mut duration_micros = 0;
    let collective = |kind: Kind, bytes: Bytes, group: String| {
        [
            attribute("comm_type", Value::Int64(code(kind).unwrap_or_default())),
            attribute("comm_size", Value::Int64(bytes.0 as i64)),
            attribute("pg_name", Value::Text(group)),
        ]
    };
    let kind = match &task.work {
        Work::Compute { took, .. } => {
            duration_micros =
                (took.0 + PICOSECONDS_PER_MICROSECOND / 2) / PICOSECONDS_PER_MICROSECOND;
            COMP_NODE
        }
        Work::Ring { kind, ring, bytes } => {
            attr.extend(collective(*kind, *bytes, format!("ring {ring}")));
            COMM_COLL_NODE
        }
        Work::Across { kind, ranks, bytes } => {
            let name: Vec<String> = ranks.iter().map(ToString::to_string).collect();
            attr.extend(collective(*kind, *bytes, format!("ranks {}", name.join(" "))));
            COMM_COLL_NODE
        }
        Work::Transfer { from, to, bytes } => {
            attr.extend([
                attribute("comm_src", Value::Int32(*from as i32)),
                attribute("comm_dst", Value::Int32(*to as i32)),
                attribute("comm_tag", Value::Int32(0)),
                attribute("comm_size", Value::Int64(bytes.0 as i64)),
            ]);
            if *from == rank { COMM_SEND_NODE } else { COMM_RECV_NODE }
        }
    };
    Node {
        id,
        name: task.name.clone(),
        kind,
        ctrl_deps: Vec::new(),
        data_deps,
        start_time_micros: 0,
        duration_micros,
        attr,
    }
}

/// The graph of a trace, `streams[rank]` being the stream of a rank. A collective whose ranks are those of one of
/// `rings` runs on it; others run over the data-centre network.
///
/// # Errors
/// Streams that cannot be read, nodes that lack what they need, and collectives that are not known here.
pub fn import(streams: &[&[u8]], rings: &[Vec<u32>]) -> Result<TaskGraph, ChakraError> {
    let mut reader = Reader::default();
    for (rank, stream) in streams.iter().enumerate() {
        reader.read(rank as u32, stream)?;
    }
    reader.finish(rings)
}

/// What ranks share one task: a collective or the two ends of a transfer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    Collective { group: String, kind: u64, nth: usize },
    Transfer { from: u64, to: u64, tag: u64, nth: usize },
}

#[derive(Default)]
struct Reader {
    tasks: Vec<Task>,
    /// Ranks that take part, by task; used for collectives.
    ranks: Vec<Vec<u32>>,
    shared: BTreeMap<Shared, usize>,
    /// By rank and node id: the task, and what it waits for.
    places: BTreeMap<(u32, u64), usize>,
    waits: Vec<(u32, usize, Vec<u64>)>,
}

impl Reader {
    fn read(&mut self, rank: u32, mut stream: &[u8]) -> Result<(), ChakraError> {
        let mut messages = 0;
        let broken = |messages: usize, error: prost::DecodeError| ChakraError::Broken {
            rank,
            messages,
            reason: error.to_string(),
        };
        GlobalMetadata::decode_length_delimited(&mut stream).map_err(|e| broken(messages, e))?;
        let mut seen = BTreeMap::new();
        while !stream.is_empty() {
            messages += 1;
            let node =
                Node::decode_length_delimited(&mut stream).map_err(|e| broken(messages, e))?;
            self.place(rank, node, &mut seen)?;
        }
        Ok(())
    }

    fn place(
        &mut self,
        rank: u32,
        node: Node,
        seen: &mut BTreeMap<Shared, usize>,
    ) -> Result<(), ChakraError> {
        let wrong = |reason: &str| ChakraError::Node {
            rank,
            id: node.id,
            name: node.name.clone(),
            reason: reason.to_owned(),
        };
        let number = |name: &str| {
            number(&node.attr, name).ok_or_else(|| wrong(&format!("it has no attribute `{name}`")))
        };
        let mut nth = |key: fn(String, u64, u64, u64) -> Shared, group: String, a, b, c| {
            let count = seen.entry(key(group.clone(), a, b, c)).or_insert(0);
            *count += 1;
            *count - 1
        };
        let (shared, work) = match node.kind {
            COMM_COLL_NODE => {
                let code = number("comm_type")?;
                let kind = kind_of(code).ok_or_else(|| {
                    wrong(&format!("`comm_type` {code} cannot be run: all-reduce 0, all-gather 2, all-to-all 6 and reduce-scatter 7 can"))
                })?;
                let bytes = Bytes(number("comm_size")?);
                let group = text(&node.attr, "pg_name").unwrap_or_default();
                let key = |group, kind, _, _| Shared::Collective { group, kind, nth: 0 };
                let nth = nth(key, group.clone(), code, 0, 0);
                let shared = Shared::Collective { group, kind: code, nth };
                (Some(shared), Work::Across { kind, ranks: Vec::new(), bytes })
            }
            COMM_SEND_NODE | COMM_RECV_NODE => {
                let is_send = node.kind == COMM_SEND_NODE;
                // Generators leave out the end that is the rank itself.
                let end = |name: &str, is_own: bool| {
                    if is_own { number(name).or(Ok(rank.into())) } else { number(name) }
                };
                let (from, to) = (end("comm_src", is_send)?, end("comm_dst", !is_send)?);
                let tag = number("comm_tag").unwrap_or_default();
                let bytes = Bytes(number("comm_size")?);
                let key = |_, from, to, tag| Shared::Transfer { from, to, tag, nth: 0 };
                let nth = nth(key, String::new(), from, to, tag);
                let work = Work::Transfer { from: from as u32, to: to as u32, bytes };
                (Some(Shared::Transfer { from, to, tag, nth }), work)
            }
            COMP_NODE
                if node.duration_micros == 0 && self::number(&node.attr, "num_ops").is_some() =>
            {
                return Err(wrong("it gives operations (`num_ops`) and no duration"));
            }
            METADATA_NODE => (None, Work::Compute { rank, took: Picoseconds::ZERO }),
            _ => {
                let took = Picoseconds(node.duration_micros * PICOSECONDS_PER_MICROSECOND);
                (None, Work::Compute { rank, took })
            }
        };
        let known = shared.as_ref().and_then(|shared| self.shared.get(shared)).copied();
        let task = known.unwrap_or_else(|| {
            self.tasks.push(Task { name: node.name.clone(), after: Vec::new(), work });
            self.ranks.push(Vec::new());
            self.tasks.len() - 1
        });
        self.shared.extend(shared.map(|shared| (shared, task)));
        self.ranks[task].push(rank);
        if self.places.insert((rank, node.id), task).is_some() {
            return Err(wrong("the same id stands twice in this stream"));
        }
        let waits = node.ctrl_deps.iter().chain(&node.data_deps).copied().collect();
        self.waits.push((rank, task, waits));
        Ok(())
    }

    fn finish(mut self, rings: &[Vec<u32>]) -> Result<TaskGraph, ChakraError> {
        for (rank, task, waits) in &self.waits {
            for id in waits {
                let Some(before) = self.places.get(&(*rank, *id)) else {
                    return Err(ChakraError::Node {
                        rank: *rank,
                        id: *id,
                        name: self.tasks[*task].name.clone(),
                        reason: "it waits for this id, which is not in its stream".to_owned(),
                    });
                };
                self.tasks[*task].after.push(TaskId(*before as u32));
            }
        }
        for (task, ranks) in self.tasks.iter_mut().zip(self.ranks) {
            task.after.sort_unstable();
            task.after.dedup();
            let Work::Across { kind, bytes, .. } = task.work else { continue };
            let ring = rings.iter().position(|ring| {
                let mut sorted = ring.clone();
                sorted.sort_unstable();
                sorted == ranks
            });
            task.work = match ring {
                Some(ring) if kind != Kind::AllToAll => {
                    Work::Ring { kind, ring: ring as u32, bytes }
                }
                _ => Work::Across { kind, ranks, bytes },
            };
        }
        Ok(TaskGraph::new(self.tasks)?)
    }
}

fn number(attributes: &[Attribute], name: &str) -> Option<u64> {
    let attribute = attributes.iter().find(|attribute| attribute.name == name)?;
    match attribute.value.as_ref()? {
        Value::Int32(value) => u64::try_from(*value).ok(),
        Value::Int64(value) => u64::try_from(*value).ok(),
        Value::Uint32(value) => Some((*value).into()),
        Value::Uint64(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

fn text(attributes: &[Attribute], name: &str) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.name == name)?;
    match attribute.value.as_ref()? {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}
