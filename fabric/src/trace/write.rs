// SPDX-License-Identifier: Apache-2.0
//! Writes traces in the public format, or as CSV for spreadsheets and other simulators.

use std::fmt::Write;

use serde::Serialize;

use super::{Fault, FaultKind, FaultTrace, Health, Timeline, TraceTime};

#[derive(Serialize)]
struct Event<'a> {
    node_id: String,
    event_time: f64,
    event_type: &'static str,
    fault_type: &'a FaultKind,
}

/// Returns the trace as JSON. The numbers of servers and days come first, then the events in the
/// public format, one per line in chronological order. `source` is the origin of the trace.
#[must_use]
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
    let both = |fault| {
        let Fault { start, end, server, kind } = fault;
        [(start, 0, "fault_start"), (end, 1, "fault_end")].map(|(at, order, event_type)| {
            let event = Event {
                node_id: trace.name(server),
                event_time: at.as_days(),
                event_type,
                fault_type: &trace.kinds[kind as usize],
            };
            (at, order, event)
        })
    };
    trace.faults.iter().copied().flat_map(both).collect()
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("strings and finite numbers are JSON")
}

/// Returns one line per fault with the columns `server,start_days,end_days,level,class,description`.
#[must_use]
pub fn server_faults_csv(trace: &FaultTrace) -> String {
    let mut text = String::from("server,start_days,end_days,level,class,description\n");
    for fault in &trace.faults {
        let (start, end) = (fault.start.as_days(), fault.end.as_days());
        let FaultKind { level, class, description } = &trace.kinds[fault.kind as usize];
        let [server, level, class, description] =
            [&trace.name(fault.server), level, class, description].map(|field| quoted(field));
        writeln!(text, "{server},{start},{end},{level},{class},{description}")
            .expect("a string takes all");
    }
    text
}

/// Returns one line per change with the columns `days,node,health`.
#[must_use]
pub fn node_changes_csv(timeline: &Timeline) -> String {
    let mut text = String::from("days,node,health\n");
    for change in timeline.changes() {
        let health = match change.health {
            Health::Healthy => "healthy",
            Health::Faulty => "faulty",
        };
        writeln!(text, "{},{},{health}", change.at.as_days(), change.node)
            .expect("a string takes all");
    }
    text
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}
