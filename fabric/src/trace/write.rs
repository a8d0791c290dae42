//! Writes traces: the public format, and tables for spreadsheets and other simulators.

use std::fmt::Write;

use serde::Serialize;

use super::{FaultKind, FaultTrace, Health, Timeline, TraceTime};

#[derive(Serialize)]
struct Described<'a> {
    servers: u32,
    gpus_per_server: u32,
    days: f64,
    source: &'a str,
    events: Vec<Event<'a>>,
}

#[derive(Serialize)]
struct Event<'a> {
    node_id: String,
    event_time: f64,
    event_type: &'static str,
    fault_type: &'a FaultKind,
}

/// The trace as JSON: the events of the public format, by time, with the number of servers and
/// days said at the top. `source` says where it is from.
///
/// Times are rounded to the millisecond they are kept in.
#[must_use]
pub fn public_json(trace: &FaultTrace, source: &str) -> String {
    let unknown = FaultKind {
        level: "Other Failure".to_owned(),
        class: "unknown".to_owned(),
        description: String::new(),
    };
    let mut events: Vec<(TraceTime, u8, Event<'_>)> = Vec::with_capacity(trace.faults.len() * 2);
    for fault in &trace.faults {
        for (at, order, event_type) in
            [(fault.start, 0, "fault_start"), (fault.end, 1, "fault_end")]
        {
            let event = Event {
                node_id: trace.name(fault.server),
                event_time: at.as_days(),
                event_type,
                fault_type: trace.kinds.get(fault.kind as usize).unwrap_or(&unknown),
            };
            events.push((at, order, event));
        }
    }
    events.sort_by_key(|(at, order, _)| (*at, *order));
    let described = Described {
        servers: trace.servers,
        gpus_per_server: trace.gpus_per_server,
        days: trace.window.as_days(),
        source,
        events: events.into_iter().map(|(.., event)| event).collect(),
    };
    let mut text = serde_json::to_string_pretty(&described).expect("strings and finite numbers");
    text.push('\n');
    text
}

/// One line a fault: `server,start_days,end_days,level,class,description`.
#[must_use]
pub fn server_faults_csv(trace: &FaultTrace) -> String {
    let mut text = String::from("server,start_days,end_days,level,class,description\n");
    for fault in &trace.faults {
        let (start, end) = (fault.start.as_days(), fault.end.as_days());
        let kind = trace.kinds.get(fault.kind as usize);
        let field = |of: fn(&FaultKind) -> &String| kind.map_or(String::new(), |k| quoted(of(k)));
        let (level, class) = (field(|k| &k.level), field(|k| &k.class));
        let description = field(|k| &k.description);
        let server = quoted(&trace.name(fault.server));
        writeln!(text, "{server},{start},{end},{level},{class},{description}")
            .expect("a string takes all");
    }
    text
}

/// One line a change: `days,node,health`.
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

/// A field of a CSV line (RFC 4180).
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}
