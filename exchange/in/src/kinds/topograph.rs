// SPDX-License-Identifier: Apache-2.0
//! NVIDIA Topograph: its simulation model (YAML) and the response of its `graph` engine (JSON).
//!
//! Source: `pkg/models/model.go` and `pkg/topology/instance.go` of NVIDIA/topograph 1.0. Switches are
//! a map or a list, and hosts are in blocks (`blocks`, earlier `capacity_blocks`), as host lists.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::LogKind;
use super::kubernetes_nodes::Labels;
use super::topology_conf::{TopologyUnit, place};
use crate::host_list::expand;
use crate::json::{parse, records};
use crate::logs::{HostRecord, LogFile, Logs};
use crate::problem::LogTrouble;

pub(super) const MODEL: LogKind = LogKind {
    name: "Topograph model",
    from: "a model file of NVIDIA/topograph (tests/models)",
    is: |text| {
        let has = |key: &str| text.lines().any(|line| line.starts_with(key));
        has("switches:") && (has("blocks:") || has("capacity_blocks:") || has("nodes:"))
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

pub(super) const GRAPH: LogKind = LogKind {
    name: "Topograph graph",
    from: "the response of Topograph's graph engine",
    is: |text| text.contains("\"instances\"") && text.contains("\"network_layers\""),
    read: |files, logs| files.iter().for_each(|file| read_graph(file, logs)),
};

#[derive(Deserialize)]
struct TopographModel {
    switches: Named,
    #[serde(default, alias = "capacity_blocks")]
    blocks: Vec<TopographBlock>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Map(BTreeMap<String, TopographSwitch>),
    List(Vec<TopographSwitch>),
}

#[derive(Deserialize)]
struct TopographSwitch {
    #[serde(default)]
    name: String,
    #[serde(default)]
    switches: Vec<String>,
    #[serde(default, alias = "capacity_blocks")]
    blocks: Vec<String>,
    #[serde(default)]
    nodes: Vec<String>,
}

#[derive(Deserialize)]
struct TopographBlock {
    #[serde(default)]
    name: String,
    #[serde(default)]
    switch: String,
    #[serde(default)]
    nodes: Vec<String>,
    #[serde(default)]
    nvlink: Option<String>,
    #[serde(default, alias = "labels")]
    annotations: BTreeMap<String, String>,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let model: TopographModel = match serde_saphyr::from_str(&file.text()) {
        Ok(model) => model,
        Err(error) => {
            return logs.problem(file.whole(), LogTrouble::Unreadable(error.to_string()));
        }
    };
    let switches = match model.switches {
        Named::List(list) => list,
        Named::Map(map) => {
            map.into_iter().map(|(name, switch)| TopographSwitch { name, ..switch }).collect()
        }
    };
    let mut list = |items: &[String]| {
        expand(&items.join(",")).unwrap_or_else(|error| {
            logs.problem(file.whole(), LogTrouble::Malformed(error));
            Vec::new()
        })
    };
    let mut units = Vec::new();
    for switch in &switches {
        let mut nodes = list(&switch.nodes);
        for block in &model.blocks {
            if block.switch == switch.name || switch.blocks.contains(&block.name) {
                nodes.extend(list(&block.nodes));
            }
        }
        let (name, switches) = (switch.name.clone(), list(&switch.switches));
        units.push(TopologyUnit { place: file.whole(), name, is_block: false, nodes, switches });
    }
    for block in model.blocks {
        let is_domain = |(key, _): &(&String, &String)| key.ends_with("/domain");
        let said = block.annotations.iter().find(is_domain).map(|(_, domain)| domain.clone());
        if let Some(name) = said.or(block.nvlink) {
            let (place, nodes) = (file.whole(), list(&block.nodes));
            units.push(TopologyUnit { place, name, is_block: true, nodes, switches: Vec::new() });
        }
    }
    place(units, logs);
}

#[derive(Deserialize)]
struct TopographInstance {
    id: String,
    /// The nearest first.
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
