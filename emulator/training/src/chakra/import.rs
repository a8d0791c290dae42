// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::{Bytes, Picoseconds};
use prost::Message;

use super::messages::{
    COMM_COLL_NODE, COMM_RECV_NODE, COMM_SEND_NODE, COMP_NODE, ChakraNode, GlobalMetadata,
    METADATA_NODE, number, text,
};
use super::{CODES, ChakraError, PICOSECONDS_PER_MICROSECOND, operation_of};
use crate::exchange::{Exchange, Operation, Share, Size, pairs};
use crate::graph::{Task, TaskGraph, TaskId, TaskWork};

/// Expects one stream per rank. A collective whose ranks form one of `rings` runs on that ring, and all others run on
/// the data-centre network. Fails if a stream cannot be decoded, a node lacks a required attribute, a collective is not
/// supported, or ranks disagree about an exchange.
pub fn import(streams: &[&[u8]], rings: &[Vec<u32>]) -> Result<TaskGraph, ChakraError> {
    let mut reader = Reader { streams: streams.len() as u32, ..Reader::default() };
    for (rank, stream) in streams.iter().enumerate() {
        reader.read(rank as u32, stream)?;
    }
    reader.finish(rings)
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SharedNode {
    Collective { group: String, operation: Operation, nth: usize },
    Transfer { from: u32, to: u32, tag: u64, nth: usize },
}

impl SharedNode {
    fn name(&self) -> String {
        match self {
            Self::Collective { group, operation, nth } if group.is_empty() => {
                format!("{} number {} of all ranks", operation.name(), nth + 1)
            }
            Self::Collective { group, operation, nth } => {
                format!("{} number {} of group `{group}`", operation.name(), nth + 1)
            }
            Self::Transfer { from, to, tag, nth } => {
                format!("message number {} from rank {from} to rank {to} with tag {tag}", nth + 1)
            }
        }
    }
}

#[derive(Clone, Copy)]
struct NodeEnd {
    rank: u32,
    id: u64,
    bytes: u64,
}

#[derive(Default)]
struct Reader {
    streams: u32,
    tasks: Vec<Task>,
    ends: Vec<Vec<NodeEnd>>,
    shared: BTreeMap<SharedNode, usize>,
    places: BTreeMap<(u32, u64), usize>,
    waits: Vec<(u32, usize, Vec<u64>)>,
    observed: BTreeSet<u32>,
}

impl Reader {
    fn read(&mut self, rank: u32, mut stream: &[u8]) -> Result<(), ChakraError> {
        let mut messages = 0;
        let metadata: GlobalMetadata = decoded(&mut stream, rank, messages)?;
        if text(&metadata.attr, "schema").is_some() {
            self.observed.insert(rank);
        }
        let mut seen = BTreeMap::new();
        while !stream.is_empty() {
            messages += 1;
            let node = decoded(&mut stream, rank, messages)?;
            self.place(rank, node, &mut seen)?;
        }
        Ok(())
    }

    fn place(
        &mut self,
        rank: u32,
        node: ChakraNode,
        seen: &mut BTreeMap<SharedNode, usize>,
    ) -> Result<(), ChakraError> {
        let shared =
            meaning(rank, &node, seen).map_err(|reason| node_error(rank, &node, reason))?;
        let bytes = shared.as_ref().map_or(0, |(_, bytes)| *bytes);
        let shared = shared.map(|(shared, _)| shared);
        let known = shared.as_ref().and_then(|shared| self.shared.get(shared)).copied();
        let task = known.unwrap_or_else(|| {
            let micros = if node.kind == METADATA_NODE { 0 } else { node.duration_micros };
            let took = Picoseconds(micros * PICOSECONDS_PER_MICROSECOND);
            let work = TaskWork::Compute { rank, took };
            self.tasks.push(Task { name: node.name.clone(), after: Vec::new(), work });
            self.ends.push(Vec::new());
            self.tasks.len() - 1
        });
        self.shared.extend(shared.map(|shared| (shared, task)));
        self.ends[task].push(NodeEnd { rank, id: node.id, bytes });
        if self.places.insert((rank, node.id), task).is_some() {
            let reason = "the same id appears twice in this stream".to_owned();
            return Err(node_error(rank, &node, reason));
        }
        let waits = node.ctrl_deps.iter().chain(&node.data_deps).copied().collect();
        self.waits.push((rank, task, waits));
        Ok(())
    }

    fn finish(mut self, rings: &[Vec<u32>]) -> Result<TaskGraph, ChakraError> {
        self.wait()?;
        let groups = self.groups();
        for (shared, task) in &self.shared {
            let ends = &self.ends[*task];
            let own = &mut self.tasks[*task];
            let expected: Vec<u32> = match shared {
                SharedNode::Collective { group, .. } => groups[group].iter().copied().collect(),
                SharedNode::Transfer { from, to, .. } => vec![*from, *to],
            };
            // The streams of the other ranks are missing, so use the recorded duration.
            let is_timed = matches!(own.work, TaskWork::Compute { took, .. } if took.0 > 0);
            if self.streams == 1 && is_timed {
                continue;
            }
            if self.streams > 1 {
                agree(shared, ends, &expected)?;
            }
            own.work = match *shared {
                SharedNode::Collective { operation, .. } => work(operation, ends, rings),
                SharedNode::Transfer { from, to, .. } => {
                    TaskWork::Transfer { from, to, bytes: Bytes(ends[0].bytes) }
                }
            };
        }
        Ok(TaskGraph::new(self.tasks)?)
    }

    /// Returns the ranks of each group, taken from its collectives. Groups without a name contain all ranks.
    fn groups(&self) -> BTreeMap<String, BTreeSet<u32>> {
        let mut groups: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for (shared, task) in &self.shared {
            if let SharedNode::Collective { group, .. } = shared {
                let ranks = groups.entry(group.clone()).or_default();
                ranks.extend(self.ends[*task].iter().map(|end| end.rank));
            }
        }
        if let Some(all) = groups.get_mut("") {
            all.extend(0..self.streams);
        }
        groups
    }

    fn wait(&mut self) -> Result<(), ChakraError> {
        for (rank, task, waits) in &self.waits {
            for id in waits {
                let Some(before) = self.places.get(&(*rank, *id)) else {
                    // PyTorch's observer omits nodes that precede its start.
                    if self.observed.contains(rank) {
                        continue;
                    }
                    return Err(ChakraError::Node {
                        rank: *rank,
                        id: *id,
                        name: self.tasks[*task].name.clone(),
                        reason: "it waits for an id that is not in its stream".to_owned(),
                    });
                };
                // The observer also records mutual dependencies. Keep only dependencies on earlier tasks.
                if !self.observed.contains(rank) || before < task {
                    self.tasks[*task].after.push(TaskId(*before as u32));
                }
            }
        }
        for task in &mut self.tasks {
            task.after.sort_unstable();
            task.after.dedup();
        }
        Ok(())
    }
}

/// All ranks must have the exchange with the same size; parts of an all-to-all may differ.
fn agree(shared: &SharedNode, ends: &[NodeEnd], expected: &[u32]) -> Result<(), ChakraError> {
    let Some(NodeEnd { rank, id, bytes }) = ends.first().copied() else { return Ok(()) };
    let mut expected = expected.iter().copied();
    if let Some(lacking) = expected.find(|rank| ends.iter().all(|end| end.rank != *rank)) {
        return Err(ChakraError::Lacking { exchange: shared.name(), with: rank, id, lacking });
    }
    let may_differ =
        matches!(shared, SharedNode::Collective { operation, .. } if operation.is_pairwise());
    match ends.iter().find(|end| end.bytes != bytes && !may_differ) {
        Some(NodeEnd { rank: other, id: other_id, bytes: others }) => Err(ChakraError::Sizes {
            exchange: shared.name(),
            rank,
            id,
            bytes,
            other: *other,
            other_id: *other_id,
            others: *others,
        }),
        None => Ok(()),
    }
}

fn work(operation: Operation, ends: &[NodeEnd], rings: &[Vec<u32>]) -> TaskWork {
    let ranks: Vec<u32> = ends.iter().map(|end| end.rank).collect();
    let sum: u64 = ends.iter().map(|end| end.bytes).sum();
    let input = sum / ends.len().max(1) as u64;
    let mut exchange = Exchange::new(operation, ranks, Size::Input(input));
    if operation.is_pairwise() {
        let shares =
            ends.iter().map(|end| Share { sent: end.bytes, received: input, parts: vec![] });
        exchange.pairs = pairs(&shares.map(Some).collect::<Vec<_>>());
    }
    let ring = rings.iter().position(|ring| {
        let mut sorted = ring.clone();
        sorted.sort_unstable();
        sorted == exchange.members
    });
    ring.map_or_else(|| exchange.work(), |ring| exchange.on_ring(ring as u32))
}

/// Returns the node's identity across ranks and its input size. `None` for computing. `seen` counts equal nodes.
fn meaning(
    rank: u32,
    node: &ChakraNode,
    seen: &mut BTreeMap<SharedNode, usize>,
) -> Result<Option<(SharedNode, u64)>, String> {
    let (mut shared, size) = match node.kind {
        COMM_COLL_NODE => {
            // PyTorch also uses this kind for library calls, but without the exchanged data.
            let Ok(code) = needed(node, "comm_type") else { return Ok(None) };
            let Some(operation) = operation_of(code) else {
                // An unknown recorded collective is treated as computing of the recorded duration.
                if node.duration_micros > 0 {
                    return Ok(None);
                }
                let known = CODES.map(|(code, known)| format!("{} {code}", known.name()));
                return Err(format!("`comm_type` {code} is not known: {}", known.join(", ")));
            };
            let bytes =
                if operation == Operation::Barrier { 0 } else { needed(node, "comm_size")? };
            let group = text(&node.attr, "pg_name").unwrap_or_default();
            (SharedNode::Collective { group, operation, nth: 0 }, bytes)
        }
        COMM_SEND_NODE | COMM_RECV_NODE => {
            let is_send = node.kind == COMM_SEND_NODE;
            let (own_end, other_end) =
                if is_send { ("comm_src", "comm_dst") } else { ("comm_dst", "comm_src") };
            // Some generators omit the end that is the rank itself.
            let own = number(&node.attr, own_end).map_or(rank, |rank| rank as u32);
            let other = needed(node, other_end)? as u32;
            let (from, to) = if is_send { (own, other) } else { (other, own) };
            let tag = number(&node.attr, "comm_tag").unwrap_or_default();
            (SharedNode::Transfer { from, to, tag, nth: 0 }, needed(node, "comm_size")?)
        }
        COMP_NODE if node.duration_micros == 0 && number(&node.attr, "num_ops").is_some() => {
            return Err("it has operations (`num_ops`) but no duration".to_owned());
        }
        _ => return Ok(None),
    };
    let count = seen.entry(shared.clone()).or_insert(0);
    match &mut shared {
        SharedNode::Collective { nth, .. } | SharedNode::Transfer { nth, .. } => *nth = *count,
    }
    *count += 1;
    Ok(Some((shared, size)))
}

fn needed(node: &ChakraNode, name: &str) -> Result<u64, String> {
    number(&node.attr, name).ok_or_else(|| format!("the attribute `{name}` is missing"))
}

fn decoded<M: Message + Default>(
    stream: &mut &[u8],
    rank: u32,
    messages: usize,
) -> Result<M, ChakraError> {
    M::decode_length_delimited(stream).map_err(|error| ChakraError::Broken {
        rank,
        messages,
        reason: error.to_string(),
    })
}

fn node_error(rank: u32, node: &ChakraNode, reason: String) -> ChakraError {
    ChakraError::Node { rank, id: node.id, name: node.name.clone(), reason }
}
