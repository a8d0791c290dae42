// SPDX-License-Identifier: Apache-2.0
//! Whether another exchange may begin during a collective on a ring. The time of an idle ring is
//! reused only if none may.

use lightloom_step::graph::{TaskGraph, TaskId, TaskWork};
use lightloom_units::Picoseconds;

/// Maximum number of tasks before an exchange that are examined.
const EXAMINED: u32 = 64;

/// Returns whether a waiting task may begin within `room`. `left` returns the shortest time until a
/// task ends, or `None` for a task that waits.
pub(super) fn may_begin(
    graph: &TaskGraph,
    left: &impl Fn(TaskId) -> Option<Picoseconds>,
    task: TaskId,
    room: Picoseconds,
) -> bool {
    begins(graph, left, (task, room), &mut { EXAMINED })
}

fn begins(
    graph: &TaskGraph,
    left: &impl Fn(TaskId) -> Option<Picoseconds>,
    (task, room): (TaskId, Picoseconds),
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
        took <= room && begins(graph, left, (*before, room.saturating_sub(took)), examined)
    })
}
