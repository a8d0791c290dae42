// SPDX-License-Identifier: Apache-2.0
//! Reads Kubernetes events (`kubectl get events -A -o json`). A node is out of service from
//! `NodeNotReady` to `NodeReady`.
//!
//! The fields are from Event v1 in the core API and in events.k8s.io. Repeated events are merged by the API server,
//! which keeps only the first and the last time.

use serde::Deserialize;

use super::LogKind;
use crate::clock::time;
use crate::json::{parse, records};
use crate::logs::{HostChange, LogFile, Logs, outages};
use crate::problem::RECORD_SKIPPED;

pub(super) const KIND: LogKind = LogKind {
    name: "Kubernetes events",
    from: "kubectl get events -A -o json",
    is: |text| text.contains("\"involvedObject\"") || text.contains("\"regarding\""),
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
    #[serde(default)]
    metadata: EventMetadata,
    #[serde(alias = "deprecatedCount")]
    count: Option<u64>,
    series: Option<EventSeries>,
    #[serde(alias = "deprecatedFirstTimestamp")]
    first_timestamp: Option<String>,
    #[serde(alias = "deprecatedLastTimestamp")]
    last_timestamp: Option<String>,
    event_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventMetadata {
    creation_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EventSeries {
    count: u64,
    last_observed_time: Option<String>,
}

#[derive(Deserialize)]
struct EventObject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
}

impl ClusterEvent {
    /// Returns the first and last time in seconds since 1970. Fails with the text that cannot be parsed as a time.
    fn times(&self) -> Result<Vec<i64>, String> {
        let first = [&self.first_timestamp, &self.event_time, &self.metadata.creation_timestamp];
        let series = self.series.as_ref().map_or(&None, |series| &series.last_observed_time);
        let last = [series, &self.last_timestamp];
        let first = first.into_iter().flatten().next();
        let last = last.into_iter().flatten().next();
        let mut times = Vec::new();
        for text in first.into_iter().chain(last) {
            times.extend(time(text)?.map(|time| time.seconds));
        }
        times.sort_unstable();
        times.dedup();
        Ok(times)
    }

    fn count(&self) -> u64 {
        self.series.as_ref().map(|series| series.count).or(self.count).unwrap_or(1)
    }
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let mut changes = Vec::new();
    for record in records(file, logs) {
        let Some(event) = parse::<ClusterEvent>(file, &record, logs) else { continue };
        let is_back = match &*event.reason {
            "NodeNotReady" => false,
            "NodeReady" => true,
            _ => continue,
        };
        if event.involved_object.kind != "Node" {
            continue;
        }
        let place = file.line(record.line);
        let times = match event.times() {
            Ok(times) if !times.is_empty() => times,
            wrong => {
                let text = wrong.err().unwrap_or_default();
                logs.problem(place, format!("`{text}` is not a time"), RECORD_SKIPPED);
                continue;
            }
        };
        let between = event.count().saturating_sub(times.len() as u64);
        if between > 0 && !is_back {
            let trouble = format!(
                "seen {} times, including {between} times between the first and the last occurrence",
                event.count()
            );
            let still = "the others are omitted, because their times are not recorded";
            logs.problem(place.clone(), trouble, still);
        }
        changes.extend(times.into_iter().map(|at| HostChange {
            host: event.involved_object.name.clone(),
            at,
            class: "Node".to_owned(),
            part: Vec::new(),
            is_back,
            description: event.message.clone(),
            place: place.clone(),
        }));
    }
    logs.outages.extend(outages(changes));
}
