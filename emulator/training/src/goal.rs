// SPDX-License-Identifier: Apache-2.0
//! GOAL, the text format of LogGOPSim and ATLAHS.
//!
//! A file starts with `num_ranks N`, then for each rank `rank k { l1: send 8b to 1 tag 0 l2: recv 8b from 0 tag 0
//! l3: calc 100 l2 requires l1 l3 irequires l2 }`. `calc` is in nanoseconds, sizes are in bytes, −1 matches any
//! source or tag, and comments are `//` and `/* */`. Operations may end in `cpu c` and `nic k`, both 0 by default.
//!
//! A send and its receive become one transfer, which starts when both ends are ready. Operations
//! that depend on the send wait for the whole transfer. `a irequires b` makes `a` wait for the
//! dependencies of `b`. On each processor, a `calc` or send waits for the previous `calc`, in order
//! of readiness (`LogGOPSim.cpp`: "local o not available"). Each rank has one interface.

mod processors;

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_units::{Bytes, Picoseconds};

use super::graph::{GraphError, LONGEST, MOST_RANKS, Task, TaskGraph, TaskId, TaskWork};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    #[error("line {line}: `{text}`: {reason}")]
    Line { line: usize, text: String, reason: &'static str },
    #[error("line {line}: rank {rank}, {label}: no matching {missing}; {count} more like it")]
    Unmatched { line: usize, rank: u32, label: String, count: usize, missing: &'static str },
    #[error(
        "line {line}: rank {rank}, {label}: receives {room} B, but line {sent_line} sends {bytes} B"
    )]
    Small { line: usize, rank: u32, label: String, room: u64, sent_line: usize, bytes: u64 },
    #[error(
        "line {line}: rank {rank}, {label}: rank {peer} does not exist: the file has ranks 0 to {last}"
    )]
    NoPeer { line: usize, rank: u32, label: String, peer: u32, last: u32 },
    #[error("line {line}: rank {rank} defines `{label}` twice")]
    Twice { line: usize, rank: u32, label: String },
    #[error(transparent)]
    Graph(#[from] GraphError),
}

struct GoalOperation {
    line: usize,
    rank: u32,
    label: String,
    what: GoalVerb,
    cpu: u8,
    nic: u8,
    after: Vec<usize>,
}

#[derive(Clone, Copy)]
enum GoalVerb {
    Send { to: u32, bytes: u64, tag: i64 },
    Receive { from: Option<u32>, bytes: u64, tag: i64 },
    Calc { nanos: u64 },
}

#[derive(Clone, Debug)]
pub struct GoalStep {
    pub graph: TaskGraph,
    pub ranks: u32,
    pub interfaces: u32,
}

/// Fails if a line cannot be parsed, a send or receive has no counterpart, or dependencies form a cycle.
pub fn read(text: &str) -> Result<GoalStep, GoalError> {
    let reader = Reader::of(text)?;
    let ranks = reader.ranks.unwrap_or(0);
    let interfaces = reader.operations.iter().map(|operation| u32::from(operation.nic) + 1).max();
    Ok(GoalStep { graph: reader.graph()?, ranks, interfaces: interfaces.unwrap_or(0) })
}

fn without_comments(text: &str) -> String {
    let (mut out, mut in_block) = (String::new(), false);
    for line in text.lines() {
        let mut rest = line;
        loop {
            if in_block {
                let Some(end) = rest.find("*/") else { break };
                (rest, in_block) = (&rest[end + 2..], false);
                continue;
            }
            let (block, to_end) = (rest.find("/*"), rest.find("//"));
            match (block, to_end) {
                (Some(start), end) if end.is_none_or(|end| start < end) => {
                    out.push_str(&rest[..start]);
                    (rest, in_block) = (&rest[start + 2..], true);
                }
                (_, Some(end)) => {
                    out.push_str(&rest[..end]);
                    break;
                }
                _ => {
                    out.push_str(rest);
                    break;
                }
            }
        }
        out.push('\n');
    }
    out
}

#[derive(Default)]
struct Reader {
    ranks: Option<u32>,
    rank: Option<u32>,
    operations: Vec<GoalOperation>,
    labels: BTreeMap<(u32, String), usize>,
}

impl Reader {
    fn of(text: &str) -> Result<Self, GoalError> {
        let mut reader = Self::default();
        for (place, line) in without_comments(text).lines().enumerate() {
            reader.line(place + 1, line.trim())?;
        }
        Ok(reader)
    }

    fn line(&mut self, line: usize, text: &str) -> Result<(), GoalError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = |reason| GoalError::Line { line, text: text.to_owned(), reason };
        match (&words[..], self.rank) {
            ([], _) => {}
            (["num_ranks", count], None) => {
                let count = count.parse().ok().filter(|count| *count <= MOST_RANKS);
                self.ranks =
                    Some(count.ok_or_else(|| wrong("use a number of ranks up to 1000000"))?);
            }
            (["rank", rank, "{"], None) => {
                let rank = rank.parse().map_err(|_| wrong("use a whole number"))?;
                if self.ranks.is_none_or(|ranks| rank >= ranks) {
                    return Err(wrong("rank numbers must be below `num_ranks`, the first line"));
                }
                self.rank = Some(rank);
            }
            (["}"], Some(_)) => self.rank = None,
            ([one, "requires", other], Some(rank)) => {
                let (one, other) = (self.find(rank, one, wrong)?, self.find(rank, other, wrong)?);
                self.operations[one].after.push(other);
            }
            ([one, "irequires", other], Some(rank)) => {
                let (one, other) = (self.find(rank, one, wrong)?, self.find(rank, other, wrong)?);
                let before = self.operations[other].after.clone();
                self.operations[one].after.extend(before);
            }
            ([label, operation @ ..], Some(rank)) if label.ends_with(':') => {
                let what = what(operation).ok_or_else(|| {
                    wrong("expected `send 8b to 1 tag 0`, `recv 8b from 0 tag 0` or `calc 100`")
                })?;
                if matches!(what, GoalVerb::Calc { nanos } if nanos > LONGEST.0 / 1000) {
                    return Err(wrong("`calc` is in nanoseconds, at most a day: 86400000000000"));
                }
                let label = label.trim_end_matches(':').to_owned();
                let last = self.ranks.unwrap_or(0).saturating_sub(1);
                if let GoalVerb::Send { to: peer, .. } | GoalVerb::Receive { from: Some(peer), .. } =
                    what
                    && peer > last
                {
                    return Err(GoalError::NoPeer { line, rank, label, peer, last });
                }
                let place = self.operations.len();
                if self.labels.insert((rank, label.clone()), place).is_some() {
                    return Err(GoalError::Twice { line, rank, label });
                }
                let numbers =
                    ["cpu", "nic"].map(|word| after(operation, word).unwrap_or("0").parse());
                let [Ok(cpu), Ok(nic)] = numbers else {
                    return Err(wrong("processor and interface numbers must be at most 255"));
                };
                let after = Vec::new();
                self.operations.push(GoalOperation { line, rank, label, what, cpu, nic, after });
            }
            _ => return Err(wrong("not a valid GOAL statement")),
        }
        Ok(())
    }

    fn find(
        &self,
        rank: u32,
        label: &str,
        wrong: impl Fn(&'static str) -> GoalError,
    ) -> Result<usize, GoalError> {
        let place = self.labels.get(&(rank, label.to_owned())).copied();
        place.ok_or_else(|| wrong("the label must be defined earlier on this rank"))
    }

    fn graph(mut self) -> Result<TaskGraph, GoalError> {
        let pairs = self.pairs()?;
        processors::wait(&mut self.operations, &pairs);
        let (mut tasks, mut task_of) = (Vec::<Task>::new(), vec![0; self.operations.len()]);
        for (place, operation) in self.operations.iter().enumerate() {
            let work = match operation.what {
                GoalVerb::Calc { nanos } => TaskWork::Compute {
                    rank: operation.rank,
                    took: Picoseconds(nanos.saturating_mul(1000)),
                },
                GoalVerb::Send { to, bytes, .. } => {
                    TaskWork::Transfer { from: operation.rank, to, bytes: Bytes(bytes) }
                }
                GoalVerb::Receive { .. } => continue,
            };
            task_of[place] = tasks.len();
            let name = format!("rank {} {}", operation.rank, operation.label);
            tasks.push(Task { name, after: Vec::new(), work });
        }
        for (receive, send) in &pairs {
            task_of[*receive] = task_of[*send];
        }
        for (place, operation) in self.operations.iter().enumerate() {
            let task = task_of[place];
            let after = operation.after.iter().map(|before| TaskId(task_of[*before] as u32));
            tasks[task].after.extend(after);
        }
        for (index, task) in tasks.iter_mut().enumerate() {
            task.after.sort_unstable();
            task.after.dedup();
            task.after.retain(|before| before.index() != index);
        }
        Ok(TaskGraph::new(tasks)?)
    }

    /// Matches receives with an exact source and tag first, in order, then wildcards.
    fn pairs(&self) -> Result<Vec<(usize, usize)>, GoalError> {
        let mut sends: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, operation) in self.operations.iter().enumerate() {
            if let GoalVerb::Send { to, .. } = operation.what {
                sends.entry(to).or_default().push(place);
            }
        }
        let mut pairs = Vec::new();
        let mut left = Vec::new();
        for is_exact in [true, false] {
            for (place, operation) in self.operations.iter().enumerate() {
                let GoalVerb::Receive { from, tag, .. } = operation.what else { continue };
                if (from.is_some() && tag >= 0) != is_exact {
                    continue;
                }
                let own = sends.entry(operation.rank).or_default();
                match own.iter().position(|send| {
                    let sender = &self.operations[*send];
                    let GoalVerb::Send { tag: sent, .. } = sender.what else { return false };
                    from.is_none_or(|from| from == sender.rank) && (tag < 0 || tag == sent)
                }) {
                    Some(at) => pairs.push((place, own.remove(at))),
                    None => left.push((place, "send")),
                }
            }
        }
        left.extend(sends.into_values().flatten().map(|send| (send, "recv")));
        match left.first() {
            None => pairs.iter().try_for_each(|pair| self.has_room(pair.0, pair.1)).map(|()| pairs),
            Some((place, missing)) => {
                let GoalOperation { line, rank, label, .. } = &self.operations[*place];
                let (line, rank, label) = (*line, *rank, label.clone());
                Err(GoalError::Unmatched { line, rank, label, count: left.len() - 1, missing })
            }
        }
    }

    fn has_room(&self, receive: usize, send: usize) -> Result<(), GoalError> {
        let [receive, send] = [receive, send].map(|place| &self.operations[place]);
        match (receive.what, send.what) {
            (GoalVerb::Receive { bytes: room, .. }, GoalVerb::Send { bytes, .. })
                if room < bytes =>
            {
                let (label, sent_line) = (receive.label.clone(), send.line);
                let GoalOperation { line, rank, .. } = *receive;
                Err(GoalError::Small { line, rank, label, room, sent_line, bytes })
            }
            _ => Ok(()),
        }
    }
}

fn after<'w>(words: &[&'w str], word: &str) -> Option<&'w str> {
    words.iter().position(|own| *own == word).and_then(|at| words.get(at + 1)).copied()
}

fn what(words: &[&str]) -> Option<GoalVerb> {
    let (verb, size, peer, rest) = match words {
        ["calc", nanos, ..] => return Some(GoalVerb::Calc { nanos: nanos.parse().ok()? }),
        [verb @ "send", size, "to", peer, rest @ ..]
        | [verb @ "recv", size, "from", peer, rest @ ..] => (*verb, size, *peer, rest),
        _ => return None,
    };
    let bytes = size.strip_suffix('b')?.parse().ok()?;
    let tag = after(rest, "tag").unwrap_or("0").parse().ok()?;
    Some(match (verb, peer) {
        ("send", to) => GoalVerb::Send { to: to.parse().ok()?, bytes, tag },
        (_, "-1") => GoalVerb::Receive { from: None, bytes, tag },
        (_, from) => GoalVerb::Receive { from: Some(from.parse().ok()?), bytes, tag },
    })
}

/// Each operation runs on the processor of the last operation that it waits for, or on another one, so that processors
/// add no dependencies. Fails if the graph has a collective task, which must be lowered to sends and receives first.
pub fn write(graph: &TaskGraph, ranks: u32) -> Result<String, String> {
    // A task may wait for a task with a higher id, so write all labels before the dependencies.
    let mut of_rank: Vec<[Vec<String>; 2]> = vec![Default::default(); ranks as usize];
    let mut processors: Vec<Vec<TaskId>> = vec![Vec::new(); ranks as usize];
    for (place, task) in graph.tasks().iter().enumerate() {
        if !matches!(task.work, TaskWork::Compute { .. } | TaskWork::Transfer { .. }) {
            return Err(task.name.clone());
        }
        for rank in task.work.members(&[]).iter().copied() {
            let [operations, waits] = &mut of_rank[rank as usize];
            let what = match &task.work {
                TaskWork::Transfer { from, to, bytes } if *from == rank => {
                    format!("send {}b to {to} tag {place}", bytes.0)
                }
                TaskWork::Transfer { from, bytes, .. } => {
                    format!("recv {}b from {from} tag {place}", bytes.0)
                }
                TaskWork::Compute { took, .. } => format!("calc {}", took.0 / 1000),
                _ => String::new(),
            };
            let last = &mut processors[rank as usize];
            let cpu = last
                .iter()
                .position(|last| task.after.contains(last))
                .unwrap_or(last.len().min(255));
            last.resize(last.len().max(cpu + 1), TaskId(0));
            last[cpu] = TaskId(place as u32);
            let on = if cpu > 0 { format!(" cpu {}", cpu) } else { String::new() };
            operations.push(format!("t{place}: {what}{on}"));
            for before in &task.after {
                if graph.tasks()[before.index()].work.members(&[]).contains(&rank) {
                    waits.push(format!("t{place} requires t{}", before.0));
                }
            }
        }
    }
    let mut text = format!("num_ranks {ranks}\n");
    for (rank, lines) in of_rank.iter().enumerate() {
        let _ = write!(text, "\nrank {rank} {{\n{}\n}}\n", lines.concat().join("\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "num_ranks 2 // two\nrank 0 {\nl1: calc 100\nl2: send 8b to 1 tag 7\nl2 requires l1\n}\n\
                        /* the\nother */\nrank 1 {\na: recv 8b from -1 tag -1\nb: calc 50\nb requires a\n}\n";

    #[test]
    fn send_and_receive_become_one_transfer() {
        let GoalStep { graph, ranks, interfaces } = read(PING).unwrap();
        assert_eq!((graph.tasks().len(), ranks, interfaces), (3, 2, 1));
        let transfer = &graph.tasks()[1];
        assert_eq!(transfer.work, TaskWork::Transfer { from: 0, to: 1, bytes: Bytes(8) });
        assert_eq!(transfer.after, [TaskId(0)]);
        assert_eq!(graph.tasks()[2].after, [TaskId(1)]);
    }

    #[test]
    fn goal_text_round_trips() {
        let step = read(PING).unwrap();
        let again = read(&write(&step.graph, step.ranks).unwrap()).unwrap().graph;
        let works = |graph: &TaskGraph| -> Vec<String> {
            let mut all: Vec<String> =
                graph.tasks().iter().map(|task| format!("{:?}", task.work)).collect();
            all.sort();
            all
        };
        assert_eq!(works(&step.graph), works(&again));
    }

    #[test]
    fn waits_round_trip() {
        for waits in [&[&[1][..], &[]][..], &[&[], &[], &[0], &[1]]] {
            let compute = |after: &&[u32]| Task {
                name: String::new(),
                after: after.iter().copied().map(TaskId).collect(),
                work: TaskWork::Compute { rank: 0, took: Picoseconds(5000) },
            };
            let graph = TaskGraph::new(waits.iter().map(compute).collect()).unwrap();
            let text = write(&graph, 1).unwrap();
            let again = read(&text).unwrap().graph;
            let after = |graph: &TaskGraph| -> Vec<Vec<TaskId>> {
                graph.tasks().iter().map(|task| task.after.clone()).collect()
            };
            assert_eq!(after(&again), after(&graph), "{text}");
        }
    }

    #[test]
    fn goal_errors_name_their_line() {
        for (text, expected) in [
            ("num_ranks 1\nrank 0 {\nl1: sned 8b to 1\n}", "line 3: `l1: sned 8b to 1`"),
            ("num_ranks 1\nrank 0 {\nl1 requires l2\n}", "line 3"),
            (
                "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 0\n}\n",
                "line 3: rank 0, l1: no matching recv; 0 more like it",
            ),
            (
                "num_ranks 2\nrank 0 {\na: send 4194304b to 1\n}\nrank 1 {\nb: recv 999b from 0\n}",
                "line 6: rank 1, b: receives 999 B, but line 3 sends 4194304 B",
            ),
            ("num_ranks 1\nrank 1 {\n}", "below `num_ranks`"),
            ("num_ranks 999999999", "line 1: `num_ranks 999999999`: use a number of ranks up to"),
            (
                "num_ranks 1\nrank 0 {\nl1: calc 9223372036854775807\n}",
                "line 3: `l1: calc 9223372036854775807`: `calc` is in nanoseconds, at most a day",
            ),
            ("num_ranks 1\nrank 0 {\na: calc 1\na: calc 2\n}", "`a` twice"),
            ("num_ranks 1\nrank 0 {\na: calc 1\nb: calc 2\na requires b\nb requires a\n}", "cycle"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
