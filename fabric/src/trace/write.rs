// SPDX-License-Identifier: Apache-2.0
//! Writes traces in the public format.

use serde::Serialize;

use super::{Fault, FaultKind, FaultTrace, TraceTime};

#[derive(Serialize)]
struct Event<'a> {
    node_id: String,
    event_time: f64,
    event_type: &'static str,
    fault_type: &'a FaultKind,
}

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
    events.sort_by_key(|(at, order, _)| (*at, *order));
    let lines: Vec<String> = events.iter().map(|(.., event)| json(event)).collect();
    text.push_str(&lines.join(",\n"));
    text.push_str("\n]}\n");
    text
}

fn events(trace: &FaultTrace) -> Vec<(TraceTime, u8, Event<'_>)> {
    let mut events = Vec::new();
    for &Fault { start, end, server, kind } in &trace.faults {
        for (at, order, event_type) in [(start, 0, "fault_start"), (end, 1, "fault_end")] {
            let event = Event {
                node_id: trace.name(server),
                event_time: at.as_days(),
                event_type,
                fault_type: &trace.kinds[kind as usize],
            };
            events.push((at, order, event));
        }
    }
    events
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and finite numbers are JSON")
}
