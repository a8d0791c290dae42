// SPDX-License-Identifier: Apache-2.0
//! Kubernetes nodes with Topograph labels: `kubectl get nodes -o json`, or `-o yaml`.
//!
//! Source: `docs/reference/node-labels.md` of NVIDIA/topograph 1.0: `fabric.topograph.run/tier-0`
//! is the nearest switch, `accelerator.topograph.run/domain` the accelerators' common domain;
//! `nvidia.com/gpu` of Node v1's `status.capacity`; the label `nvidia.com/gpu.product` of GPU
//! feature discovery.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::LogKind;
use crate::json::{JsonRecord, parse, records};
use crate::logs::{HostRecord, LogFile, Logs};
use crate::problem::{LogPlace, LogTrouble};

const TIER: &str = "fabric.topograph.run/tier-";
const DOMAIN: &str = "accelerator.topograph.run/domain";

pub(super) const KIND: LogKind = LogKind {
    name: "Kubernetes nodes with Topograph's labels",
    from: "kubectl get nodes -o json",
    is: |file| {
        let head = file.head();
        let is_labelled =
            head.contains(TIER) || head.contains(DOMAIN) || head.contains("nvidia.com/gpu");
        is_labelled && is_kind(&head, "Node")
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

/// Returns whether a JSON or YAML document contains an object of this kind.
fn is_kind(text: &str, kind: &str) -> bool {
    let bare: String = text.chars().filter(|c| !matches!(c, ' ' | '"')).collect();
    let named = format!("kind:{kind}");
    let mut after = bare.split(&named).skip(1);
    after.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

#[derive(Deserialize)]
struct ClusterNode {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: NodeMetadata,
    #[serde(default)]
    status: NodeStatus,
    /// Entries of a YAML node list.
    #[serde(default)]
    items: Vec<ClusterNode>,
}

#[derive(Default, Deserialize)]
struct NodeMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    capacity: BTreeMap<String, String>,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let text = String::from_utf8_lossy(file.bytes);
    if text.trim_start().starts_with(['{', '[']) {
        let found: Vec<JsonRecord<'_>> = records(file, logs);
        for record in found {
            if let Some(node) = parse::<ClusterNode>(file, record, logs) {
                note(node, &file.line(record.line), logs);
            }
        }
        return;
    }
    match serde_saphyr::from_multiple::<ClusterNode>(&text) {
        Ok(nodes) => {
            for node in nodes
                .into_iter()
                .flat_map(|node| if node.items.is_empty() { vec![node] } else { node.items })
            {
                let at =
                    text.lines().position(|line| line.trim_end().ends_with(&*node.metadata.name));
                let place = at.map_or_else(|| file.whole(), |at| file.line(at + 1));
                note(node, &place, logs);
            }
        }
        Err(error) => logs.problem(file.whole(), LogTrouble::Malformed(error.to_string())),
    }
}

fn note(node: ClusterNode, place: &LogPlace, logs: &mut Logs) {
    if !node.kind.is_empty() && node.kind != "Node" {
        return;
    }
    let NodeMetadata { name, mut labels } = node.metadata;
    let tiers = (0..).map_while(|tier| labels.get(&format!("{TIER}{tier}")).cloned()).collect();
    let gpus =
        node.status.capacity.get("nvidia.com/gpu").or_else(|| labels.get("nvidia.com/gpu.count"));
    let gpus = gpus.and_then(|gpus| gpus.parse().ok());
    let found = HostRecord {
        switches: tiers,
        gpus,
        domain: labels.remove(DOMAIN),
        product: labels.remove("nvidia.com/gpu.product"),
        place: Some(place.clone()),
    };
    logs.host(&name, found);
}
