// SPDX-License-Identifier: Apache-2.0
//! Reads NVSentinel health events. A fault lasts from a fatal event to a healthy one with the same
//! check and entity (such as GPU 3). A healthy event without entities ends all faults of its check.
//!
//! The fields are defined in `data-models/protobufs/health_event.proto` of NVIDIA/NVSentinel. Events may be separate,
//! in a list, as stored in its database (`healthevent`, lower-case keys) or as exported (`data.healthEvent`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::LogKind;
use crate::clock::time;
use crate::json::{parse, records};
use crate::logs::{HostChange, LogFile, Logs, outages};
use crate::problem::RECORD_SKIPPED;

pub(super) const KIND: LogKind = LogKind {
    name: "NVSentinel health events",
    from: "mongoexport of the collection HealthEvents, or its event exporter",
    is: |text| {
        let keys = [["\"checkName\"", "\"checkname\""], ["\"nodeName\"", "\"nodename\""]];
        keys.iter().all(|forms| forms.iter().any(|key| text.contains(key)))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

fn get<'v>(map: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn event(record: &Map<String, Value>) -> Option<&Map<String, Value>> {
    if get(record, "checkName").is_some() {
        return Some(record);
    }
    let inner = ["healthEvent", "data"].iter().find_map(|name| get(record, name));
    inner.and_then(Value::as_object).and_then(event)
}

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

fn text<'v>(map: &'v Map<String, Value>, name: &str) -> &'v str {
    get(map, name).and_then(Value::as_str).unwrap_or_default()
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut changes = Vec::new();
    for record in records(file, logs) {
        let Some(document) = parse::<Map<String, Value>>(file, &record, logs) else { continue };
        let Some(event) = event(&document) else { continue };
        let [is_fatal, is_back] = ["isFatal", "isHealthy"]
            .map(|name| get(event, name).and_then(Value::as_bool).unwrap_or_default());
        // Warnings and stored-only events do not affect outages.
        let is_stored = text(event, "processingStrategy") == "STORE_ONLY";
        if is_stored || !is_fatal && !is_back {
            continue;
        }
        let at = match get(event, "generatedTimestamp").map(stamp) {
            Some(Ok(Some(at))) => at,
            other => {
                let text = other.and_then(Result::err).unwrap_or_default();
                let trouble = format!("`{text}` is not a time");
                logs.problem(file.line(record.line), trouble, RECORD_SKIPPED);
                continue;
            }
        };
        let component = Some(text(event, "componentClass")).filter(|class| !class.is_empty());
        let change = HostChange {
            host: text(event, "nodeName").to_owned(),
            at,
            class: format!("{}/{}", component.unwrap_or("Node"), text(event, "checkName")),
            part: Vec::new(),
            is_back,
            description: text(event, "message").to_owned(),
            place: file.line(record.line),
        };
        changes.extend(parts(event).into_iter().map(|part| HostChange { part, ..change.clone() }));
    }
    logs.outages.extend(outages(changes));
}

/// Entities of different types are names of one part (a GPU's index, UUID and PCI address);
/// entities of one type are different parts.
fn parts(event: &Map<String, Value>) -> Vec<Vec<String>> {
    let listed = get(event, "entitiesImpacted").and_then(Value::as_array);
    let mut names: Vec<[String; 2]> = Vec::new();
    for entity in listed.into_iter().flatten().filter_map(Value::as_object) {
        names.push(["entityType", "entityValue"].map(|key| text(entity, key).to_owned()));
    }
    let types: BTreeSet<&String> = names.iter().map(|[kind, _]| kind).collect();
    let is_one = types.len() == names.len();
    let names = names.iter().map(|name| name.join(" "));
    if is_one { vec![names.collect()] } else { names.map(|name| vec![name]).collect() }
}
