// SPDX-License-Identifier: Apache-2.0
//! Replans after faults and repairs of rings and network. Identifiers and unaffected parts must not
//! change, and every plan must pass the checker.

use crate::joint_fabric;
use std::collections::{BTreeMap, BTreeSet};

use joint_fabric::{fabric, faults};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{Group, Plan};
use lightloom_planner::check::check;
use lightloom_planner::joint::{Bounds, MoveLimit, Replanned, replan, replan_within};
use lightloom_planner::{Options, plan};
use lightloom_units::id::GroupId;

fn options() -> Options {
    Options { compare: false, ..Options::default() }
}

fn next(fabric: &Fabric, before: &Plan, names: &[&str], is_repair: bool) -> Plan {
    let faults = faults(fabric, names);
    let next =
        replan(fabric, before, &faults, is_repair, options()).expect("there is a next plan").plan;
    if let Err(found) = check(fabric, &faults, &next) {
        panic!("{names:?}: {}", found.iter().map(|v| format!("\n  {v}")).collect::<String>());
    }
    next
}

fn groups(plan: &Plan) -> BTreeMap<GroupId, &Group> {
    plan.groups.iter().map(|group| (group.id, group)).collect()
}

const SMALL: &str = "kind: fabric\nversion: 2\nname: r\nhbd: {khop: {nodes: 8, gpus_per_node: 4, k: 2}}\njobs: [{name: j, gpus: 24, tp: 8}]\n";

#[test]
fn shrunk_job_keeps_its_remaining_groups_and_their_names() {
    let fabric = fabric(SMALL);
    let first = plan(&fabric, &FaultSet::none(), options()).unwrap();
    let shrunk = next(&fabric, &first, &["n0", "n1", "n2"], false);
    assert!(shrunk.metrics.gpus_used < 24, "it has to shrink");
    let before = groups(&first);
    for group in &shrunk.groups {
        let was = before[&group.id];
        let is_hit = was.nodes.iter().any(|node| node.0 < 3);
        assert!(is_hit || was.nodes == group.nodes, "{} moved without a fault", group.id);
    }
    let replicas: BTreeSet<u32> = shrunk.ranks.iter().map(|rank| rank.dp).collect();
    assert_eq!(replicas, (0..shrunk.groups.len() as u32).collect(), "ranks have no gap");
    // The lost group's identifier must not go to a group that was always present.
    let back = next(&fabric, &shrunk, &[], true);
    assert_eq!(back.metrics.gpus_used, 24);
    for group in &shrunk.groups {
        assert_eq!(groups(&back)[&group.id].nodes, group.nodes);
    }
}

const TWO_DOMAINS: &str = "kind: fabric\nversion: 2\nname: d\nhbd: {switch: {gpus: 16, nodes: 8, gpus_per_node: 4}}\ndcn: {fat_tree: {nodes_per_tor: 4}}\njobs: [{name: j, gpus: 16, tp: 16, step: {training: {model: llama-3.1-8b, dp: 1, tokens: 4096}}}]\n";

#[test]
fn job_that_loses_all_groups_leaves_a_plan_without_traffic() {
    let fabric = fabric(TWO_DOMAINS);
    let first = plan(&fabric, &FaultSet::none(), options()).unwrap();
    let faults = faults(&fabric, &["n0", "n4"]);
    for limit in [MoveLimit::Least, MoveLimit::BeyondHit(2), MoveLimit::Heal(8), MoveLimit::Cold] {
        let bounds = Bounds { limit, ..Bounds::default() };
        let next = replan_within(&fabric, &first, &faults, false, &bounds, options()).unwrap();
        assert!(next.plan.groups.is_empty(), "{limit:?}: no domain has 16 working GPUs");
        assert_eq!(next.plan.given_up[0].gpus, 16, "{limit:?}");
        assert!(check(&fabric, &faults, &next.plan).is_ok(), "{limit:?}");
    }
}

const POD: &str = include_str!("../../../topologies/pod-2048.yaml");

#[test]
fn fault_in_one_half_changes_little_of_the_other() {
    let fabric = fabric(POD);
    let first = plan(&fabric, &FaultSet::none(), options()).unwrap();
    let node = next(&fabric, &first, &["n17"], false);
    let changed = node.transceivers.iter().filter(|now| !first.transceivers.contains(now)).count();
    assert!(changed <= 2 * 3, "{changed} bundles switch for one node");
    let circuits = |plan: &Plan| -> BTreeSet<_> {
        plan.phases.iter().flat_map(|p| p.circuits.iter().map(|at| (p.order, *at))).collect()
    };
    let gaps = |plan: &Plan| {
        plan.phases
            .iter()
            .map(|phase| (phase.gap, phase.circuits.len(), phase.topology.clone()))
            .collect::<Vec<_>>()
    };
    let (before, after) = (circuits(&first), circuits(&node));
    let removed = before.difference(&after).count();
    assert!(
        20 * removed <= before.len(),
        "{removed} of {} move: {:?} {:?}",
        before.len(),
        gaps(&first),
        gaps(&node)
    );
    let both = next(&fabric, &node, &["n17", "ocs3"], false);
    assert!(both.transceivers == node.transceivers, "no ring moves for an optical switch");
    assert!(both.ranks == node.ranks);
    let (before, after) = (circuits(&node), circuits(&both));
    let of_switch = before.iter().filter(|(_, at)| at.ocs.0 == 3).count();
    let removed = before.difference(&after).count();
    assert!(
        removed <= 4 * of_switch,
        "{removed} of {} circuits move, {of_switch} were on it",
        before.len()
    );
}

const JOB: &str = include_str!("../../../topologies/job-2048-circuits.yaml");

/// One topology serves both phases of this plan, so each of its cross-connects is in both.
#[test]
fn cross_connect_in_several_phases_counts_once() {
    let fabric = fabric(JOB);
    let first = plan(&fabric, &FaultSet::none(), options()).unwrap();
    let broken = faults(&fabric, &["n100", "ocs0/p0", "ocs0/p1"]);
    let Replanned { plan: next, circuits_made, circuits_removed, .. } =
        replan(&fabric, &first, &broken, false, options()).expect("a next plan");
    let lit = |plan: &Plan| -> BTreeSet<_> {
        plan.phases.iter().flat_map(|phase| phase.circuits.clone()).collect()
    };
    let (before, after) = (lit(&first), lit(&next));
    let made = after.iter().filter(|at| !before.contains(at)).count();
    let removed = before.iter().filter(|at| !after.contains(at)).count();
    assert!(made + removed > 0);
    assert_eq!((circuits_made, circuits_removed), (made, removed));
}

#[test]
fn training_job_gives_up_whole_replicas_and_reports_them() {
    let text = "kind: fabric\nversion: 2\nname: r\nhbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}\njobs:\n  - name: j\n    gpus: 64\n    tp: 8\n    step: \
                {training: {model: llama-3.1-70b, pp: 2, dp: 4, tokens: 4096}}\n";
    let fabric = fabric(text);
    let first = plan(&fabric, &FaultSet::none(), options()).unwrap();
    let broken = first.groups[0].nodes[0].to_string();
    let next = next(&fabric, &first, &[&broken], false);
    assert_eq!(next.given_up.len(), 1, "{:?}", next.given_up);
    assert_eq!(next.metrics.gpus_used, 48);
    let at = |plan: &Plan, id: GroupId| -> BTreeSet<(u32, u32)> {
        plan.ranks
            .iter()
            .filter(|r| r.group == id && r.job.is_some())
            .map(|r| (r.dp, r.pp))
            .collect()
    };
    let same = next.groups.iter().filter(|group| group.job.is_some());
    let same = same.filter(|group| at(&first, group.id) == at(&next, group.id)).count();
    assert!(same >= 5, "{same} of 6 groups keep their ranks");
}
