// SPDX-License-Identifier: Apache-2.0
//! Writes an emulated step as a Chrome trace for Perfetto; [`super::recorded`] reads it back.
//!
//! A task has an event on each of its ranks. Computing, and communication in and between domains, are separate threads.

use lightloom_collective::CollectiveKind;
use lightloom_units::SimTime;
use serde_json::{Value, json};

use super::graph::{Task, TaskGraph, TaskWork};
use super::machine::Machine;

pub fn trace(graph: &TaskGraph, machine: &Machine, spans: &[(SimTime, SimTime)]) -> Value {
    let members = graph.tasks().iter().map(|task| task.work.members(&machine.rings));
    let all: Vec<_> = members.collect();
    let mut events = Vec::new();
    for (place, task) in graph.tasks().iter().enumerate() {
        let [start, end] =
            <[SimTime; 2]>::from(spans[place]).map(|at| at.since(SimTime::START).0 as f64 / 1e6);
        for rank in &*all[place] {
            let after = task.after.iter().filter(|id| all[id.index()].contains(rank));
            let after: Vec<String> = after.map(|id| id.0.to_string()).collect();
            let (stream, mut arguments) = described(task, &all[place], *rank);
            arguments["id"] = json!(place.to_string());
            arguments["after"] = json!(after);
            events.push(json!({
                "name": task.name,
                "ph": "X",
                "pid": rank,
                "tid": stream,
                "ts": start,
                "dur": end - start,
                "args": arguments,
            }));
        }
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

fn collective(work: &TaskWork, ranks: &[u32], least: u64) -> Value {
    let name = work.kind().map(CollectiveKind::name);
    json!({ "collective": name, "group": ranks, "bytes": work.bytes().0.max(least) })
}

fn described(task: &Task, ranks: &[u32], rank: u32) -> (&'static str, Value) {
    match &task.work {
        TaskWork::Compute { .. } => ("compute", json!({})),
        TaskWork::Ring { .. } => ("domain", collective(&task.work, ranks, 0)),
        TaskWork::Across { .. } => ("network", collective(&task.work, ranks, 0)),
        TaskWork::Pairs { .. } => ("network", collective(&task.work, ranks, 1)),
        TaskWork::Transfer { from, to, bytes } if *from == rank => {
            ("send", json!({ "send_to": to, "bytes": bytes.0 }))
        }
        TaskWork::Transfer { from, bytes, .. } => {
            ("receive", json!({ "receive_from": from, "bytes": bytes.0 }))
        }
    }
}
