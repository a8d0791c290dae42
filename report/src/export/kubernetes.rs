// SPDX-License-Identifier: Apache-2.0
//! Exports Kubernetes node labels with the location and ring of each host.
//!
//! The export contains one `Node` per host for `kubectl apply --server-side
//! --field-manager=lightloom`, which sets these labels, removes obsolete ones, and leaves other
//! fields unchanged. `Node` v1 is documented in the Kubernetes 1.31 API, and Topograph's keys are
//! documented in its `docs/reference/node-labels.md`. The keys below [`PREFIX`] are our own.

use std::collections::BTreeMap;
use std::fmt::Write;

use lightloom_units::id::NodeId;

use super::topograph;
use super::write::{ANY_TEXT, label_value, quoted};
use super::{Export, ExportError, ExportFormat, RingPlan, Seat};

pub(super) const PREFIX: &str = "lightloom.github.io/";

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "kubernetes",
    about: "Kubernetes node labels (YAML): ring, place in it, job, switches above",
    ring: Ok(export),
    fat_tree: Err("the fabric file describes leaves, not the hosts below them"),
};

fn export(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let mut text = String::new();
    for node in plan.nodes() {
        write!(
            text,
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {}\n  labels:\n",
            quoted(plan.name(node))
        )
        .expect(ANY_TEXT);
        for (key, value) in node_labels(plan, node) {
            writeln!(text, "    {key}: {}", quoted(&value)).expect(ANY_TEXT);
        }
    }
    let mut lost = plan.lost_below_nodes();
    let renamed = plan.plan.jobs.iter().map(|job| job.name.as_str()).chain([&*plan.fabric.name]);
    for name in renamed.filter(|name| label_value(name) != **name) {
        lost.push(format!(
            "the name `{name}`, which becomes the label value `{}`",
            label_value(name)
        ));
    }
    Ok(Export::one("node-labels.yaml", text, lost))
}

pub fn node_labels(plan: &RingPlan<'_>, node: NodeId) -> BTreeMap<String, String> {
    let mut labels = topograph::labels(plan, node);
    let mut ours =
        vec![("fabric", label_value(&plan.fabric.name)), ("state", plan.state(node).to_owned())];
    match plan.seat(node) {
        Seat::Broken | Seat::Idle => {}
        Seat::Inside { rings } => ours.push(("rings-inside", rings.to_string())),
        Seat::Ring { group, place } => {
            ours.push(("place", place.to_string()));
            if let Some(job) = plan.job_of(plan.group(group)) {
                ours.push(("job", label_value(&job.name)));
            }
        }
    }
    labels.extend(ours.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), value)));
    labels
}
