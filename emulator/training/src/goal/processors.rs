// SPDX-License-Identifier: Apache-2.0

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::{GoalOperation, GoalVerb};

pub(super) fn wait(operations: &mut [GoalOperation], pairs: &[(usize, usize)]) {
    let mut before: Vec<Vec<usize>> = operations.iter().map(|one| one.after.clone()).collect();
    for (receive, send) in pairs {
        before[*receive].push(*send);
    }
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    let mut open: Vec<usize> = vec![0; operations.len()];
    for (place, before) in before.iter().enumerate() {
        open[place] = before.len();
        before.iter().for_each(|one| dependents[*one].push(place));
    }
    let mut ready_at = vec![0u64; operations.len()];
    let of_none = (0..operations.len()).filter(|place| open[*place] == 0);
    let mut next: BinaryHeap<Reverse<(u64, usize)>> =
        of_none.map(|place| Reverse((0, place))).collect();
    let mut last: BTreeMap<(u32, u8), (u64, usize)> = BTreeMap::new();
    while let Some(Reverse((now, place))) = next.pop() {
        let operation = &mut operations[place];
        let is_receive = matches!(operation.what, GoalVerb::Receive { .. });
        let processor = (operation.rank, operation.cpu);
        let busy = last.get(&processor).copied().filter(|_| !is_receive);
        if let Some((free, _)) = busy.filter(|(free, _)| *free > now) {
            next.push(Reverse((free, place)));
            continue;
        }
        operation.after.extend(busy.map(|(_, calc)| calc));
        let end = match operation.what {
            GoalVerb::Calc { nanos } => now.saturating_add(nanos),
            _ => now,
        };
        if end > now {
            last.insert(processor, (end, place));
        }
        for dependent in &dependents[place] {
            ready_at[*dependent] = ready_at[*dependent].max(end);
            open[*dependent] -= 1;
            if open[*dependent] == 0 {
                next.push(Reverse((ready_at[*dependent], *dependent)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::{Picoseconds, SimTime};

    use super::super::super::graph::TaskWork;
    use super::super::super::longest_path::play;
    use super::super::read;

    fn nanos(text: &str) -> u64 {
        let graph = read(text).unwrap().graph;
        let took = graph.tasks().iter().map(|task| match task.work {
            TaskWork::Compute { took, .. } => took,
            _ => Picoseconds::ZERO,
        });
        let spans = play(&graph, &took.collect::<Vec<_>>());
        spans.iter().map(|span| span.1.since(SimTime::START).0 / 1000).max().unwrap()
    }

    /// Regression: calcs of one processor ran concurrently.
    #[test]
    fn processor_runs_one_calc_at_a_time() {
        let text = |cpu: [u8; 3]| {
            let [a, b, c] = cpu;
            format!(
                "num_ranks 2\nrank 0 {{\na: calc 100 cpu {a}\nb: calc 100 cpu {b}\nc: calc 100 cpu {c}\n\
                 s: send 8b to 1 tag 3 cpu {c}\ns requires a\n}}\nrank 1 {{\nr: recv 8b from 0 tag 3\nd: calc 50\nd requires r\n}}\n"
            )
        };
        assert_eq!(nanos(&text([0, 0, 0])), 350);
        assert_eq!(nanos(&text([0, 1, 2])), 150);
        assert_eq!(nanos(&text([0, 0, 1])), 200);
    }

    #[test]
    fn calc_that_waits_does_not_hold_its_processor() {
        let text =
            "num_ranks 1\nrank 0 {\na: calc 10\nb: calc 100 cpu 1\nc: calc 10\na requires b\n}\n";
        assert_eq!(nanos(text), 110);
    }
}
