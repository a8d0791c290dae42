// SPDX-License-Identifier: Apache-2.0
//! Reads Slurm's `topology.yaml` (25.05 and later) with topologies of switches, blocks or rings.
//!
//! The format is documented in topology.yaml(5) of Slurm 25.05 (tree, block), and rings are defined
//! by its plugin `ring`. Switches come from the first tree. Blocks or rings come from the default
//! topology if it contains any, otherwise from the first topology with blocks or rings.

use serde_json::Value;

use super::LogKind;
use super::topology_conf::{TopologyUnit, hosts, place};
use crate::json::document;
use crate::logs::{LogFile, Logs};

pub(super) const KIND: LogKind = LogKind {
    name: "Slurm topology.yaml",
    from: "/etc/slurm/topology.yaml",
    is: |text| {
        let sections = [
            &["topology:", "topology\":"][..],
            &["tree:", "tree\":", "block:", "block\":", "ring:", "flat:"],
        ];
        sections.iter().all(|keys| {
            let mut lines = text.lines().map(|line| line.trim_start_matches(['-', ' ', '{', '"']));
            lines.any(|line| keys.iter().any(|key| line.starts_with(key)))
        })
    },
    read: |files, logs| files.iter().for_each(|file| read(file, logs)),
};

fn read(file: &LogFile<'_>, logs: &mut Logs) {
    let text = file.text();
    let Some(mut topologies) = document::<Vec<Value>>(file, logs) else { return };
    topologies.sort_by_key(|topology| topology["cluster_default"] != true);
    let kinds = [("tree", "switches"), ("block", "blocks"), ("ring", "rings")];
    let [switches, blocks, rings] = kinds.map(|(kind, list)| {
        let mut lists = topologies.iter().filter_map(|topology| topology[kind][list].as_array());
        lists.find(|units| !units.is_empty())
    });
    let units = [(false, switches), (true, blocks.or(rings))]
        .map(|(is_block, units)| units.into_iter().flatten().map(move |unit| (is_block, unit)));
    let mut found = Vec::new();
    for (is_block, unit) in units.into_iter().flatten() {
        let mut names = ["switch", "block", "ring", "name"].iter();
        let name = names.find_map(|key| unit[*key].as_str()).unwrap_or_default();
        let line =
            text.lines().position(|line| line.trim_end_matches(['"', ',', '}']).ends_with(name));
        let place = file.line(line.map_or(1, |at| at + 1));
        let [nodes, switches] = ["nodes", "children"]
            .map(|key| hosts(unit[key].as_str().unwrap_or_default(), &place, logs));
        let name = name.to_owned();
        found.push(TopologyUnit { place, name, is_block, nodes, switches });
    }
    place(found, logs);
}
