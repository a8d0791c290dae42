// SPDX-License-Identifier: Apache-2.0
//! Kubernetes events: `kubectl get events -A -o json`. A node is out of service from `NodeNotReady`
//! to `NodeReady`.
//!
//! Source: Event v1 of the core API (`involvedObject`, `lastTimestamp`, `eventTime`) and of
//! events.k8s.io (`regarding`); reasons of the node controller and the kubelet.

use serde::Deserialize;

use super::LogKind;
use crate::clock::time;
use crate::json::{parse, records};
use crate::logs::{HostChange, LogFile, Logs, outages};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "Kubernetes events",
    from: "kubectl get events -A -o json",
    is: |file| {
        let head = file.head();
        head.contains("\"involvedObject\"") || head.contains("\"regarding\"")
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterEvent {
    #[serde(alias = "regarding")]
    involved_object: EventObject,
    #[serde(default)]
    reason: String,
    #[serde(default, alias = "note")]
    message: String,
    #[serde(alias = "deprecatedFirstTimestamp")]
    first_timestamp: Option<String>,
    #[serde(alias = "deprecatedLastTimestamp")]
    last_timestamp: Option<String>,
    event_time: Option<String>,
}

#[derive(Deserialize)]
struct EventObject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut changes = Vec::new();
    for record in records(file, logs) {
        let Some(event) = parse::<ClusterEvent>(file, record, logs) else { continue };
        let is_back = match &*event.reason {
            "NodeNotReady" => false,
            "NodeReady" => true,
            _ => continue,
        };
        if event.involved_object.kind != "Node" {
            continue;
        }
        // Repeated events are merged with a first and a last time; an outage begins at the first.
        let mut times = [&event.first_timestamp, &event.last_timestamp];
        if is_back {
            times.reverse();
        }
        let text = times.into_iter().chain([&event.event_time]).flatten().next();
        let at = match time(text.map_or("", |text| text)) {
            Ok(Some(at)) => at.seconds,
            Ok(None) => {
                logs.problem(file.line(record.line), LogTrouble::NoTime(String::new()));
                continue;
            }
            Err(text) => {
                logs.problem(file.line(record.line), LogTrouble::NoTime(text));
                continue;
            }
        };
        changes.push(HostChange {
            host: event.involved_object.name,
            at,
            class: "Node".to_owned(),
            is_back,
            description: event.message,
            place: file.line(record.line),
        });
    }
    logs.outages.extend(outages(changes));
}
