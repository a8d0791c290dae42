// SPDX-License-Identifier: Apache-2.0
//! Runs a step with too many packets to simulate each: every distinct exchange is simulated once on
//! idle links. Exchanges on the same link of a rank run one after the other, at the full rate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::slice;

use lightloom_training::graph::{Schedule, TaskGraph, TaskWork};
use lightloom_training::machine::Machine;
use lightloom_units::SimTime;
use rustc_hash::FxHashMap;

use super::idle::{IdleTimes, packet_hops};
use super::packets::HOPS_BUDGET;
use super::replay::TaskTimes;
use crate::run::{Progress, RunError};

/// Returns whether `graph` has too many packets for [`replay`](super::replay::replay).
pub fn is_needed(graph: &TaskGraph, machine: &Machine) -> bool {
    let hops = graph.tasks().iter().map(|task| packet_hops(&task.work, machine));
    hops.sum::<f64>() > HOPS_BUDGET
}

/// Runs `graph` on `machine`.
///
/// # Errors
/// Fails if the graph refers to something that the machine lacks.
pub fn run(
    graph: &TaskGraph,
    machine: &Machine,
    progress: &mut dyn Progress,
) -> Result<TaskTimes, RunError> {
    let IdleTimes { took, packet_hops, reused } = IdleTimes::of(graph, machine, progress)?;
    let domains = machine.domain_of();
    let mut spans = vec![(SimTime::START, SimTime::START); took.len()];
    let mut free: FxHashMap<u32, SimTime> = FxHashMap::default();
    let mut schedule = Schedule::of(graph);
    let first = schedule.ready().into_iter().map(|id| Reverse((SimTime::START, id)));
    let mut ready: BinaryHeap<_> = first.collect();
    while let Some(Reverse((at, id))) = ready.pop() {
        let links = links_of(&graph.tasks()[id.index()].work, machine, &domains);
        let start = links.iter().filter_map(|link| free.get(link)).copied().fold(at, SimTime::max);
        let end = start + took[id.index()];
        free.extend(links.into_iter().map(|link| (link, end)));
        spans[id.index()] = (start, end);
        for next in schedule.finish(id) {
            let after = graph.tasks()[next.index()].after.iter();
            let at = after.map(|before| spans[before.index()].1).max().unwrap_or(end);
            ready.push(Reverse((at, next)));
        }
    }
    let end = spans.iter().map(|span| span.1).max().unwrap_or(SimTime::START);
    Ok(TaskTimes { spans, end, packet_hops, reused })
}

/// Numbers the links from ranks and to ranks, inside domains and outside. Computation has none.
fn links_of(work: &TaskWork, machine: &Machine, domains: &[Option<u32>]) -> Vec<u32> {
    let (from, to) = match work {
        TaskWork::Compute { .. } => return Vec::new(),
        TaskWork::Transfer { from, to, .. } => (slice::from_ref(from), slice::from_ref(to)),
        TaskWork::Ring { ring, .. } => {
            let ring = &*machine.rings[*ring as usize];
            (ring, ring)
        }
        TaskWork::Across { ranks, .. } | TaskWork::Pairs { ranks, .. } => (&**ranks, &**ranks),
    };
    let mut of_ranks = from.iter().chain(to).map(|rank| domains[*rank as usize]);
    let first = of_ranks.next().flatten();
    let is_inside = matches!(work, TaskWork::Ring { .. })
        || first.is_some() && of_ranks.all(|domain| domain == first);
    let links = 2 * u32::from(is_inside);
    let out = from.iter().map(|rank| 4 * rank + links);
    out.chain(to.iter().map(|rank| 4 * rank + links + 1)).collect()
}
