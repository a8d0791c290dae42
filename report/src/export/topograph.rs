// SPDX-License-Identifier: Apache-2.0
//! Exports NVIDIA Topograph's simulation model (YAML) and the response of its `graph` engine (JSON).
//!
//! The formats are defined in `pkg/models/model.go` (model) and `pkg/topology/instance.go`, `docs/engines/graph.md`,
//! `docs/reference/node-labels.md` (graph, labels) of Topograph 1.0. A node belongs to one block and a switch has one
//! parent, so a ring becomes an *accelerator domain*, with one block per ToR.

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_units::id::{NodeId, TorId};
use serde::Serialize;

use super::write::{ANY_TEXT, host_list};
use super::{Export, ExportError, ExportFormat, RingPlan, Seat};

pub(super) const DOMAIN_LABEL: &str = "accelerator.topograph.run/domain";
pub(super) const TIER_LABEL: &str = "fabric.topograph.run/tier-";

const NO_HOSTS: &str = "the fabric file describes leaves, not the hosts below them";

pub(super) const MODEL: ExportFormat = ExportFormat {
    name: "topograph",
    about: "NVIDIA Topograph model YAML: switches, and rings as accelerator domains",
    ring: Ok(|plan| Ok(model(plan))),
    fat_tree: Err(NO_HOSTS),
};

pub(super) const GRAPH: ExportFormat = ExportFormat {
    name: "topograph-graph",
    about: "NVIDIA Topograph graph JSON: each host with its switches and its ring",
    ring: Ok(graph),
    fat_tree: Err(NO_HOSTS),
};

fn model(plan: &RingPlan<'_>) -> Export {
    let mut text = String::from("switches:\n");
    for ((_, _, switch), under) in &switches(plan) {
        match &under[..] {
            [] => writeln!(text, "  {switch}: {{}}"),
            under => writeln!(text, "  {switch}: {{switches: [{}]}}", under.join(", ")),
        }
        .expect(ANY_TEXT);
    }
    text.push_str("blocks:\n");
    for block in blocks(plan) {
        let nodes = host_list(block.nodes.iter().map(|node| plan.name(*node)));
        writeln!(text, "- switch: {}\n  nodes: {}", block.tor, host_items(&nodes)).expect(ANY_TEXT);
        if let Some(domain) = block.domain {
            writeln!(text, "  annotations: {{accelerator.topology.test/domain: {domain}}}")
                .expect(ANY_TEXT);
        }
    }
    Export::one("model.yaml", text, lost(plan))
}

fn switches(plan: &RingPlan<'_>) -> BTreeMap<(usize, usize, String), Vec<String>> {
    let mut below: BTreeMap<(usize, usize, String), Vec<String>> = BTreeMap::new();
    for node in working(plan) {
        let above = plan.switches_above(node);
        for (depth, switch) in above.iter().rev().enumerate() {
            let under = below.entry((depth, switch.len(), switch.clone())).or_default();
            let child = (depth + 1 < above.len()).then(|| &above[above.len() - depth - 2]);
            if let Some(child) = child.filter(|child| under.last() != Some(*child)) {
                under.push(child.clone());
            }
        }
    }
    below
}

struct TorBlock {
    tor: TorId,
    domain: Option<String>,
    nodes: Vec<NodeId>,
}

fn blocks(plan: &RingPlan<'_>) -> Vec<TorBlock> {
    let mut blocks: Vec<TorBlock> = Vec::new();
    let mut first_of_tor = 0;
    for node in working(plan) {
        let (tor, domain) = (plan.fabric.dcn.tor_of(node), domain_of(plan, node));
        if blocks.last().is_some_and(|block| block.tor != tor) {
            first_of_tor = blocks.len();
        }
        match blocks[first_of_tor..].iter_mut().find(|block| block.domain == domain) {
            Some(block) => block.nodes.push(node),
            None => blocks.push(TorBlock { tor, domain, nodes: vec![node] }),
        }
    }
    blocks
}

fn working<'p>(plan: &'p RingPlan<'_>) -> impl Iterator<Item = NodeId> + 'p {
    plan.nodes().filter(|node| plan.seat(*node) != Seat::Broken)
}

fn host_items(list: &str) -> String {
    let mut depth = 0;
    let items = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    let items: Vec<String> = items.map(|item| format!("\"{item}\"")).collect();
    format!("[{}]", items.join(", "))
}

pub(super) fn domain_of(plan: &RingPlan<'_>, node: NodeId) -> Option<String> {
    match plan.seat(node) {
        Seat::Ring { group, .. } => Some(group.to_string()),
        Seat::Broken | Seat::Idle | Seat::Inside { .. } => None,
    }
}

#[derive(Serialize)]
struct Instances<'a> {
    instances: Vec<Instance<'a>>,
}

#[derive(Serialize)]
struct Instance<'a> {
    id: &'a str,
    network_layers: Vec<String>,
    labels: BTreeMap<String, String>,
}

fn graph(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let instances = working(plan).map(|node| {
        let network_layers = plan.switches_above(node);
        let labels = labels(plan, node);
        Instance { id: plan.name(node), network_layers, labels }
    });
    let document = Instances { instances: instances.collect() };
    let mut text = serde_json::to_string_pretty(&document).expect("strings are JSON");
    text.push('\n');
    Ok(Export::one("graph.json", text, lost(plan)))
}

pub(super) fn labels(plan: &RingPlan<'_>, node: NodeId) -> BTreeMap<String, String> {
    let tiers = plan.switches_above(node).into_iter().enumerate();
    let tiers = tiers.map(|(tier, switch)| (format!("{TIER_LABEL}{tier}"), switch));
    let domain = domain_of(plan, node).map(|domain| (DOMAIN_LABEL.to_owned(), domain));
    tiers.chain(domain).collect()
}

fn lost(plan: &RingPlan<'_>) -> Vec<String> {
    let broken = plan.nodes().filter(|node| plan.seat(*node) == Seat::Broken).count();
    let mut lost =
        vec!["the order of nodes in a ring, and its job: domains are unordered sets".to_owned()];
    if broken > 0 {
        lost.push(format!("failed nodes ({broken}), which discovery would omit as well"));
    }
    lost.extend(plan.lost_below_nodes());
    lost
}
