// SPDX-License-Identifier: Apache-2.0
//! Reads Chakra streams into a task graph.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_collective::CollectiveKind;
use lightloom_units::{Bytes, Picoseconds};

use super::messages::{
    COMM_COLL_NODE, COMM_RECV_NODE, COMM_SEND_NODE, COMP_NODE, ChakraNode, GlobalMetadata,
    METADATA_NODE, number, text,
};
use super::wire::WireError;
use super::{ChakraError, PICOSECONDS_PER_MICROSECOND, kind_of};
use crate::graph::{Task, TaskGraph, TaskId, TaskWork};

/// Builds the graph of a trace, with one stream per rank. A collective whose ranks form one of
/// `rings` runs on that ring; others run over the data-centre network.
///
/// # Errors
/// If a stream cannot be decoded, a node lacks a required attribute, or a collective is not
/// supported.
pub fn import(streams: &[&[u8]], rings: &[Vec<u32>]) -> Result<TaskGraph, ChakraError> {
    let mut reader = Reader::default();
    for (rank, stream) in streams.iter().enumerate() {
        reader.read(rank as u32, stream)?;
    }
    reader.finish(rings)
}

/// Identifies the one task that nodes of several ranks share.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SharedNode {
    Collective { group: String, kind: u64, nth: usize },
    Transfer { from: u64, to: u64, tag: u64, nth: usize },
}

#[derive(Default)]
struct Reader {
    tasks: Vec<Task>,
    /// Ranks that take part in each task.
    ranks: Vec<Vec<u32>>,
    /// Duration of each task, as recorded by its first rank.
    recorded: Vec<Picoseconds>,
    shared: BTreeMap<SharedNode, usize>,
    /// Task of each pair of rank and node id.
    places: BTreeMap<(u32, u64), usize>,
    waits: Vec<(u32, usize, Vec<u64>)>,
    /// Ranks with a stream from PyTorch's execution trace observer.
    observed: BTreeSet<u32>,
}

impl Reader {
    fn read(&mut self, rank: u32, mut stream: &[u8]) -> Result<(), ChakraError> {
        let mut messages = 0;
        let broken = |messages: usize, error: WireError| ChakraError::Broken {
            rank,
            messages,
            reason: error.to_string(),
        };
        let metadata = GlobalMetadata::read(&mut stream).map_err(|e| broken(messages, e))?;
        if text(&metadata.attr, "schema").is_some() {
            self.observed.insert(rank);
        }
        let mut seen = BTreeMap::new();
        while !stream.is_empty() {
            messages += 1;
            let node = ChakraNode::read(&mut stream).map_err(|e| broken(messages, e))?;
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
        let wrong = |reason: String| node_error(rank, &node, reason);
        let (shared, work) = meaning(rank, &node, seen).map_err(wrong)?;
        let known = shared.as_ref().and_then(|shared| self.shared.get(shared)).copied();
        let task = known.unwrap_or_else(|| {
            self.tasks.push(Task { name: node.name.clone(), after: Vec::new(), work });
            self.ranks.push(Vec::new());
            let took = Picoseconds(node.duration_micros * PICOSECONDS_PER_MICROSECOND);
            self.recorded.push(took);
            self.tasks.len() - 1
        });
        self.shared.extend(shared.map(|shared| (shared, task)));
        self.ranks[task].push(rank);
        if self.places.insert((rank, node.id), task).is_some() {
            return Err(wrong("the same id appears twice in this stream".to_owned()));
        }
        let waits = node.ctrl_deps.iter().chain(&node.data_deps).copied().collect();
        self.waits.push((rank, task, waits));
        Ok(())
    }

    fn finish(mut self, rings: &[Vec<u32>]) -> Result<TaskGraph, ChakraError> {
        for (rank, task, waits) in &self.waits {
            for id in waits {
                let Some(before) = self.places.get(&(*rank, *id)) else {
                    // PyTorch's observer omits nodes from before it started, so dependencies on
                    // them are dropped.
                    if self.observed.contains(rank) {
                        continue;
                    }
                    return Err(ChakraError::Node {
                        rank: *rank,
                        id: *id,
                        name: self.tasks[*task].name.clone(),
                        reason: "it waits for this id, which is not in its stream".to_owned(),
                    });
                };
                // The observer also records mutual dependencies of callers and callees. Keep only
                // those on earlier tasks.
                if !self.observed.contains(rank) || before < task {
                    self.tasks[*task].after.push(TaskId(*before as u32));
                }
            }
        }
        for ((task, ranks), took) in self.tasks.iter_mut().zip(self.ranks).zip(self.recorded) {
            task.after.sort_unstable();
            task.after.dedup();
            let TaskWork::Across { kind, bytes, .. } = task.work else { continue };
            if let ([rank], true) = (&ranks[..], took > Picoseconds::ZERO) {
                // The streams of the other ranks are missing, so use the duration that this rank
                // recorded.
                task.work = TaskWork::Compute { rank: *rank, took };
                continue;
            }
            let ring = rings.iter().position(|ring| {
                let mut sorted = ring.clone();
                sorted.sort_unstable();
                sorted == ranks
            });
            task.work = match ring {
                Some(ring) if kind != CollectiveKind::AllToAll => {
                    TaskWork::Ring { kind, ring: ring as u32, bytes }
                }
                _ => TaskWork::Across { kind, ranks, bytes },
            };
        }
        Ok(TaskGraph::new(self.tasks)?)
    }
}

/// Returns the work of a node and its identity across ranks. `seen` counts the equal nodes of this
/// rank.
fn meaning(
    rank: u32,
    node: &ChakraNode,
    seen: &mut BTreeMap<SharedNode, usize>,
) -> Result<(Option<SharedNode>, TaskWork), String> {
    let number = |name: &str| {
        number(&node.attr, name).ok_or_else(|| format!("it has no attribute `{name}`"))
    };
    let mut nth = |first: SharedNode| {
        let count = seen.entry(first).or_insert(0);
        *count += 1;
        *count - 1
    };
    Ok(match node.kind {
        // PyTorch marks calls of its communication library with this kind but without the exchanged
        // data.
        COMM_COLL_NODE if self::number(&node.attr, "comm_type").is_none() => {
            let took = Picoseconds(node.duration_micros * PICOSECONDS_PER_MICROSECOND);
            (None, TaskWork::Compute { rank, took })
        }
        COMM_COLL_NODE => {
            let code = number("comm_type")?;
            if kind_of(code).is_none() && node.duration_micros > 0 {
                // A recorded collective that is not supported becomes computing of the recorded
                // duration.
                let took = Picoseconds(node.duration_micros * PICOSECONDS_PER_MICROSECOND);
                return Ok((None, TaskWork::Compute { rank, took }));
            }
            let kind = kind_of(code).ok_or_else(|| {
                format!("`comm_type` {code} cannot be run: all-reduce 0, all-gather 2, all-to-all 6 and reduce-scatter 7 can")
            })?;
            let bytes = Bytes(number("comm_size")?);
            let group = text(&node.attr, "pg_name").unwrap_or_default();
            let shared = |nth| SharedNode::Collective { group: group.clone(), kind: code, nth };
            let nth = nth(shared(0));
            (Some(shared(nth)), TaskWork::Across { kind, ranks: Vec::new(), bytes })
        }
        COMM_SEND_NODE | COMM_RECV_NODE => {
            let is_send = node.kind == COMM_SEND_NODE;
            // Some generators omit the end that is the rank itself.
            let end = |name: &str, is_own: bool| {
                if is_own { number(name).or(Ok(rank.into())) } else { number(name) }
            };
            let (from, to) = (end("comm_src", is_send)?, end("comm_dst", !is_send)?);
            let tag = number("comm_tag").unwrap_or_default();
            let bytes = Bytes(number("comm_size")?);
            let shared = |nth| SharedNode::Transfer { from, to, tag, nth };
            let nth = nth(shared(0));
            let work = TaskWork::Transfer { from: from as u32, to: to as u32, bytes };
            (Some(shared(nth)), work)
        }
        COMP_NODE if node.duration_micros == 0 && number("num_ops").is_ok() => {
            return Err("it gives operations (`num_ops`) and no duration".to_owned());
        }
        METADATA_NODE => (None, TaskWork::Compute { rank, took: Picoseconds::ZERO }),
        _ => {
            let took = Picoseconds(node.duration_micros * PICOSECONDS_PER_MICROSECOND);
            (None, TaskWork::Compute { rank, took })
        }
    })
}

fn node_error(rank: u32, node: &ChakraNode, reason: String) -> ChakraError {
    ChakraError::Node { rank, id: node.id, name: node.name.clone(), reason }
}
