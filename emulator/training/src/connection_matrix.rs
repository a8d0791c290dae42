// SPDX-License-Identifier: Apache-2.0
//! csg-htsim's connection matrix: flows between nodes, with start times and triggers.
//!
//! According to `connection_matrix.cpp` of Broadcom/csg-htsim, a file has `Nodes N` and `Connections N`, then lines
//! such as `0->13 id 1 start 0 size 2000000 send_done_trigger 7` in picoseconds and bytes, and `trigger id 7 oneshot`.
//! A flow with `trigger 7` starts when a flow that names trigger 7 ends. A `oneshot` starts all its flows, a `barrier`
//! does so after `count` ends, and a `multishot` starts one flow after each end, here in the order of the file.

use std::collections::BTreeMap;
use std::str::FromStr;

use lightloom_units::{Bytes, Picoseconds};

use super::graph::{LONGEST, MOST_RANKS, Task, TaskGraph, TaskId, TaskWork};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct MatrixError {
    line: usize,
    reason: String,
}

#[derive(Clone, Debug)]
pub struct MatrixStep {
    pub graph: TaskGraph,
    pub nodes: u32,
    /// Number of failed switches and links in the file, which the graph cannot represent.
    pub failures: u32,
}

#[derive(Default)]
struct ConnectionMatrix<'m> {
    nodes: u32,
    connections: usize,
    failures: u32,
    /// Line and trigger of each transfer. Tasks after the transfers delay their start.
    flows: Vec<(usize, Option<u32>)>,
    transfers: Vec<Task>,
    delays: Vec<(usize, Task)>,
    firing: BTreeMap<u32, Vec<TaskId>>,
    triggers: BTreeMap<u32, Vec<&'m str>>,
}

/// Fails if a line cannot be parsed, or a trigger is undefined or never fires.
pub fn read(text: &str) -> Result<MatrixStep, MatrixError> {
    let mut matrix = ConnectionMatrix::default();
    for (line, words) in (1..).zip(text.lines()) {
        let words: Vec<&str> = words.split_whitespace().collect();
        matrix.line(line, &words).map_err(|reason| MatrixError { line, reason })?;
    }
    matrix.step()
}

fn number<T: FromStr>(word: Option<&&str>) -> Result<T, String> {
    let number = word.and_then(|word| word.parse().ok());
    number.ok_or_else(|| format!("`{}` is not a valid number", word.unwrap_or(&"")))
}

impl<'m> ConnectionMatrix<'m> {
    fn line(&mut self, line: usize, words: &[&'m str]) -> Result<(), String> {
        match words {
            [] | ["Triggers" | "Failures", _] => Ok(()),
            [comment, ..] if comment.starts_with('#') => Ok(()),
            ["Nodes", count] => {
                self.nodes = number(Some(count))?;
                let is_small = self.nodes <= MOST_RANKS;
                if is_small { Ok(()) } else { Err(format!("more than {MOST_RANKS} nodes")) }
            }
            ["Connections", count] => number(Some(count)).map(|count| self.connections = count),
            ["failure", ..] => {
                self.failures += 1;
                Ok(())
            }
            ["trigger", "id", id, kind @ ..] => {
                self.triggers.insert(number(Some(id))?, kind.to_vec());
                Ok(())
            }
            [ends, keys @ ..] => match ends.split_once("->") {
                Some((from, to)) => {
                    self.flow(line, [number(Some(&from))?, number(Some(&to))?], keys)
                }
                None => Err(format!("`{ends}` is neither a flow such as `0->13` nor a keyword")),
            },
        }
    }

    fn flow(&mut self, line: usize, [from, to]: [u32; 2], keys: &[&str]) -> Result<(), String> {
        let (id, name) = (self.flows.len(), format!("{from}->{to}"));
        let (mut bytes, mut start, mut trigger) = (0, 0.0, None);
        for pair in keys.chunks(2) {
            let value = pair.get(1);
            match pair[0] {
                "id" | "prio" | "msg" => {}
                "size" => bytes = number(value)?,
                "start" => start = number(value)?,
                "trigger" => trigger = Some(number(value)?),
                "send_done_trigger" | "recv_done_trigger" => {
                    self.firing.entry(number(value)?).or_default().push(TaskId(id as u32));
                }
                key => return Err(format!("unknown key `{key}`")),
            }
        }
        if from >= self.nodes || to >= self.nodes || from == to {
            return Err(format!("use two different nodes below {}", self.nodes));
        }
        if bytes == 0 {
            return Err("a flow without a size never ends: give it a size above 0".to_owned());
        }
        if !(0.0..=LONGEST.0 as f64).contains(&start) {
            return Err(format!("{start} ps is not within a day"));
        }
        if start > 0.0 {
            let work = TaskWork::Compute { rank: from, took: Picoseconds(start as u64) };
            let name = format!("start of {name}");
            self.delays.push((id, Task { name, after: Vec::new(), work }));
        }
        let work = TaskWork::Transfer { from, to, bytes: Bytes(bytes) };
        self.transfers.push(Task { name, after: Vec::new(), work });
        self.flows.push((line, trigger));
        Ok(())
    }

    fn step(mut self) -> Result<MatrixStep, MatrixError> {
        let (announced, found) = (self.connections, self.flows.len());
        if announced != found {
            let reason = format!("the file announces {announced} connections, but has {found}");
            return Err(MatrixError { line: 2, reason });
        }
        let mut started: BTreeMap<u32, usize> = BTreeMap::new();
        for (task, (line, trigger)) in self.transfers.iter_mut().zip(&self.flows) {
            let Some(trigger) = trigger else { continue };
            let place = started.entry(*trigger).or_default();
            let by = self.firing.get(trigger).map_or(&[][..], Vec::as_slice);
            let kind = self.triggers.get(trigger).map_or(&[][..], Vec::as_slice);
            task.after = waits(kind, *place, by).ok_or_else(|| {
                let (ends, kind) = (by.len(), kind.join(" "));
                let reason =
                    format!("trigger {trigger} `{kind}` never starts it: {ends} flows end in it");
                MatrixError { line: *line, reason }
            })?;
            *place += 1;
        }
        for (flow, delay) in self.delays {
            let id = TaskId(self.transfers.len() as u32);
            self.transfers[flow].after.push(id);
            self.transfers.push(delay);
        }
        let graph = TaskGraph::new(self.transfers)
            .map_err(|error| MatrixError { line: 1, reason: error.to_string() })?;
        Ok(MatrixStep { graph, nodes: self.nodes, failures: self.failures })
    }
}

fn waits(kind: &[&str], place: usize, by: &[TaskId]) -> Option<Vec<TaskId>> {
    match kind {
        ["multishot"] => by.get(place).map(|flow| vec![*flow]),
        ["oneshot"] if by.len() == 1 => Some(by.to_vec()),
        ["barrier", "count", count] | ["count", count, "barrier"] => {
            (count.parse() == Ok(by.len())).then(|| by.to_vec())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> Vec<Vec<u32>> {
        let step = read(text).unwrap();
        let after = |task: &Task| task.after.iter().map(|id| id.0).collect();
        step.graph.tasks().iter().map(after).collect()
    }

    #[test]
    fn triggers_order_flows() {
        let head = "Nodes 8\nConnections 4\n0->1 id 1 start 0 size 9 send_done_trigger 5\n\
            2->3 id 2 start 7000.5 size 9 recv_done_trigger 5\n4->5 id 3 trigger 5 size 9\n6->7 trigger 5 size 9\n";
        for (kind, expected) in
            [("multishot", [[0].as_slice(), &[1]]), ("barrier count 2", [&[0, 1], &[0, 1]])]
        {
            let found = after(&format!("{head}trigger id 5 {kind}\n"));
            assert_eq!(found[2..4], expected, "{kind}");
            assert_eq!(found[1], [4], "a start time is a delay");
        }
        let step =
            read(&format!("{head}trigger id 5 multishot\nfailure switch_type TOR\n")).unwrap();
        assert_eq!((step.nodes, step.failures), (8, 1));
        let took = &step.graph.tasks()[4].work;
        assert_eq!(*took, TaskWork::Compute { rank: 2, took: Picoseconds(7000) });
    }

    #[test]
    fn names_the_line_of_a_mistake() {
        for (line, expected) in [
            ("0->1 start 0 size 0", "line 3: a flow without a size never ends"),
            ("0->8 start 0 size 1", "line 3: use two different nodes below 4"),
            ("0->1 start -1 size 1", "line 3: -1 ps is not within a day"),
            ("0->1 size 1 start", "line 3: `` is not a valid number"),
            ("0->1 speed 7 size 1", "line 3: unknown key `speed`"),
            ("0->1 trigger 3 size 1", "line 3: trigger 3 `` never starts it: 0 flows"),
            ("0-1", "line 3: `0-1` is neither a flow"),
            ("", "line 2: the file announces 1 connections, but has 0"),
            (
                "0->1 trigger 3 size 1\ntrigger id 3 oneshot",
                "line 3: trigger 3 `oneshot` never starts it: 0 flows",
            ),
        ] {
            let error = read(&format!("Nodes 4\nConnections 1\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
