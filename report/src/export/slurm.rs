// SPDX-License-Identifier: Apache-2.0
//! Exports the rings of a plan to Slurm. In `topology.yaml`, the rings are blocks and, up to 16
//! nodes, also rings. In `topology.conf`, which every version reads, they are leaf switches.
//!
//! A job in Slurm's ring topology cannot span rings, so blocks are always exported and are the default; a partition
//! selects the rings with `Topology=`. Blocks are documented in topology.yaml(5) of Slurm 25.05, and rings in
//! `src/plugins/topology/ring/ring_record.c` of Slurm 26.05. Slurm requires unique names, blocks of at least the base
//! size, and rings of at most 16 nodes.

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_units::id::NodeId;

use super::write::{ANY_TEXT, host_list, quoted};
use super::{Export, ExportError, ExportFormat, RingPlan, Seat};

const RING_NODES_MAX: usize = 16;

const NO_HOSTS: &str = "the fabric file describes leaves, not the hosts below them, and the circuits \
                        change with every phase, but Slurm's topology does not";

pub(super) const BLOCK: ExportFormat = ExportFormat {
    name: "slurm",
    about: "Slurm topology.yaml (25.05 or later): each ring a block",
    ring: Ok(|plan| export(plan, &BLOCK)),
    fat_tree: Err(NO_HOSTS),
};

pub(super) const RING: ExportFormat = ExportFormat {
    name: "slurm-ring",
    about: "Slurm topology.yaml (26.05 or later): each ring a block, up to 16 nodes also a ring",
    ring: Ok(|plan| export(plan, &RING)),
    fat_tree: Err(NO_HOSTS),
};

pub(super) const TREE: ExportFormat = ExportFormat {
    name: "slurm-tree",
    about: "Slurm topology.conf (any version, topology/tree): each ring a leaf switch",
    ring: Ok(tree),
    fat_tree: Err(NO_HOSTS),
};

/// A job is placed in one ring if it fits, otherwise on as few rings as possible.
fn tree(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let units: Vec<TopologyUnit> =
        units_by_tp(plan).into_iter().flat_map(|(_, units)| units).collect();
    if units.is_empty() {
        return Err(ExportError::NoRing { format: TREE.name });
    }
    let of = quoted(&plan.fabric.name);
    let mut text =
        format!("# Rings of {of} that lightloom planned, as leaf switches of one tree.\n");
    for unit in &units {
        let nodes = host_list(unit.nodes.iter().map(|node| plan.name(*node)));
        writeln!(text, "SwitchName={} Nodes={nodes}", unit.name).expect(ANY_TEXT);
    }
    let names: Vec<&str> = units.iter().map(|unit| unit.name.as_str()).collect();
    writeln!(text, "SwitchName=rings Switches={}", names.join(",")).expect(ANY_TEXT);
    let mut lost = vec![
        "the neighbours of a node in its ring: the nodes of a switch are not ordered".to_owned(),
        "ToRs: a Slurm tree contains each node only once, in this case below its ring".to_owned(),
    ];
    lost.extend(unreached(plan));
    lost.extend(plan.lost_below_nodes());
    Ok(Export::one("topology.conf", text, lost))
}

struct TopologyUnit {
    name: String,
    nodes: Vec<NodeId>,
}

fn export(plan: &RingPlan<'_>, format: &ExportFormat) -> Result<Export, ExportError> {
    let as_rings = format.name == RING.name;
    let mut text = format!(
        "# Rings of {} that lightloom planned; nodes in the order of the line.\n",
        quoted(&plan.fabric.name)
    );
    let mut lost = Vec::new();
    let topologies = units_by_tp(plan);
    if topologies.is_empty() {
        // Slurm exits on a ring topology without rings, and complains about a block topology without blocks.
        return Err(ExportError::NoRing { format: format.name });
    }
    let largest = topologies.iter().enumerate().max_by_key(|(_, (_, units))| units.len());
    let largest = largest.map(|(index, _)| index);
    for (index, (tp, units)) in topologies.iter().enumerate() {
        let default = Some(index) == largest;
        let nodes = units.iter().map(|unit| unit.nodes.len()).max().unwrap_or(0);
        if as_rings && nodes > RING_NODES_MAX {
            lost.push(format!(
                "the neighbours in a TP-{tp} ring: a Slurm ring has at most \
                 {RING_NODES_MAX} nodes and these have {nodes}, so they are written as blocks"
            ));
        }
        write_topology(&mut text, plan, &format!("tp{tp}"), TopologyKind::Block { default }, units);
        if as_rings && (2..=RING_NODES_MAX).contains(&nodes) {
            let name = format!("tp{tp}-ring");
            lost.push(format!(
                "the ends of a TP-{tp} ring's line of nodes: Slurm may place a smaller job on its last and first node, which are not neighbours"
            ));
            lost.push(format!(
                "jobs of more than one ring in a partition with Topology={name}: Slurm refuses \
                 them there ({nodes} nodes at most); the blocks tp{tp} accept them"
            ));
            write_topology(&mut text, plan, &name, TopologyKind::Ring, units);
        }
    }
    if !as_rings && topologies.iter().any(|(_, units)| units.iter().any(|u| u.nodes.len() > 1)) {
        lost.push(
            "the neighbours of a node in its ring: the nodes of a block are not ordered".to_owned(),
        );
    }
    lost.extend(unreached(plan));
    lost.extend(plan.lost_below_nodes());
    Ok(Export::one("topology.yaml", text, lost))
}

fn units_by_tp(plan: &RingPlan<'_>) -> Vec<(usize, Vec<TopologyUnit>)> {
    let mut by_tp: BTreeMap<usize, BTreeMap<(usize, NodeId), TopologyUnit>> = BTreeMap::new();
    for group in &plan.plan.groups {
        let units = by_tp.entry(group.ring.len()).or_default();
        if plan.is_of_whole_nodes(group) {
            let unit = TopologyUnit { name: group.id.to_string(), nodes: group.nodes.clone() };
            units.insert((group.id.index(), NodeId(0)), unit);
        } else {
            for node in &group.nodes {
                let unit = TopologyUnit { name: node.to_string(), nodes: vec![*node] };
                units.insert((0, *node), unit);
            }
        }
    }
    by_tp.into_iter().map(|(tp, units)| (tp, units.into_values().collect())).collect()
}

#[derive(Clone, Copy)]
enum TopologyKind {
    Block { default: bool },
    Ring,
}

fn write_topology(
    text: &mut String,
    plan: &RingPlan<'_>,
    name: &str,
    kind: TopologyKind,
    units: &[TopologyUnit],
) {
    let default = matches!(kind, TopologyKind::Block { default: true });
    writeln!(text, "- topology: {name}\n  cluster_default: {default}").expect(ANY_TEXT);
    let key = match kind {
        TopologyKind::Ring => {
            text.push_str("  ring:\n    rings:\n");
            "ring"
        }
        TopologyKind::Block { .. } => {
            let base = units.iter().map(|unit| unit.nodes.len()).min().unwrap_or(1);
            writeln!(text, "  block:\n    block_sizes:\n      - {base}\n    blocks:")
                .expect(ANY_TEXT);
            "block"
        }
    };
    for unit in units {
        let nodes = host_list(unit.nodes.iter().map(|node| plan.name(*node)));
        writeln!(text, "      - {key}: {}\n        nodes: {nodes:?}", unit.name).expect(ANY_TEXT);
    }
}

fn unreached(plan: &RingPlan<'_>) -> Option<String> {
    let [broken, idle] = [Seat::Broken, Seat::Idle]
        .map(|seat| plan.nodes().filter(|node| plan.seat(*node) == seat).count());
    (broken + idle > 0).then(|| {
        format!(
            "failed nodes ({broken}) and working nodes outside rings ({idle}): Slurm warns that the \
             topology lacks them"
        )
    })
}
