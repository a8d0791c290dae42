// SPDX-License-Identifier: Apache-2.0
//! Reads NVIDIA Topograph's simulation model (YAML) and the response of its `graph` engine (JSON).
//!
//! The formats are defined in `pkg/models/model.go` and `pkg/topology/instance.go` of NVIDIA/topograph 1.0. Switches
//! form a map or a list; blocks contain host lists (`blocks`, formerly `capacity_blocks`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use super::kubernetes_nodes::Labels;
use super::topology_conf::{TopologyUnit, hosts, place};
use crate::json::{document, parse, records};
use crate::logs::{HostRecord, LogFile, Logs};

pub(super) const MODEL: LogKind = LogKind {
    name: "Topograph model",
    from: "a model file of NVIDIA/topograph (tests/models)",
    is: |text| {
        let sections = [&["switches:"][..], &["blocks:", "capacity_blocks:", "nodes:"]];
        sections
            .iter()
            .all(|names| text.lines().any(|line| names.iter().any(|name| line.starts_with(name))))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

pub(super) const GRAPH: LogKind = LogKind {
    name: "Topograph graph",
    from: "the response of Topograph's graph engine",
    is: |text| text.contains("\"instances\"") && text.contains("\"network_layers\""),
    read: |files, logs| files.iter().for_each(|file| read_graph(file, logs)),
};

fn listed(names: &Value, file: &LogFile<'_>, logs: &mut Logs) -> Vec<String> {
    hosts(&words(names).join(","), &file.whole(), logs)
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let Some(model) = document::<Value>(file, logs) else { return };
    let blocks = named(&model["blocks"]).chain(named(&model["capacity_blocks"]));
    let blocks: Vec<(&str, &Value)> = blocks.collect();
    let mut leaves: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (_, block) in &blocks {
        if let Some(leaf) = block["switch"].as_str() {
            leaves.entry(leaf).or_default().extend(listed(&block["nodes"], file, logs));
        }
    }
    let mut units = Vec::new();
    for (name, switch) in named(&model["switches"]) {
        let below = [words(&switch["blocks"]), words(&switch["capacity_blocks"])].concat();
        let mut nodes = listed(&switch["nodes"], file, logs);
        nodes.extend(leaves.remove(name).into_iter().flatten());
        for (_, of) in blocks.iter().filter(|(block, _)| below.contains(block)) {
            nodes.extend(listed(&of["nodes"], file, logs));
        }
        let (name, switches) = (name.to_owned(), listed(&switch["switches"], file, logs));
        units.push(TopologyUnit { place: file.whole(), name, is_block: false, nodes, switches });
    }
    // `switches` may omit the switches of blocks.
    units.extend(leaves.into_iter().map(|(name, nodes)| {
        let (place, name, switches) = (file.whole(), name.to_owned(), Vec::new());
        TopologyUnit { place, name, is_block: false, nodes, switches }
    }));
    for (_, block) in blocks {
        let labels = ["annotations", "labels"].map(|key| block[key].as_object());
        let mut labels = labels.into_iter().flatten().flatten();
        let domain = labels.find(|(key, _)| key.ends_with("/domain")).map(|(_, domain)| domain);
        if let Some(name) = domain.unwrap_or(&block["nvlink"]).as_str() {
            let nodes = listed(&block["nodes"], file, logs);
            let (place, name) = (file.whole(), name.to_owned());
            units.push(TopologyUnit { place, name, is_block: true, nodes, switches: Vec::new() });
        }
    }
    place(units, logs);
}

fn named(of: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let map = of.as_object().into_iter().flatten().map(|(name, object)| (&**name, object));
    let list = of.as_array().into_iter().flatten();
    map.chain(list.map(|object| (object["name"].as_str().unwrap_or_default(), object)))
}

fn words(of: &Value) -> Vec<&str> {
    of.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[derive(Deserialize)]
struct TopographInstance {
    id: String,
    #[serde(default)]
    network_layers: Vec<String>,
    #[serde(default)]
    labels: Labels,
}

fn read_graph(file: &LogFile<'_>, logs: &mut Logs) {
    for record in records(file, logs) {
        let Some(instance) = parse::<TopographInstance>(file, &record, logs) else { continue };
        let place = Some(file.line(record.line));
        let found = HostRecord { place, ..instance.labels.host() };
        let switches = match instance.network_layers {
            layers if layers.is_empty() => found.switches,
            layers => layers,
        };
        logs.host(&instance.id, HostRecord { switches, ..found });
    }
}
