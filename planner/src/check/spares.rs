// SPDX-License-Identifier: Apache-2.0
//! N + 1 rings: each spare node passes light on and works for nobody, and whichever node of its ring dies, the two
//! bundles that faced it reach each other by their other path.

use std::collections::BTreeSet;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::khop::{Path, Port};
use lightloom_fabric::plan::{Group, Plan};
use lightloom_units::id::{BundleId, NodeId};

use super::Violation;
use super::links::{Lit, working_far_end};

pub(super) fn check(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    lit: &Lit,
    found: &mut Vec<Violation>,
) {
    for group in plan.groups.iter().filter(|group| !group.passing.is_empty()) {
        let before = found.len();
        check_spare(fabric, faults, group, found);
        if found.len() == before {
            check_deaths(fabric, faults, group, lit, found);
        }
    }
}

fn check_spare(fabric: &Fabric, faults: &FaultSet, group: &Group, found: &mut Vec<Violation>) {
    let allowed = fabric.spare_per_ring;
    for (place, &node) in group.passing.iter().enumerate() {
        if node.0 >= fabric.hbd.nodes() {
            continue;
        }
        if place >= usize::from(allowed) {
            found.push(Violation::NotASpare { group: group.id, node, allowed });
        }
        if group.nodes.contains(&node) || faults.nodes.contains(&node) {
            found.push(Violation::SpareUsed { group: group.id, node });
        }
    }
}

/// For each node of the ring: what faced it can be joined by one other path of the same two bundles.
fn check_deaths(
    fabric: &Fabric,
    faults: &FaultSet,
    group: &Group,
    lit: &Lit,
    found: &mut Vec<Violation>,
) {
    let ring: BTreeSet<NodeId> = group.nodes.iter().chain(&group.passing).copied().collect();
    for &node in ring.iter().filter(|node| node.0 < fabric.hbd.nodes()) {
        let bundles = (0..fabric.hbd.k()).map(|bundle| BundleId { node, bundle });
        let facing: Vec<BundleId> =
            bundles.filter_map(|bundle| lit.far_end(bundle)).map(|far| far.bundle).collect();
        // A ring of two nodes faces one node with one bundle: that loops, and nothing has to be joined.
        let [a, b] = facing[..] else { continue };
        let other = |bundle: BundleId| {
            let path = if lit.path(bundle) == Some(Path::External1) { 2 } else { 1 };
            Port { bundle, path }
        };
        let joined = working_far_end(fabric, faults, other(a)) == Some(other(b));
        if a.node == b.node || !joined {
            found.push(Violation::NoWayPast { group: group.id, node, a, b });
        }
    }
}
