// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use prost::Message;

use super::messages::{
    AttributeValue, COMM_COLL_NODE, COMM_RECV_NODE, COMM_SEND_NODE, COMP_NODE, ChakraNode,
    GlobalMetadata, attribute,
};
use super::{PICOSECONDS_PER_MICROSECOND, code};
use crate::exchange::Exchange;
use crate::graph::{Task, TaskGraph, TaskWork};
use crate::machine::Machine;

const VERSION: &str = "0.0.4";

/// One stream per rank.
///
/// If a single rank of a ring computes for the whole ring, its compute tasks are written for every
/// member. Durations are rounded to microseconds, the unit of the format.
pub fn export(graph: &TaskGraph, machine: &Machine) -> Vec<Vec<u8>> {
    let mut ring_of = vec![None; machine.ranks as usize];
    for (index, ring) in machine.rings.iter().enumerate() {
        ring.iter().for_each(|rank| ring_of[*rank as usize] = Some(index));
    }
    let mut computing = vec![BTreeSet::new(); machine.rings.len()];
    for task in graph.tasks() {
        if let TaskWork::Compute { rank, .. } = task.work
            && let Some(ring) = ring_of[rank as usize]
        {
            computing[ring].insert(rank);
        }
    }
    let shares = |task: &Task, rank: u32| match &task.work {
        TaskWork::Compute { rank: own, .. } => {
            let ring = ring_of[*own as usize].filter(|ring| computing[*ring].len() == 1);
            *own == rank || (ring.is_some() && ring == ring_of[rank as usize])
        }
        work => work.members(&machine.rings).contains(&rank),
    };
    let groups = groups(graph, machine);
    (0..machine.ranks)
        .map(|rank| {
            let metadata = GlobalMetadata { version: VERSION.to_owned(), attr: Vec::new() };
            let mut stream = metadata.encode_length_delimited_to_vec();
            for (id, task) in
                graph.tasks().iter().enumerate().filter(|(_, task)| shares(task, rank))
            {
                let deps = task.after.iter().filter(|id| shares(&graph.tasks()[id.index()], rank));
                let deps = deps.map(|id| u64::from(id.0)).collect();
                let node = node(id as u64, task, rank, deps, machine, &groups);
                stream.extend(node.encode_length_delimited_to_vec());
            }
            stream
        })
        .collect()
}

/// Sets of ranks that share collectives, by their number in the traces, as in ASTRA-sim's `comm_group.json`.
pub fn groups(graph: &TaskGraph, machine: &Machine) -> Vec<Vec<u32>> {
    let collectives = graph.tasks().iter().filter(|task| task.work.kind().is_some());
    let all = collectives.map(|task| task.work.members(&machine.rings).into_owned());
    all.collect::<BTreeSet<Vec<u32>>>().into_iter().collect()
}

fn node(
    id: u64,
    task: &Task,
    rank: u32,
    data_deps: Vec<u64>,
    machine: &Machine,
    groups: &[Vec<u32>],
) -> ChakraNode {
    let mut attr = vec![attribute("is_cpu_op", AttributeValue::Bool(false))];
    let mut duration_micros = 0;
    let exchange = Exchange::of(&task.work, machine);
    let kind = match &task.work {
        TaskWork::Compute { took, .. } => {
            duration_micros =
                (took.0 + PICOSECONDS_PER_MICROSECOND / 2) / PICOSECONDS_PER_MICROSECOND;
            COMP_NODE
        }
        TaskWork::Ring { .. } | TaskWork::Across { .. } | TaskWork::Pairs { .. } => {
            if let Some(exchange) = exchange {
                // ASTRA-sim parses group names as numbers.
                let group = groups.binary_search(&exchange.members);
                let group = group.map_or_else(|_| String::new(), |place| place.to_string());
                let member = exchange.members.iter().position(|own| *own == rank);
                let size = exchange.input(member.unwrap_or_default());
                attr.extend([
                    attribute("comm_type", AttributeValue::Int64(code(exchange.operation))),
                    attribute("comm_size", AttributeValue::Int64(size as i64)),
                    attribute("pg_name", AttributeValue::Text(group)),
                ]);
            }
            COMM_COLL_NODE
        }
        TaskWork::Transfer { from, to, bytes } => {
            attr.extend([
                attribute("comm_src", AttributeValue::Int32(*from as i32)),
                attribute("comm_dst", AttributeValue::Int32(*to as i32)),
                attribute("comm_tag", AttributeValue::Int32(0)),
                attribute("comm_size", AttributeValue::Int64(bytes.0 as i64)),
            ]);
            if *from == rank { COMM_SEND_NODE } else { COMM_RECV_NODE }
        }
    };
    ChakraNode {
        id,
        name: task.name.clone(),
        kind,
        ctrl_deps: Vec::new(),
        data_deps,
        duration_micros,
        attr,
    }
}
