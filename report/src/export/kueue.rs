// SPDX-License-Identifier: Apache-2.0
//! Exports Kueue's `Topology` of rings and a `ResourceFlavor` that uses it.
//!
//! The types are defined in `apis/kueue/v1beta2/topology_types.go` and `resourceflavor_types.go` of
//! Kueue. A topology is one tree of node labels that ends at the host; a flavour with a topology
//! needs a node label. The `kubernetes` format sets these labels.

use super::kubernetes::PREFIX;
use super::topograph::DOMAIN_LABEL;
use super::write::{label_value, object_name, quoted};
use super::{Export, ExportError, ExportFormat, RingPlan};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "kueue",
    about: "Kueue Topology and ResourceFlavor (v1beta2), using the labels of `kubernetes`",
    ring: Ok(export),
    fat_tree: Err("the fabric file describes leaves, not the hosts below them"),
};

fn export(plan: &RingPlan<'_>) -> Result<Export, ExportError> {
    let name = quoted(&object_name(&plan.fabric.name));
    let fabric = quoted(&label_value(&plan.fabric.name));
    let text = format!(
        "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata:\n  name: {name}\n\
         spec:\n  levels:\n  - nodeLabel: {DOMAIN_LABEL}\n  - nodeLabel: kubernetes.io/hostname\n\
         ---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata:\n  name: {name}\n\
         spec:\n  nodeLabels:\n    {PREFIX}fabric: {fabric}\n  topologyName: {name}\n"
    );
    let mut lost = vec![
        "ToRs and aggregation domains: a Kueue topology is one tree, and rings cross ToRs"
            .to_owned(),
        "the ring of each node: labels contain it (`--to kubernetes`)".to_owned(),
    ];
    lost.extend(plan.lost_below_nodes());
    Ok(Export::one("kueue.yaml", text, lost))
}
