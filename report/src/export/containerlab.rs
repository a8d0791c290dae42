// SPDX-License-Identifier: Apache-2.0
//! Exports hosts (or leaves) as containers and lit fibres (or circuits) as links for containerlab.
//!
//! The format is defined by containerlab's `schemas/clab.schema.json` and the page "Topology definition" of its manual.
//! Interfaces are named after their ports, within Linux's limit of 15 characters.

use std::fmt::Write;

use lightloom_fabric::khop::Port;

use super::write::{ANY_TEXT, quoted};
use super::{Export, ExportError, ExportFormat, FatTreePlan, RingPlan, Seat};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "containerlab",
    about: "containerlab topology: hosts as Linux containers, lit fibres as links",
    ring: Ok(ring),
    fat_tree: Ok(fat_tree),
};

fn ring(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let mut text = heading(&plan.fabric.name);
    for node in plan.nodes().filter(|node| plan.seat(*node) != Seat::Broken) {
        let name = quoted(plan.name(node));
        match plan.seat(node) {
            Seat::Ring { group, place } => writeln!(
                text,
                "    {name}: {{kind: linux, labels: {{ring: {group}, place: \"{place}\"}}}}"
            ),
            _ => writeln!(text, "    {name}: {{kind: linux}}"),
        }
        .expect(ANY_TEXT);
    }
    let circuits = plan.plan.circuits.iter();
    let ends = circuits.map(|circuit| [circuit.a, circuit.b].map(|port| endpoint(plan, port)));
    write_links(&mut text, ends);
    let dark = plan.fabric.hbd.fibres().count() - plan.plan.circuits.len();
    let mut lost = vec![
        format!("{dark} dark fibres: links represent lit fibres only"),
        "GPUs, rates, delays and the paths of each bundle".to_owned(),
    ];
    lost.extend(plan.lost_small_rings());
    Ok(Export::one("plan.clab.yml", text, lost))
}

fn endpoint(plan: &RingPlan<'_>, port: Port) -> String {
    let name = plan.name(port.bundle.node);
    quoted(&format!("{name}:b{}p{}", port.bundle.bundle, port.path))
}

fn fat_tree(plan: &FatTreePlan<'_>) -> Result<Export, ExportError> {
    let mut text = heading(plan.name);
    for leaf in plan.leaves() {
        writeln!(text, "    {}: {{kind: linux}}", quoted(plan.leaf_name(leaf))).expect(ANY_TEXT);
    }
    // A transmitter and a receiver of a leaf may have one number, but not one interface.
    let kinds = if plan.network.is_one_way() { ["tx", "rx"] } else { ["p", "p"] };
    let ends = plan.one_phase().circuits.iter().map(|circuit| {
        let ends = [(circuit.a, kinds[0], circuit.a_port), (circuit.b, kinds[1], circuit.b_port)];
        ends.map(|(leaf, kind, port)| {
            quoted(&format!("{}:{}{kind}{port}", plan.leaf_name(leaf), circuit.ocs))
        })
    });
    write_links(&mut text, ends);
    let mut lost = plan.lost_beside_one_phase();
    lost.push("the electrical core, the optical switches, rates and delays".to_owned());
    if plan.network.is_one_way() {
        lost.push("the directions of one-way circuits: links carry traffic both ways".to_owned());
    }
    Ok(Export::one("plan.clab.yml", text, lost))
}

/// The schema does not permit an empty list.
fn write_links(text: &mut String, links: impl Iterator<Item = [String; 2]>) {
    for (index, [a, b]) in links.enumerate() {
        if index == 0 {
            text.push_str("  links:\n");
        }
        writeln!(text, "    - endpoints: [{a}, {b}]").expect(ANY_TEXT);
    }
}

/// Container names contain the lab's name, so it follows their rules.
fn heading(name: &str) -> String {
    format!(
        "name: {}\ntopology:\n  kinds:\n    linux: {{image: \"alpine:3\"}}\n  nodes:\n",
        quoted(&super::write::object_name(name))
    )
}
