// SPDX-License-Identifier: Apache-2.0

use lightloom_units::{Picoseconds, SimTime};
use serde::Serialize;

use super::graph::{Schedule, TaskGraph, TaskId, TaskWork};

/// Starts every task as soon as its dependencies have ended. Panics if the numbers of durations and tasks differ.
pub fn play(graph: &TaskGraph, took: &[Picoseconds]) -> Vec<(SimTime, SimTime)> {
    assert_eq!(took.len(), graph.tasks().len(), "one duration per task");
    let mut schedule = Schedule::of(graph);
    let mut ready = schedule.ready();
    let mut spans = vec![(SimTime::START, SimTime::START); took.len()];
    while let Some(task) = ready.pop() {
        let after = graph.tasks()[task.index()].after.iter();
        let start = after.map(|before| spans[before.index()].1).max().unwrap_or(SimTime::START);
        spans[task.index()] = (start, start + took[task.index()]);
        ready.extend(schedule.finish(task));
    }
    spans
}

/// Returns the tasks that determine the end of the graph, first to last. Ties go to the lowest id.
pub fn critical_path(graph: &TaskGraph, spans: &[(SimTime, SimTime)]) -> Vec<TaskId> {
    let mut path = Vec::new();
    let mut at = last_of(spans, (0..spans.len() as u32).map(TaskId));
    while let Some(task) = at {
        path.push(task);
        at = last_of(spans, graph.tasks()[task.index()].after.iter().copied());
    }
    path.reverse();
    path
}

fn last_of(spans: &[(SimTime, SimTime)], tasks: impl Iterator<Item = TaskId>) -> Option<TaskId> {
    let end = |task: TaskId| spans[task.index()].1;
    tasks.reduce(|best, task| if end(task) > end(best) { task } else { best })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PathShares {
    pub compute_seconds: f64,
    pub domain_seconds: f64,
    pub network_seconds: f64,
    pub transfer_seconds: f64,
    pub waiting_seconds: f64,
}

impl PathShares {
    pub fn of(graph: &TaskGraph, spans: &[(SimTime, SimTime)], path: &[TaskId]) -> Self {
        let mut shares = Self::default();
        let mut before = SimTime::START;
        for task in path {
            let (start, end) = spans[task.index()];
            let seconds = end.since(start).as_secs_f64();
            match graph.tasks()[task.index()].work {
                TaskWork::Compute { .. } => shares.compute_seconds += seconds,
                TaskWork::Ring { .. } => shares.domain_seconds += seconds,
                TaskWork::Across { .. } | TaskWork::Pairs { .. } => {
                    shares.network_seconds += seconds
                }
                TaskWork::Transfer { .. } => shares.transfer_seconds += seconds,
            }
            shares.waiting_seconds += start.since(before).as_secs_f64();
            before = end;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Task;
    use super::*;
    use proptest::prelude::*;

    fn naive_end(after: &[Vec<usize>], took: &[u64], task: usize) -> u64 {
        let before = after[task].iter().map(|before| naive_end(after, took, *before)).max();
        before.unwrap_or(0) + took[task]
    }

    proptest! {
        #[test]
        fn graph_ends_with_its_longest_path(
            took in prop::collection::vec(0u64..1000, 1..12),
            edges in prop::collection::vec((0usize..12, 0usize..12), 0..30),
        ) {
            let mut after = vec![Vec::new(); took.len()];
            for (a, b) in edges {
                let (low, high) = (a.min(b), a.max(b));
                if low < high && high < took.len() && !after[high].contains(&low) {
                    after[high].push(low);
                }
            }
            let tasks = after.iter().map(|after| Task {
                name: String::new(),
                after: after.iter().map(|id| TaskId(*id as u32)).collect(),
                work: TaskWork::Compute { rank: 0, took: Picoseconds::ZERO },
            });
            let graph = TaskGraph::new(tasks.collect()).unwrap();
            let times: Vec<Picoseconds> = took.iter().copied().map(Picoseconds).collect();
            let spans = play(&graph, &times);
            for (task, span) in spans.iter().enumerate() {
                prop_assert_eq!(span.1.0, naive_end(&after, &took, task));
            }
            let path = critical_path(&graph, &spans);
            let sum: u64 = path.iter().map(|task| took[task.index()]).sum();
            let end = spans.iter().map(|span| span.1.0).max().unwrap();
            prop_assert_eq!(sum, end);
        }
    }
}
