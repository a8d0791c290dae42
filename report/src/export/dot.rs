// SPDX-License-Identifier: Apache-2.0
//! Exports the plan's lit fibres as a Graphviz picture (DOT), with rings as clusters and phases as colours.
//!
//! The format is documented in "DOT Language" (graphviz.org/doc/info/lang.html). The attributes `a`
//! and `b` contain ports; Graphviz preserves but does not draw them.

use std::fmt::Write;

use lightloom_units::id::LeafId;

use super::write::{ANY_TEXT, quoted};
use super::{Export, ExportError, ExportFormat, FatTreePlan, RingPlan, Seat};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "dot",
    about: "DOT for Graphviz: rings as clusters and lit fibres (circuits of a fat-tree)",
    ring: Ok(ring),
    fat_tree: Ok(fat_tree),
};

/// Distinguishable in print and by colour-blind readers (Okabe and Ito, 2008).
const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

fn ring(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let mut text = heading(&plan.fabric.name);
    for group in plan.plan.groups.iter().filter(|group| plan.is_of_whole_nodes(group)) {
        let job = plan.job_of(group).map_or("spare", |job| &job.name);
        let label = quoted(&format!("{} {job}", group.id));
        write!(text, "  subgraph cluster_{} {{ label={label};", group.id).expect(ANY_TEXT);
        for node in &group.nodes {
            write!(text, " {};", quoted(plan.name(*node))).expect(ANY_TEXT);
        }
        text.push_str(" }\n");
    }
    for node in plan.nodes() {
        let name = quoted(plan.name(node));
        match plan.seat(node) {
            Seat::Ring { .. } => continue,
            Seat::Broken => writeln!(text, "  {name} [style=filled, fillcolor=\"#bbbbbb\"];"),
            Seat::Idle => writeln!(text, "  {name} [style=dashed];"),
            Seat::Inside { .. } => writeln!(text, "  {name};"),
        }
        .expect(ANY_TEXT);
    }
    for circuit in &plan.plan.circuits {
        let [a, b] = [circuit.a, circuit.b].map(|port| quoted(plan.name(port.bundle.node)));
        writeln!(text, "  {a} -- {b} [a=\"{}\", b=\"{}\"];", circuit.a, circuit.b).expect(ANY_TEXT);
    }
    if let Some(network) = plan.fabric.dcn.direct() {
        for leaf in (0..plan.fabric.dcn.leaves(plan.fabric.hbd.nodes())).map(LeafId) {
            writeln!(text, "  {leaf} [shape=ellipse];").expect(ANY_TEXT);
        }
        for node in plan.nodes() {
            let leaf = LeafId(plan.fabric.dcn.tor_of(node).0);
            writeln!(text, "  {} -- {leaf};", quoted(plan.name(node))).expect(ANY_TEXT);
        }
        for cable in network.cables() {
            writeln!(text, "  {} -- {};", cable.a, cable.b).expect(ANY_TEXT);
        }
    }
    text.push_str("}\n");
    let dark = plan.fabric.hbd.fibres().count() - plan.plan.circuits.len();
    let mut lost = match plan.fabric.hbd.ring() {
        Some(_) => vec![format!(
            "{dark} dark fibres and the GPUs inside a node: the picture shows only light"
        )],
        None => vec!["the GPUs inside a node and their links".to_owned()],
    };
    if plan.fabric.dcn.direct().is_none() {
        lost.push("the packet switches between nodes".to_owned());
    }
    lost.extend(plan.lost_small_rings());
    Ok(Export::one("plan.dot", text, lost))
}

fn fat_tree(plan: &FatTreePlan<'_>) -> Result<Export, ExportError> {
    let mut text = heading(plan.name);
    let direction = if plan.network.is_one_way() { "dir=forward, " } else { "" };
    for leaf in plan.leaves() {
        writeln!(text, "  {};", quoted(plan.leaf_name(leaf))).expect(ANY_TEXT);
    }
    for (phase, colour) in plan.phases().into_iter().zip(COLOURS.iter().cycle()) {
        let name = quoted(&phase.name);
        for circuit in &phase.circuits {
            let [a, b] = [circuit.a, circuit.b].map(|leaf| quoted(plan.leaf_name(leaf)));
            let (switch, a_port, b_port) = (circuit.ocs, circuit.a_port, circuit.b_port);
            writeln!(
                text,
                "  {a} -- {b} [{direction}color=\"{colour}\", phase={name}, a=\"{switch}/{a_port}\", \
                 b=\"{switch}/{b_port}\"];"
            )
            .expect(ANY_TEXT);
        }
    }
    text.push_str("}\n");
    let lost = "the electrical core, dark ports and the stages between phases";
    Ok(Export::one("plan.dot", text, vec![lost.to_owned()]))
}

fn heading(name: &str) -> String {
    format!("graph {} {{\n  node [shape=box];\n", quoted(name))
}
