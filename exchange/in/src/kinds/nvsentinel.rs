// SPDX-License-Identifier: Apache-2.0
//! NVSentinel health events: a fault begins with a fatal event and ends with a healthy one of the
//! same check.
//!
//! Source: `data-models/protobufs/health_event.proto` of NVIDIA/NVSentinel (nodeName, checkName,
//! componentClass, isFatal, isHealthy, generatedTimestamp, errorCode). Events appear individually,
//! in a list, as stored in its database (`healthevent`, lower-case keys) or as exported
//! (`data.healthEvent`).

use serde_json::{Map, Value};

use super::LogKind;
use crate::clock::time;
use crate::json::{parse, records};
use crate::logs::{HostChange, LogFile, Logs, outages};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "NVSentinel health events",
    from: "mongoexport of the collection HealthEvents, or its event exporter",
    is: |file| {
        let head = file.head().to_ascii_lowercase();
        head.contains("\"checkname\"") && head.contains("\"nodename\"")
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

/// Looks up a key, ignoring case.
fn get<'v>(map: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Returns the event of a record, unwrapping it if necessary.
fn event(record: &Map<String, Value>) -> Option<&Map<String, Value>> {
    if get(record, "checkName").is_some() {
        return Some(record);
    }
    let inner = ["healthEvent", "data"].iter().find_map(|name| get(record, name));
    inner.and_then(Value::as_object).and_then(event)
}

/// Parses a time as text, protocol buffers timestamp or database timestamp.
fn stamp(value: &Value) -> Result<Option<i64>, String> {
    match value {
        Value::String(text) => Ok(time(text)?.map(|time| time.seconds)),
        Value::Object(map) => match get(map, "seconds").or_else(|| get(map, "$date")) {
            Some(Value::Object(long)) => {
                let long = get(long, "$numberLong").and_then(Value::as_str).unwrap_or_default();
                Ok(time(long)?.map(|time| time.seconds))
            }
            Some(Value::Number(seconds)) => Ok(seconds.as_i64()),
            Some(Value::String(text)) => Ok(time(text)?.map(|time| time.seconds)),
            _ => Err(value.to_string()),
        },
        Value::Number(seconds) => Ok(seconds.as_i64()),
        _ => Err(value.to_string()),
    }
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut changes = Vec::new();
    for record in records(file, logs) {
        let Some(document) = parse::<Map<String, Value>>(file, record, logs) else { continue };
        let Some(event) = event(&document) else { continue };
        let text = |name: &str| get(event, name).and_then(Value::as_str).unwrap_or_default();
        let is = |name: &str| get(event, name).and_then(Value::as_bool).unwrap_or_default();
        // Events that are neither fatal nor healthy do not affect outages.
        if !is("isFatal") && !is("isHealthy") {
            continue;
        }
        let at = match get(event, "generatedTimestamp").map(stamp) {
            Some(Ok(Some(at))) => at,
            Some(Ok(None)) | None => {
                logs.problem(file.line(record.line), LogTrouble::NoTime(String::new()));
                continue;
            }
            Some(Err(text)) => {
                logs.problem(file.line(record.line), LogTrouble::NoTime(text));
                continue;
            }
        };
        let component = Some(text("componentClass")).filter(|class| !class.is_empty());
        changes.push(HostChange {
            host: text("nodeName").to_owned(),
            at,
            class: format!("{}/{}", component.unwrap_or("Node"), text("checkName")),
            is_back: is("isHealthy"),
            description: text("message").to_owned(),
            place: file.line(record.line),
        });
    }
    logs.outages.extend(outages(changes));
}
