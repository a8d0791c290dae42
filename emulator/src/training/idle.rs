// SPDX-License-Identifier: Apache-2.0
//! Computes a step's duration without contention: each distinct exchange is simulated separately,
//! packet by packet, and the tasks are scheduled with these durations.

use lightloom_collective::CollectiveKind;
use lightloom_training::graph::{Task, TaskGraph, TaskId, TaskPace, TaskPaces, TaskWork};
use lightloom_training::longest_path::play;
use lightloom_training::machine::Machine;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rustc_hash::FxHashMap;

use super::replay::{RingReuse, replay};
use crate::run::RunError;

pub(super) fn end(graph: &TaskGraph, machine: &Machine) -> Result<SimTime, RunError> {
    let domains = machine.domain_of();
    let mut places: FxHashMap<Exchange, usize> = FxHashMap::default();
    let (mut tasks, mut paces): (Vec<Task>, TaskPaces) = Default::default();
    let exchanges: Vec<Option<usize>> = (0u32..)
        .zip(graph.tasks())
        .map(|(id, task)| {
            let pace = graph.pace(TaskId(id));
            let exchange = Exchange::of(&task.work, pace, &domains)?;
            Some(*places.entry(exchange).or_insert_with(|| {
                let after = tasks.len().checked_sub(1).map(|last| TaskId(last as u32));
                let after = after.into_iter().collect();
                tasks.push(Task { name: task.name.clone(), after, work: task.work.clone() });
                paces.push(pace);
                tasks.len() - 1
            }))
        })
        .collect();
    let distinct = TaskGraph::new(tasks).expect("tasks are created in order").with_paces(paces);
    let alone = replay(&distinct, machine, RingReuse::IdleRings, &mut ())?.spans;
    let took =
        exchanges.iter().zip(graph.tasks()).map(|(exchange, task)| match (exchange, &task.work) {
            (Some(place), _) => alone[*place].1.since(alone[*place].0),
            (None, TaskWork::Compute { took, .. }) => *took,
            (None, _) => Picoseconds::ZERO,
        });
    let spans = play(graph, &took.collect::<Vec<_>>());
    Ok(spans.iter().map(|span| span.1).max().unwrap_or(SimTime::START))
}

/// An exchange without the identities of its ranks. Equal exchanges take equally long on idle links.
#[derive(PartialEq, Eq, Hash)]
struct Exchange {
    kind: Option<CollectiveKind>,
    bytes: Bytes,
    pace: TaskPace,
    /// The domain of each rank, numbered in order of appearance; empty for a ring.
    domains: Vec<Option<u32>>,
}

impl Exchange {
    fn of(work: &TaskWork, pace: TaskPace, domains: &[Option<u32>]) -> Option<Self> {
        let numbered = |ranks: &[u32]| {
            let mut seen = Vec::new();
            let number = |rank: &u32| {
                let domain = domains[*rank as usize]?;
                let known = seen.iter().position(|one| *one == domain).unwrap_or_else(|| {
                    seen.push(domain);
                    seen.len() - 1
                });
                Some(known as u32)
            };
            ranks.iter().map(number).collect()
        };
        let (kind, bytes, domains) = match work {
            TaskWork::Ring { kind, bytes, .. } => (Some(*kind), *bytes, Vec::new()),
            TaskWork::Across { kind, ranks, bytes } => (Some(*kind), *bytes, numbered(ranks)),
            TaskWork::Transfer { from, to, bytes } => (None, *bytes, numbered(&[*from, *to])),
            TaskWork::Compute { .. } | TaskWork::Pairs { .. } => return None,
        };
        Some(Self { kind, bytes, pace, domains })
    }
}
