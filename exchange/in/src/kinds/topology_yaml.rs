// SPDX-License-Identifier: Apache-2.0
//! Slurm's `topology.yaml` (25.05 and later): topologies of switches, blocks or rings.
//!
//! Source: topology.yaml(5) of Slurm 25.05 (tree, block) and its plugin `ring`. Switches come from the
//! first tree, blocks or rings from the default topology, or else from the first that has some.

use serde::Deserialize;

use super::LogKind;
use super::topology_conf::{TopologyUnit, place};
use crate::host_list::expand;
use crate::logs::{LogFile, Logs};
use crate::problem::LogTrouble;

pub(super) const KIND: LogKind = LogKind {
    name: "Slurm topology.yaml",
    from: "/etc/slurm/topology.yaml",
    is: |text| {
        let has = |keys: &[&str]| {
            let mut lines = text.lines().map(|line| line.trim_start_matches(['-', ' ', '{', '"']));
            lines.any(|line| keys.iter().any(|key| line.starts_with(key)))
        };
        has(&["topology:", "topology\":"])
            && has(&["tree:", "tree\":", "block:", "block\":", "ring:", "flat:"])
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlurmTopology {
    cluster_default: bool,
    tree: SlurmTree,
    block: SlurmBlocks,
    ring: SlurmRings,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlurmTree {
    switches: Vec<SlurmUnit>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlurmBlocks {
    blocks: Vec<SlurmUnit>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlurmRings {
    rings: Vec<SlurmUnit>,
}

#[derive(Clone, Deserialize)]
struct SlurmUnit {
    #[serde(alias = "switch", alias = "block", alias = "ring")]
    name: String,
    #[serde(default)]
    nodes: String,
    #[serde(default)]
    children: String,
}

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let text = file.text();
    let mut topologies: Vec<SlurmTopology> = match serde_saphyr::from_str(&text) {
        Ok(topologies) => topologies,
        Err(error) => {
            return logs.problem(file.whole(), LogTrouble::Unreadable(error.to_string()));
        }
    };
    topologies.sort_by_key(|topology| !topology.cluster_default);
    let switches = topologies.iter().map(|one| &one.tree.switches).find(|all| !all.is_empty());
    let blocks = topologies.iter().flat_map(|one| [&one.block.blocks, &one.ring.rings]);
    let blocks = blocks.into_iter().find(|all| !all.is_empty());
    let units = [(false, switches), (true, blocks)]
        .map(|(is_block, units)| units.into_iter().flatten().map(move |unit| (is_block, unit)));
    let mut found = Vec::new();
    for (is_block, unit) in units.into_iter().flatten() {
        let ends = |line: &str| line.trim_end_matches(['"', ',', '}']).ends_with(&*unit.name);
        let line = text.lines().position(ends).map_or(1, |at| at + 1);
        let mut list = |hosts: &str| {
            expand(hosts).unwrap_or_else(|error| {
                logs.problem(file.line(line), LogTrouble::Malformed(error));
                Vec::new()
            })
        };
        let (nodes, switches) = (list(&unit.nodes), list(&unit.children));
        let (place, name) = (file.line(line), unit.name.clone());
        found.push(TopologyUnit { place, name, is_block, nodes, switches });
    }
    place(found, logs);
}
