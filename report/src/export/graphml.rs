// SPDX-License-Identifier: Apache-2.0
//! Exports all cabling as GraphML for graph tools, and marks the fibres that carry light.
//!
//! The format is documented in the section "GraphML-Attributes" of the GraphML Primer (graphml.graphdrawing.org). Keys
//! are identified by `attr.name`; the graph is undirected and may have parallel edges.

use std::fmt::Write;

use lightloom_fabric::direct::DirectNetwork;
use lightloom_units::id::{LeafId, NodeId};

use rustc_hash::FxHashSet;

use super::write::{ANY_TEXT, xml};
use super::{Export, ExportError, ExportFormat, FatTreePlan, RingPlan, Seat};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "graphml",
    about: "GraphML: nodes and every fibre, lit or not (leaves and circuits of a fat-tree)",
    ring: Ok(ring),
    fat_tree: Ok(fat_tree),
};

struct Document {
    text: String,
    keys: &'static [(&'static str, &'static str, &'static str)],
}

impl Document {
    fn new(name: &str, keys: &'static [(&'static str, &'static str, &'static str)]) -> Self {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n",
        );
        for (index, (whose, key, kind)) in keys.iter().enumerate() {
            writeln!(
                text,
                "  <key id=\"d{index}\" for=\"{whose}\" attr.name=\"{key}\" attr.type=\"{kind}\"/>"
            )
            .expect(ANY_TEXT);
        }
        writeln!(text, "  <graph id=\"{}\" edgedefault=\"undirected\">", xml(name))
            .expect(ANY_TEXT);
        Self { text, keys }
    }

    fn node(&mut self, id: &str, data: &[(&str, String)]) {
        write!(self.text, "    <node id=\"{}\">", xml(id)).expect(ANY_TEXT);
        self.data("node", data);
        self.text.push_str("</node>\n");
    }

    fn edge(&mut self, source: &str, target: &str, data: &[(&str, String)]) {
        let (source, target) = (xml(source), xml(target));
        write!(self.text, "    <edge source=\"{source}\" target=\"{target}\">").expect(ANY_TEXT);
        self.data("edge", data);
        self.text.push_str("</edge>\n");
    }

    fn data(&mut self, whose: &str, data: &[(&str, String)]) {
        for (name, value) in data {
            let key = self.keys.iter().position(|key| key.0 == whose && key.1 == *name);
            let key = key.expect("every datum has a key");
            write!(self.text, "<data key=\"d{key}\">{}</data>", xml(value)).expect(ANY_TEXT);
        }
    }

    fn end(mut self, lost: Vec<String>) -> Export {
        self.text.push_str("  </graph>\n</graphml>\n");
        Export::one("plan.graphml", self.text, lost)
    }
}

fn ring(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let mut document = Document::new(
        &plan.fabric.name,
        &[
            ("node", "name", "string"),
            ("node", "tor", "string"),
            ("node", "state", "string"),
            ("node", "ring", "string"),
            ("node", "place", "int"),
            ("node", "job", "string"),
            ("edge", "a_port", "string"),
            ("edge", "b_port", "string"),
            ("edge", "hops", "int"),
            ("edge", "lit", "boolean"),
        ],
    );
    for node in plan.nodes() {
        document.node(&node.to_string(), &node_data(plan, node));
    }
    let lit: FxHashSet<_> =
        plan.plan.circuits.iter().map(|circuit| (circuit.a, circuit.b)).collect();
    let hbd = &plan.fabric.hbd;
    for fibre in hbd.fibres() {
        let (a, b) = hbd.ports(fibre);
        let data = [
            ("a_port", a.to_string()),
            ("b_port", b.to_string()),
            ("hops", fibre.hops.to_string()),
            ("lit", lit.contains(&(a, b)).to_string()),
        ];
        document.edge(&a.bundle.node.to_string(), &b.bundle.node.to_string(), &data);
    }
    let mut lost = match hbd.ring() {
        Some(_) => vec![
            "the GPUs inside a node and the paths of dark bundles: vertices represent nodes only"
                .to_owned(),
        ],
        None => {
            vec!["the GPUs inside a node and their links: vertices represent nodes only".to_owned()]
        }
    };
    match plan.fabric.dcn.direct() {
        Some(network) => leaves(plan, network, &mut document),
        None => lost.push("the packet switches above ToRs".to_owned()),
    }
    lost.extend(plan.lost_small_rings());
    Ok(document.end(lost))
}

fn leaves(plan: &RingPlan<'_>, network: &DirectNetwork, document: &mut Document) {
    for leaf in (0..plan.fabric.dcn.leaves(plan.fabric.hbd.nodes())).map(LeafId) {
        document.node(&leaf.to_string(), &[("name", leaf.to_string())]);
    }
    for node in plan.nodes() {
        let leaf = LeafId(plan.fabric.dcn.tor_of(node).0);
        document.edge(&node.to_string(), &leaf.to_string(), &[]);
    }
    for cable in network.cables() {
        document.edge(&cable.a.to_string(), &cable.b.to_string(), &[]);
    }
}

fn node_data(plan: &RingPlan<'_>, node: NodeId) -> Vec<(&'static str, String)> {
    let mut data = vec![
        ("name", plan.name(node).to_owned()),
        ("tor", plan.fabric.dcn.tor_of(node).to_string()),
        ("state", plan.state(node).to_owned()),
    ];
    if let Seat::Ring { group, place } = plan.seat(node) {
        data.push(("ring", group.to_string()));
        data.push(("place", place.to_string()));
        data.extend(plan.job_of(plan.group(group)).map(|job| ("job", job.name.clone())));
    }
    data
}

fn fat_tree(plan: &FatTreePlan<'_>) -> Result<Export, ExportError> {
    let mut document = Document::new(
        plan.name,
        &[
            ("node", "name", "string"),
            ("edge", "phase", "string"),
            ("edge", "switch", "string"),
            ("edge", "a_port", "int"),
            ("edge", "b_port", "int"),
        ],
    );
    for leaf in plan.leaves() {
        document.node(&leaf.to_string(), &[("name", plan.leaf_name(leaf).to_owned())]);
    }
    for phase in plan.phases() {
        for circuit in &phase.circuits {
            let data = [
                ("phase", phase.name.clone()),
                ("switch", circuit.ocs.to_string()),
                ("a_port", circuit.a_port.to_string()),
                ("b_port", circuit.b_port.to_string()),
            ];
            document.edge(&circuit.a.to_string(), &circuit.b.to_string(), &data);
        }
    }
    Ok(document.end(vec![
        "the electrical core, dark ports and the stages between phases: edges represent circuits \
         only"
            .to_owned(),
    ]))
}
