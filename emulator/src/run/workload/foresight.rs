// SPDX-License-Identifier: Apache-2.0
//! Predicts whether another exchange can start during a collective on an idle ring.

use std::collections::BTreeMap;

use lightloom_step::graph::{Schedule, TaskGraph, TaskId, TaskWork};
use lightloom_units::Picoseconds;

const EXAMINED: u32 = 64;

/// `left` returns the minimum remaining time of a running task, or `None` for a waiting one.
pub(super) fn may_begin(
    graph: &TaskGraph,
    left: &impl Fn(TaskId) -> Option<Picoseconds>,
    task: TaskId,
    room: Picoseconds,
) -> bool {
    begins(graph, left, task, room, &mut { EXAMINED })
}

fn begins(
    graph: &TaskGraph,
    left: &impl Fn(TaskId) -> Option<Picoseconds>,
    task: TaskId,
    room: Picoseconds,
    examined: &mut u32,
) -> bool {
    graph.tasks()[task.index()].after.iter().all(|before| {
        if *examined == 0 {
            return true;
        }
        *examined -= 1;
        if let Some(left) = left(*before) {
            return left <= room;
        }
        let took = match graph.tasks()[before.index()].work {
            TaskWork::Compute { took, .. } => took,
            _ => Picoseconds::ZERO,
        };
        took <= room && begins(graph, left, *before, room.saturating_sub(took), examined)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    All,
    Some,
    None,
}

/// Searches from running tasks for tasks that can start soon. Tasks outside the domain may end at any time.
pub(super) struct Foresight<'a> {
    graph: &'a TaskGraph,
    schedule: &'a Schedule,
    room: Picoseconds,
    ends: BTreeMap<TaskId, Picoseconds>,
    open: Vec<TaskId>,
}

impl<'a> Foresight<'a> {
    pub(super) fn new(graph: &'a TaskGraph, schedule: &'a Schedule, room: Picoseconds) -> Self {
        Self { graph, schedule, room, ends: BTreeMap::new(), open: Vec::new() }
    }

    pub(super) fn ends_in(&mut self, task: TaskId, left: Picoseconds) {
        if left <= self.room {
            self.ends.insert(task, left);
            self.open.push(task);
        }
    }

    pub(super) fn begins(
        mut self,
        share: impl Fn(TaskId) -> Share,
        meets: impl Fn(TaskId) -> bool,
    ) -> bool {
        let schedule = self.schedule;
        while let Some(ended) = self.open.pop() {
            for next in schedule.dependents(ended) {
                if self.ends.contains_key(next) || share(*next) == Share::None {
                    continue;
                }
                let Some(begin) = self.earliest_begin(*next, &share) else { continue };
                if meets(*next) {
                    return true;
                }
                let took = match self.graph.tasks()[next.index()].work {
                    TaskWork::Compute { took, .. } => took,
                    _ => Picoseconds::ZERO,
                };
                self.ends_in(*next, begin + took);
            }
        }
        false
    }

    fn earliest_begin(
        &self,
        task: TaskId,
        share: &impl Fn(TaskId) -> Share,
    ) -> Option<Picoseconds> {
        let mut begin = Picoseconds::ZERO;
        for before in &self.graph.tasks()[task.index()].after {
            let end = self.ends.get(before);
            if end.is_none() && !self.schedule.is_done(*before) && share(*before) == Share::All {
                return None;
            }
            begin = begin.max(end.copied().unwrap_or_default());
        }
        Some(begin)
    }
}
