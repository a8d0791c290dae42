// SPDX-License-Identifier: Apache-2.0
//! Recomputes all metrics from the groups and ranks of the document.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::{GroupId, NodeId};

use super::Violation;

const TOLERANCE: f64 = 1e-9;

pub(super) fn check(
    fabric: &Fabric,
    faults: &FaultSet,
    plan: &Plan,
    cannot_stand_in: u64,
    found: &mut Vec<Violation>,
) {
    let metrics = &plan.metrics;
    let per_node = u64::from(fabric.hbd.gpus_per_node());
    let absent = fabric.absent.len() as u64;
    let total = (u64::from(fabric.hbd.nodes()) - absent) * per_node;
    let out = faults.failed_nodes(&fabric.hbd);
    let drained = fabric.drained.failed_nodes(&fabric.hbd);
    let drained = out.iter().filter(|node| drained.contains(node)).count() as u64 * per_node;
    let faulty = (out.len() as u64 - absent) * per_node - drained;
    let [used, spare] = [false, true].map(|is_spare| {
        let groups = plan.groups.iter().filter(|group| group.job.is_none() == is_spare);
        groups.map(|group| group.ring.len() as u64).sum::<u64>()
    });
    let names_leaves = !plan.jobs.is_empty() && plan.jobs.iter().all(|job| job.tp == 0);
    let wasted = if names_leaves { 0 } else { (total - faulty).saturating_sub(used + spare) };
    let mut counts = Comparison(found);
    counts.same("gpus_total", metrics.gpus_total, total);
    counts.same("gpus_faulty", metrics.gpus_faulty, faulty);
    counts.same("gpus_used", metrics.gpus_used, used);
    counts.same("gpus_spare", metrics.gpus_spare, spare);
    counts.same("gpus_wasted", metrics.gpus_wasted, wasted);
    check_spares(fabric, plan, cannot_stand_in, &mut counts);
    counts.near("waste_ratio", metrics.waste_ratio, wasted as f64 / total as f64);
    let bound = remainder(plan, total - faulty - drained, drained) as f64 / total as f64;
    counts.near("waste_ratio_lower_bound", metrics.waste_ratio_lower_bound, bound);
    check_jobs(fabric, plan, &mut counts);
}

fn check_spares(fabric: &Fabric, plan: &Plan, cannot_stand_in: u64, counts: &mut Comparison<'_>) {
    let per_node = usize::from(fabric.hbd.gpus_per_node());
    let rings = plan.groups.iter().filter(|group| group.ring.len() >= per_node);
    let passing: u64 = rings.clone().map(|group| group.passing.len() as u64).sum();
    let passing = passing * per_node as u64;
    let bare = rings.filter(|group| group.passing.is_empty()).count() as u64 + cannot_stand_in;
    let (stated_passing, stated_bare) =
        (plan.metrics.gpus_passing, plan.metrics.rings_without_spare);
    if fabric.spare_per_ring > 0 {
        counts.same("gpus_passing", stated_passing.unwrap_or(u64::MAX), passing);
        counts.same("rings_without_spare", stated_bare.unwrap_or(u64::MAX), bare);
    } else if stated_passing.is_some() || stated_bare.is_some() {
        counts.same("gpus_passing", stated_passing.unwrap_or(0), u64::MAX);
    }
}

struct Comparison<'a>(&'a mut Vec<Violation>);

impl Comparison<'_> {
    fn same(&mut self, name: &'static str, stated: u64, found: u64) {
        if stated != found {
            self.0.push(Violation::metric(name, stated, found));
        }
    }
    fn near(&mut self, name: &'static str, stated: f64, found: f64) {
        // Comparisons with NaN are false, so a test for a large difference would accept NaN.
        let near = (stated - found).abs() <= TOLERANCE * found.abs().max(1.0);
        if !near {
            self.0.push(Violation::metric(name, stated, found));
        }
    }
}

fn remainder(plan: &Plan, usable: u64, drained: u64) -> u64 {
    let sizes = plan.jobs.iter().map(|job| u64::from(job.tp)).filter(|size| *size > 0);
    let common = sizes.reduce(|a, b| {
        (1..=a.min(b)).rev().find(|d| a.is_multiple_of(*d) && b.is_multiple_of(*d)).unwrap_or(1)
    });
    common.map_or(0, |common| drained + usable % common)
}

fn nodes_by_rank(plan: &Plan) -> BTreeMap<GroupId, BTreeMap<u32, NodeId>> {
    let mut nodes: BTreeMap<GroupId, BTreeMap<u32, NodeId>> = BTreeMap::new();
    for rank in &plan.ranks {
        nodes.entry(rank.group).or_default().insert(rank.tp, rank.gpu.node);
    }
    nodes
}

fn check_jobs(fabric: &Fabric, plan: &Plan, counts: &mut Comparison<'_>) {
    let per_tor = fabric.dcn.nodes_per_tor();
    let nodes = nodes_by_rank(plan);
    let (mut all_hops, mut all_crossing, mut bound) = (0_u64, 0_u64, 0.0);
    for (index, job) in (0_u32..).zip(&plan.jobs) {
        let groups: Vec<_> = plan
            .groups
            .iter()
            .filter(|group| group.job == Some(index))
            .filter_map(|group| nodes.get(&group.id))
            .collect();
        let on_rings = groups.iter().map(|ranks| ranks.len() as u64).sum();
        counts.same("gpus of a job", job.gpus, on_rings);
        let (hops, crossing) = inner_hops(&groups, per_tor);
        counts.near("cross_tor_share of a job", job.cross_tor_share, share(hops, crossing));
        // Hops are counted per GPU; convert to hops per node.
        let per_node = u64::from(fabric.hbd.gpus_per_node()).min(u64::from(job.tp)).max(1);
        all_hops += hops / per_node;
        all_crossing += crossing / per_node;
        bound += job.cross_tor_share_lower_bound.unwrap_or(f64::NAN) * (hops / per_node) as f64;
    }
    counts.near("cross_tor_share", plan.metrics.cross_tor_share, share(all_hops, all_crossing));
    if let Some(stated) = plan.metrics.cross_tor_share_lower_bound {
        let bound = if all_hops == 0 { 0.0 } else { bound / all_hops as f64 };
        counts.near("cross_tor_share_lower_bound", stated, bound);
    }
}

fn inner_hops(groups: &[&BTreeMap<u32, NodeId>], per_tor: u32) -> (u64, u64) {
    let (mut hops, mut crossing) = (0, 0);
    for set in groups.chunks(per_tor as usize).filter(|set| set.len() > 1) {
        for (i, here) in set.iter().enumerate() {
            let there = set[(i + 1) % set.len()];
            for (rank, node) in *here {
                let Some(other) = there.get(rank) else { continue };
                hops += 1;
                crossing += u64::from(node.0 / per_tor != other.0 / per_tor);
            }
        }
    }
    (hops, crossing)
}

fn share(hops: u64, crossing: u64) -> f64 {
    if hops == 0 { 0.0 } else { crossing as f64 / hops as f64 }
}
