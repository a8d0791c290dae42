// SPDX-License-Identifier: Apache-2.0
//! Writes traces in the public format.

use serde::Serialize;

use super::read::{EventType, Record};
use super::{Fault, FaultTrace, TraceTime};

/// Returns the trace as JSON. The numbers of servers and days come first, then the events in the
/// public format, one per line in chronological order. `source` is the origin of the trace.
pub fn public_json(trace: &FaultTrace, source: &str) -> String {
    let mut text = format!(
        "{{\"servers\": {}, \"gpus_per_server\": {}, \"days\": {},\n\"source\": {},\n\"events\": [\n",
        trace.servers,
        trace.gpus_per_server,
        trace.window.as_days(),
        json(&source),
    );
    let mut events = events(trace);
    events.sort_by_key(|(at, event)| (*at, event.event_type));
    let lines: Vec<String> = events.iter().map(|(_, event)| json(event)).collect();
    text.push_str(&lines.join(",\n"));
    text.push_str("\n]}\n");
    text
}

fn events(trace: &FaultTrace) -> Vec<(TraceTime, Record<'static>)> {
    let mut events = Vec::new();
    for &Fault { start, end, server, kind } in &trace.faults {
        for (at, event_type) in [(start, EventType::FaultStart), (end, EventType::FaultEnd)] {
            let event = Record {
                node_id: trace.name(server).into(),
                event_time: at.as_days(),
                event_type,
                fault_type: trace.kinds[kind as usize].clone(),
            };
            events.push((at, event));
        }
    }
    events
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and finite numbers are JSON")
}
