// SPDX-License-Identifier: Apache-2.0
//! Reads Kubernetes nodes with location labels from `kubectl get nodes -o json` or `-o yaml`.
//!
//! The labels are documented in `docs/reference/node-labels.md` of NVIDIA/topograph 1.0 (`fabric.topograph.run/tier-0`
//! is the nearest switch, `accelerator.topograph.run/domain` the accelerators' domain); `nvidia.com/gpu` in
//! `status.capacity` of Node v1; `nvidia.com/gpu.product` and `nvidia.com/gpu.clique` of GPU feature discovery (one
//! clique per NVLink partition); Kueue's topology levels, or those of a cluster's `Topology` object; `topology.k8s.aws/network-node-layer-3`, where the highest
//! number is the nearest switch.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::LogKind;
use crate::json::{parse, records, yaml_options};
use crate::logs::{HostRecord, LogFile, Logs};
use crate::problem::{LogPlace, RECORD_SKIPPED};

const TIER: &str = "fabric.topograph.run/tier-";
const LAYER: &str = "topology.k8s.aws/network-node-layer-";
/// Kueue topology labels, nearest switch first.
const LEVELS: [&str; 4] = [
    "cloud.provider.com/topology-rack",
    "cloud.google.com/gce-topology-subblock",
    "cloud.provider.com/topology-block",
    "cloud.google.com/gce-topology-block",
];
/// Labels that are equal on all hosts of a fast domain.
const DOMAINS: [&str; 3] = [
    "accelerator.topograph.run/domain",
    "nvidia.com/gpu.clique",
    "topology.k8s.aws/ultraserver-id",
];
const PRODUCTS: [&str; 3] =
    ["nvidia.com/gpu.product", "amd.com/gpu.product-name", "alibabacloud.com/gpu-card-model"];
const GPUS: [&str; 4] =
    ["nvidia.com/gpu", "amd.com/gpu", "alibabacloud.com/gpu-count", "habana.ai/gaudi"];
/// Unlike a capacity, these labels do not count MIG instances or the shares of a GPU.
const COUNTS: [&str; 2] = ["nvidia.com/gpu.count", "amd.com/gpu.count"];

/// Key of a level in a Kueue `Topology`, which lists the nearest level last.
const OWN_LEVEL: &str = "nodeLabel";

pub(super) const KIND: LogKind = LogKind {
    name: "Kubernetes nodes with location labels",
    from: "kubectl get nodes -o json",
    is: |text| {
        let labels = [TIER, LAYER].into_iter().chain(LEVELS).chain(DOMAINS).chain(GPUS);
        labels.into_iter().any(|label| text.contains(label)) && is_kind(text, "Node")
            || text.contains(OWN_LEVEL) && is_kind(text, "Topology")
    },
    read: |files, logs| {
        let levels: Vec<String> = files.iter().flat_map(own_levels).collect();
        files.iter().for_each(|file| read(file, &levels, logs));
    },
};

#[derive(Default, Deserialize)]
pub(super) struct Labels(BTreeMap<String, String>);

impl Labels {
    fn first(&self, labels: &[&str]) -> Option<String> {
        labels.iter().find_map(|label| self.0.get(*label)).cloned()
    }

    pub(super) fn host(&self) -> HostRecord {
        let tiers = (0..).map_while(|tier| self.0.get(&format!("{TIER}{tier}")).cloned());
        let layers = (1..=4).rev().filter_map(|layer| self.0.get(&format!("{LAYER}{layer}")));
        let levels = LEVELS.iter().filter_map(|level| self.0.get(*level));
        let of_labels: [Vec<String>; 3] =
            [tiers.collect(), layers.cloned().collect(), levels.cloned().collect()];
        HostRecord {
            switches: of_labels.into_iter().find(|found| !found.is_empty()).unwrap_or_default(),
            domain: self.first(&DOMAINS),
            gpus: self.first(&COUNTS).and_then(|count| count.parse().ok()),
            product: self.first(&PRODUCTS),
            place: None,
        }
    }
}

fn is_kind(text: &str, kind: &str) -> bool {
    let bare: String = text.chars().filter(|c| !matches!(c, ' ' | '"')).collect();
    let named = format!("kind:{kind}");
    let mut after = bare.split(&named).skip(1);
    after.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClusterNode {
    kind: String,
    metadata: NodeMetadata,
    status: NodeStatus,
    items: Vec<ClusterNode>,
}

#[derive(Default, Deserialize)]
struct NodeMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: Labels,
}

#[derive(Default, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    capacity: BTreeMap<String, Value>,
}

fn own_levels(file: &LogFile<'_>) -> Vec<String> {
    let text = file.text();
    // `nodeLabels` of another object has no levels.
    let rests = text.split(OWN_LEVEL).skip(1).filter(|rest| !rest.starts_with('s'));
    let words = rests.filter_map(|rest| {
        rest.split(['"', '\'', ':', ' ', '\r', '\n']).find(|word| !word.is_empty())
    });
    words.filter(|level| *level != "kubernetes.io/hostname").map(str::to_owned).collect()
}

fn read(file: &LogFile<'_>, levels: &[String], logs: &mut Logs) {
    let text = file.text();
    if text.trim_start().starts_with(['{', '[']) {
        for record in records(file, logs) {
            if let Some(node) = parse::<ClusterNode>(file, &record, logs) {
                note(node, levels, &file.line(record.line), logs);
            }
        }
        return;
    }
    match serde_saphyr::from_multiple_with_options::<ClusterNode>(&text, yaml_options()) {
        Ok(nodes) => {
            for node in nodes
                .into_iter()
                .flat_map(|node| if node.items.is_empty() { vec![node] } else { node.items })
            {
                let at =
                    text.lines().position(|line| line.trim_end().ends_with(&*node.metadata.name));
                let place = at.map_or_else(|| file.whole(), |at| file.line(at + 1));
                note(node, levels, &place, logs);
            }
        }
        Err(error) => logs.problem(file.whole(), error.to_string(), RECORD_SKIPPED),
    }
}

fn note(node: ClusterNode, levels: &[String], place: &LogPlace, logs: &mut Logs) {
    if !node.kind.is_empty() && node.kind != "Node" {
        return;
    }
    let NodeMetadata { name, labels } = node.metadata;
    let mut found = labels.host();
    let own = levels.iter().rev().filter_map(|level| labels.0.get(level).cloned());
    found.switches =
        Some(own.collect()).filter(|own: &Vec<_>| !own.is_empty()).unwrap_or(found.switches);
    let capacity = GPUS.iter().find_map(|key| node.status.capacity.get(*key));
    let capacity = capacity.and_then(|gpus| match gpus {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|gpus| u32::try_from(gpus).ok()),
    });
    let gpus = found.gpus.or(capacity);
    // Control plane nodes, for example, have neither accelerators nor a location.
    if gpus.unwrap_or(0) == 0 && found.switches.is_empty() && found.domain.is_none() {
        return;
    }
    logs.host(&name, HostRecord { gpus, place: Some(place.clone()), ..found });
}
