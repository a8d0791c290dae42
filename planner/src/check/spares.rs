// SPDX-License-Identifier: Apache-2.0
//! Checks N + 1 rings. If any node fails, its two neighbouring bundles must connect over their
//! other path. If the fibre of that path has failed, the ring is treated as a ring without a spare.

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
) -> u64 {
    let mut cannot_stand_in = 0;
    for group in plan.groups.iter().filter(|group| !group.passing.is_empty()) {
        let before = found.len();
        check_spare(fabric, faults, group, found);
        if found.len() == before && !survives_deaths(fabric, faults, group, lit, found) {
            cannot_stand_in += 1;
        }
    }
    cannot_stand_in
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

fn survives_deaths(
    fabric: &Fabric,
    faults: &FaultSet,
    group: &Group,
    lit: &Lit,
    found: &mut Vec<Violation>,
) -> bool {
    let mut all_work = true;
    let ring: BTreeSet<NodeId> = group.nodes.iter().chain(&group.passing).copied().collect();
    for &node in ring.iter().filter(|node| node.0 < fabric.hbd.nodes()) {
        let bundles = (0..fabric.hbd.k()).map(|bundle| BundleId { node, bundle });
        let facing: Vec<BundleId> =
            bundles.filter_map(|bundle| lit.far_end(bundle)).map(|far| far.bundle).collect();
        // In a ring of two nodes, only one bundle faces each node.
        let [a, b] = facing[..] else { continue };
        let other = |bundle: BundleId| {
            let path = if lit.path(bundle) == Some(Path::External1) { 2 } else { 1 };
            Port { bundle, path }
        };
        let is_cabled = fabric.hbd.peer(other(a)) == Some(other(b));
        if a.node == b.node || !is_cabled {
            found.push(Violation::NoWayPast { group: group.id, node, a, b });
        }
        all_work &= working_far_end(fabric, faults, other(a)) == Some(other(b));
    }
    all_work
}
