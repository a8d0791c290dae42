// SPDX-License-Identifier: Apache-2.0
//! Writes a step as GOAL. Collectives become the messages of their schedule, which is a ring or, for
//! an all-to-all, one message for each pair.

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_collective::{
    AllToAll, CollectiveError, CollectiveKind, Directions, Exchange as Order, Ring, Schedule,
};
use lightloom_units::Bytes;

use crate::graph::{Task, TaskGraph, TaskWork};
use crate::machine::Machine;

/// The text of a rank, and what its tasks have there.
#[derive(Default)]
struct GoalRank {
    operations: Vec<String>,
    waits: Vec<String>,
    /// The labels with which each task begins and ends.
    ends: BTreeMap<usize, (String, String)>,
    /// Number of computations on each processor.
    processors: Vec<u32>,
    /// For each task, the processor of the last computation before it, and the number of that.
    after: BTreeMap<usize, (usize, u32)>,
}

impl GoalRank {
    fn put(&mut self, label: &str, what: &str) {
        self.operations.push(format!("{label}: {what}"));
    }

    fn wait(&mut self, label: &str, before: &str) {
        self.waits.push(format!("{label} requires {before}"));
    }

    /// Returns the processor of a computation: that of a task before it, or a further one if other
    /// computations run at the same time.
    fn processor(&mut self, task: &Task, is_computing: bool) -> (usize, u32) {
        let before = task.after.iter().filter_map(|before| self.after.get(&before.index()));
        let mut before = before.copied();
        if !is_computing {
            return before.next().unwrap_or((usize::MAX, 0));
        }
        let is_free = |(cpu, count): &(usize, u32)| self.processors.get(*cpu) == Some(count);
        let cpu = before.find(is_free).map_or(self.processors.len(), |(cpu, _)| cpu);
        if cpu == self.processors.len() {
            self.processors.push(0);
        }
        self.processors[cpu] += 1;
        (cpu, self.processors[cpu])
    }
}

/// Writes a step on a machine as GOAL text.
///
/// # Errors
/// If a collective has fewer than two ranks.
pub fn write(graph: &TaskGraph, machine: &Machine) -> Result<String, CollectiveError> {
    let mut ranks: Vec<GoalRank> = (0..machine.ranks).map(|_| GoalRank::default()).collect();
    for (place, task) in graph.tasks().iter().enumerate() {
        let label = format!("t{place}");
        match &task.work {
            TaskWork::Compute { rank, took } => {
                let own = &mut ranks[*rank as usize];
                let (cpu, count) = own.processor(task, true);
                let on = if cpu > 0 { format!(" cpu {}", cpu.min(255)) } else { String::new() };
                own.put(&label, &format!("calc {}{on}", took.0 / 1000));
                own.ends.insert(place, (label.clone(), label));
                own.after.insert(place, (cpu, count));
            }
            TaskWork::Transfer { from, to, bytes } => {
                let bytes = bytes.0;
                let send = format!("send {bytes}b to {to} tag {place}");
                let receive = format!("recv {bytes}b from {from} tag {place}");
                for (rank, what) in [(from, send), (to, receive)] {
                    let own = &mut ranks[*rank as usize];
                    own.put(&label, &what);
                    own.ends.insert(place, (label.clone(), label.clone()));
                    let after = own.processor(task, false);
                    own.after.insert(place, after);
                }
            }
            TaskWork::Ring { .. } | TaskWork::Across { .. } | TaskWork::Pairs { .. } => {
                collective((place, task), machine, &mut ranks)?;
            }
        }
    }
    let mut text = format!("num_ranks {}\n", machine.ranks);
    for (rank, mut own) in ranks.into_iter().enumerate() {
        // All labels stand before the dependencies, because a task may wait for a later one.
        for (place, (begin, _)) in own.ends.clone() {
            for before in &graph.tasks()[place].after {
                if let Some((_, end)) = own.ends.get(&before.index()).cloned() {
                    own.wait(&begin, &end);
                }
            }
        }
        let lines = [own.operations, own.waits].concat().join("\n");
        let _ = write!(text, "\nrank {rank} {{\n{lines}\n}}\n");
    }
    Ok(text)
}

/// Returns the members of a collective and its messages.
fn schedule(work: &TaskWork, machine: &Machine) -> Result<(Vec<u32>, Schedule), CollectiveError> {
    let at_once = |ranks: usize, size| AllToAll { ranks, size, exchange: Order::AtOnce }.schedule();
    let ring = |kind, ranks: usize, size| {
        let directions = Directions::One;
        Ring { kind, ranks, size, directions }.schedule()
    };
    let (kind, members, bytes) = match work {
        TaskWork::Pairs { ranks, bytes } => {
            let mut schedule = at_once(ranks.len(), Bytes(ranks.len() as u64))?;
            for sending in &mut schedule.sendings {
                sending.message = Bytes(bytes[sending.from * ranks.len() + sending.to]);
            }
            schedule.sendings.retain(|sending| sending.message.0 > 0);
            return Ok((ranks.clone(), schedule));
        }
        TaskWork::Ring { kind, ring, bytes } => {
            (*kind, machine.rings[*ring as usize].clone(), *bytes)
        }
        TaskWork::Across { kind, ranks, bytes } => (*kind, ranks.clone(), *bytes),
        TaskWork::Compute { .. } | TaskWork::Transfer { .. } => {
            return Err(CollectiveError::TooFewRanks { ranks: 1 });
        }
    };
    let schedule = match kind {
        CollectiveKind::AllToAll | CollectiveKind::Flows => at_once(members.len(), bytes)?,
        _ => ring(kind, members.len(), bytes)?,
    };
    Ok((members, schedule))
}

/// Writes a collective: at each rank an operation of no time before its messages and one after.
fn collective(
    (place, task): (usize, &Task),
    machine: &Machine,
    ranks: &mut [GoalRank],
) -> Result<(), CollectiveError> {
    let (members, schedule) = schedule(&task.work, machine)?;
    let (begin, end) = (format!("t{place}b"), format!("t{place}e"));
    for rank in &members {
        let own = &mut ranks[*rank as usize];
        // A processor without computations.
        own.put(&begin, "calc 0 cpu 255");
        own.put(&end, "calc 0 cpu 255");
        own.wait(&end, &begin);
        own.ends.insert(place, (begin.clone(), end.clone()));
        let after = own.processor(task, false);
        own.after.insert(place, after);
    }
    for (number, sending) in schedule.sendings.iter().enumerate() {
        let [from, to] = [sending.from, sending.to].map(|member| members[member]);
        let bytes = sending.message.0;
        for message in 0..sending.messages {
            let name =
                |end: &str, number: usize, message: u32| format!("t{place}{end}{number}x{message}");
            let (send, receive) = (name("s", number, message), name("r", number, message));
            let sender = &mut ranks[from as usize];
            sender.put(&send, &format!("send {bytes}b to {to} tag {place} cpu 255"));
            sender.wait(&send, &begin);
            sender.wait(&end, &send);
            for before in &sending.awaits {
                let of = schedule.sendings[before.sending].messages;
                let needed = i64::from(message) + 1 - i64::from(before.ahead);
                if let Some(last) = needed.min(i64::from(of)).checked_sub(1).filter(|it| *it >= 0) {
                    sender.wait(&send, &name("r", before.sending, last as u32));
                }
            }
            let receiver = &mut ranks[to as usize];
            receiver.put(&receive, &format!("recv {bytes}b from {from} tag {place} cpu 255"));
            receiver.wait(&receive, &begin);
            receiver.wait(&end, &receive);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Picoseconds};

    use super::super::{binary, read};
    use super::*;
    use crate::graph::TaskId;
    use crate::machine::{Cable, Domain};

    fn machine(ranks: u32) -> Machine {
        let cable = Cable { rate: BitsPerSecond(1), delay: Picoseconds(1) };
        Machine {
            ranks,
            rings: Vec::new(),
            domain: Domain::Cables,
            ring_link: cable,
            rails: Vec::new(),
            rail_link: cable,
            expert_imbalance: 0.0,
        }
    }

    fn task(after: &[u32], work: TaskWork) -> Task {
        Task { name: String::new(), after: after.iter().copied().map(TaskId).collect(), work }
    }

    fn compute(rank: u32) -> TaskWork {
        TaskWork::Compute { rank, took: Picoseconds(5000) }
    }

    #[test]
    fn task_that_waits_for_a_later_one_round_trips() {
        let graph = TaskGraph::new(vec![task(&[1], compute(0)), task(&[], compute(0))]).unwrap();
        let text = write(&graph, &machine(1)).unwrap();
        let binary = binary::text_of(&binary::bytes_of(&text).unwrap()).unwrap();
        for text in [text, binary] {
            let again = read(&text).unwrap().graph;
            assert_eq!(again.tasks()[0].after, [TaskId(1)], "{text}");
        }
    }

    /// Bytes that each rank sends: two thirds of the buffer twice, and the given parts.
    #[test]
    fn collectives_become_their_messages() {
        let ranks = vec![0, 1, 2];
        let kind = CollectiveKind::AllReduce;
        let reduce = TaskWork::Across { kind, ranks: ranks.clone(), bytes: Bytes(300) };
        let pairs = TaskWork::Pairs { ranks, bytes: [0, 7, 0, 1, 0, 2, 0, 0, 0].into() };
        let graph = TaskGraph::new(vec![
            task(&[], compute(0)),
            task(&[0], reduce),
            task(&[1], pairs),
            task(&[2], compute(1)),
        ]);
        let text = write(&graph.unwrap(), &machine(3)).unwrap();
        let again = read(&text).unwrap().graph;
        let mut sent = [0; 3];
        for task in again.tasks() {
            if let TaskWork::Transfer { from, bytes, .. } = task.work {
                sent[from as usize] += bytes.0;
            }
        }
        assert_eq!(sent, [400 + 7, 400 + 3, 400]);
    }

    /// Computations that do not wait for each other run on different processors.
    #[test]
    fn parallel_computing_stays_parallel() {
        let tasks = vec![
            task(&[], compute(0)),
            task(&[], compute(0)),
            task(&[0], compute(0)),
            task(&[1], compute(0)),
        ];
        let text = write(&TaskGraph::new(tasks).unwrap(), &machine(1)).unwrap();
        let again = read(&text).unwrap().graph;
        let after: Vec<&[TaskId]> = again.tasks().iter().map(|task| &*task.after).collect();
        assert_eq!(after, [&[][..], &[], &[TaskId(0)], &[TaskId(1)]]);
    }
}
