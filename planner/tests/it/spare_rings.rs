// SPDX-License-Identifier: Apache-2.0
//! N + 1 rings: checks by enumeration that any single node failure switches only the modules of its
//! neighbours.

use crate::joint_fabric;
use std::collections::{BTreeMap, BTreeSet};

use joint_fabric::{fabric, faults};
use lightloom_fabric::document::{Style, render};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::khop::{Path, Port};
use lightloom_fabric::plan::{Group, Plan};
use lightloom_planner::check::check;
use lightloom_planner::joint::replan;
use lightloom_planner::{Options, load, plan};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;
use rand::RngExt;

fn options() -> Options {
    Options { compare: false, ..Options::default() }
}

fn proven(fabric: &Fabric, faults: &FaultSet, plan: &Plan) {
    if let Err(found) = check(fabric, faults, plan) {
        panic!("{}", found.iter().map(|v| format!("\n  {v}")).collect::<String>());
    }
}

fn paths(plan: &Plan) -> BTreeMap<BundleId, Path> {
    plan.transceivers.iter().map(|entry| (entry.bundle, entry.path)).collect()
}

fn facing(fabric: &Fabric, plan: &Plan, node: NodeId) -> BTreeSet<BundleId> {
    let port = |(bundle, path): (BundleId, Path)| match path {
        Path::Loopback => None,
        Path::External1 => Some(Port { bundle, path: 1 }),
        Path::External2 => Some(Port { bundle, path: 2 }),
    };
    let lit = paths(plan).into_iter().filter_map(port);
    let reaches = |port: &Port| fabric.hbd.peer(*port).is_some_and(|far| far.bundle.node == node);
    lit.filter(reaches).map(|port| port.bundle).collect()
}

fn survives_every_death(fabric: &Fabric, before: &Plan, broken: &FaultSet, group: &Group) {
    let ring: Vec<NodeId> = group.nodes.iter().chain(&group.passing).copied().collect();
    let mut ends = 0;
    for &node in &ring {
        let mut faults = broken.clone();
        faults.insert(fabric, Part::Node(node)).expect("the fabric has it");
        let next = replan(fabric, before, &faults, false, options()).expect("a next plan").plan;
        proven(fabric, &faults, &next);
        let now = paths(&next);
        let moved: BTreeSet<BundleId> = paths(before)
            .into_iter()
            .filter(|(bundle, path)| bundle.node != node && now[bundle] != *path)
            .map(|(bundle, _)| bundle)
            .collect();
        let neighbours = facing(fabric, before, node);
        assert_eq!(moved, neighbours, "{} without {node}", group.id);
        ends += usize::from(moved.len() == 1);
        assert!((1..=2).contains(&moved.len()));
        let after = next.groups.iter().find(|other| other.id == group.id).expect("it lives on");
        assert_eq!(after.ring.len(), group.ring.len(), "as many GPUs have ranks");
        assert!(after.passing.is_empty());
        for other in next.groups.iter().filter(|other| other.id != group.id) {
            assert!(before.groups.contains(other), "{} changed", other.id);
        }
        assert_eq!(
            next.metrics.rings_without_spare,
            before.metrics.rings_without_spare.map(|n| n + 1)
        );
    }
    assert_eq!(ends, 2, "one module at either end");
}

#[test]
fn node_fault_in_a_spare_ring_moves_only_neighbouring_modules() {
    let mut killed = 0;
    for case in 0..150 {
        let mut draws = Seed(11).stream("spare.rings", case);
        let k = draws.random_range(2..=4_u32);
        let nodes = draws.random_range(12..=60_u32);
        let tp = 4 * draws.random_range(1..=5_u32);
        let shape = ["ring", "line"][draws.random_range(0..2)];
        let order = ["sub-lines", "sequential"][draws.random_range(0..2)];
        let fabric = fabric(&format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: {k}, shape: {shape}, \
             spare_per_ring: 1}}}}\ndeployment: {{order: {order}}}\njobs: [{{name: j, gpus: all, tp: {tp}}}]\n"
        ));
        let mut broken = FaultSet::none();
        for _ in 0..draws.random_range(0..3) {
            let node = draws.random_range(0..nodes);
            let text = match draws.random_range(0..3) {
                0 => format!("n{node}"),
                1 => format!("n{node}/b1"),
                _ => format!("n{node}/b0.{}", draws.random_range(1..=2)),
            };
            let _ = broken.insert(&fabric, text.parse().expect("a part"));
        }
        let before = plan(&fabric, &broken, options()).expect("a plan");
        proven(&fabric, &broken, &before);
        for group in &before.groups {
            assert_eq!(group.passing.len(), 1);
            survives_every_death(&fabric, &before, &broken, group);
            killed += group.nodes.len() + 1;
        }
    }
    assert!(killed > 1_000, "{killed} deaths");
}

/// Finds the maximum number of disjoint runs of N + 1 nodes by trying every set of starts.
#[test]
fn spare_rings_reach_the_maximum_number() {
    for case in 0..200 {
        let mut draws = Seed(12).stream("spare.most", case);
        let nodes = draws.random_range(6..=16_u32);
        let closed = draws.random_bool(0.5);
        let length = draws.random_range(2..=4_u32);
        let shape = if closed { "ring" } else { "line" };
        let fabric = fabric(&format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2, shape: {shape}, \
             spare_per_ring: 1}}}}\ndeployment: {{order: sequential}}\njobs: [{{name: j, gpus: all, tp: {}}}]\n",
            4 * (length - 1)
        ));
        let dead: BTreeSet<u32> = (0..nodes).filter(|_| draws.random_bool(0.12)).collect();
        let names: Vec<String> = dead.iter().map(|node| format!("n{node}")).collect();
        let broken = faults(&fabric, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = plan(&fabric, &broken, options()).expect("a plan");
        let run = |first: u32| -> Option<u32> {
            let places = (first..first + length).map(|place| {
                let is_there = closed || place < nodes;
                (is_there && !dead.contains(&(place % nodes))).then_some(1_u32 << (place % nodes))
            });
            places.sum()
        };
        let runs: Vec<u32> = (0..nodes).filter_map(run).collect();
        fn most(runs: &[u32], taken: u32) -> usize {
            let Some((first, rest)) = runs.split_first() else { return 0 };
            let with = if taken & first == 0 { 1 + most(rest, taken | first) } else { 0 };
            with.max(most(rest, taken))
        }
        assert_eq!(plan.groups.len(), most(&runs, 0), "{nodes} {length} {closed} {dead:?}");
    }
}

#[test]
fn spare_costs_one_node_in_five_or_nine() {
    for (tp, nodes, share) in [(16, 320, 1.0 / 5.0), (32, 720, 1.0 / 9.0)] {
        let fabric = fabric(&format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 3, spare_per_ring: 1}}}}\njobs: \
             [{{name: j, gpus: all, tp: {tp}}}]\n"
        ));
        let plan = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
        assert!((plan.metrics.waste_ratio - share).abs() < 1e-12, "{}", plan.metrics.waste_ratio);
        assert_eq!(plan.metrics.gpus_passing, Some(plan.metrics.gpus_wasted));
        assert!(plan.metrics.cross_tor_share < 1e-12, "equal ranks share ToRs");
    }
}

#[test]
fn ring_without_its_spare_is_bypassed_and_regains_it_after_repair() {
    let fabric = fabric(
        "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 40, gpus_per_node: 4, k: 3, spare_per_ring: 1}}\ndeployment: {order: \
         sequential}\njobs: [{name: j, gpus: 64, tp: 16}]\n",
    );
    let first = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
    let ring = first.groups[0].clone();
    let names: Vec<String> = ring.nodes[1..3].iter().map(ToString::to_string).collect();
    let one = faults(&fabric, &[&names[0]]);
    let bridged = replan(&fabric, &first, &one, false, options()).expect("a plan").plan;
    let two = faults(&fabric, &[&names[0], &names[1]]);
    let lost = replan(&fabric, &bridged, &two, false, options()).expect("a plan").plan;
    proven(&fabric, &two, &lost);
    assert_eq!(lost.metrics.gpus_used, 64, "another ring, or another node, has its ranks");
    let both_at_once = replan(&fabric, &first, &two, false, options()).expect("a plan").plan;
    proven(&fabric, &two, &both_at_once);
    assert_eq!(both_at_once.metrics.gpus_used, 64);
    let repaired =
        replan(&fabric, &bridged, &FaultSet::none(), true, options()).expect("a plan").plan;
    proven(&fabric, &FaultSet::none(), &repaired);
    assert_eq!(repaired.metrics.rings_without_spare, Some(0));
    assert_eq!(repaired.ranks, bridged.ranks, "no rank moves for it");
}

/// The fibres between nodes two places apart are dark until a node fails. The failure of such a
/// fibre does not move any group, but must be reported.
#[test]
fn failed_bypass_fibre_is_reported_without_moves() {
    let fabric = fabric(
        "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 40, gpus_per_node: 4, k: 3, spare_per_ring: 1}}\n\
         jobs: [{name: j, gpus: 128, tp: 16}]\n",
    );
    let first = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
    proven(&fabric, &FaultSet::none(), &first);
    let mut counted = 0;
    for node in 0..40 {
        let one = faults(&fabric, &[&format!("n{node}/b0.2")]);
        let next = replan(&fabric, &first, &one, false, options()).expect("a plan").plan;
        proven(&fabric, &one, &next);
        assert_eq!((&next.ranks, &next.transceivers), (&first.ranks, &first.transceivers));
        counted += next.metrics.rings_without_spare.unwrap();
        // The next plan must be sound for any further node failure.
        for dead in [node, (node + 1) % 40, (node + 2) % 40, (node + 39) % 40] {
            let two = faults(&fabric, &[&format!("n{node}/b0.2"), &format!("n{dead}")]);
            let last = replan(&fabric, &next, &two, false, options()).expect("a plan").plan;
            proven(&fabric, &two, &last);
        }
    }
    // Each of eight rings of five nodes has three such fibres.
    assert_eq!(counted, 24);
}

#[test]
fn rejects_a_plan_claiming_an_unusable_spare() {
    let fabric = fabric(
        "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 20, gpus_per_node: 4, k: 2, spare_per_ring: 1}}\ndeployment: {order: \
         sequential}\njobs: [{name: j, gpus: all, tp: 16}]\n",
    );
    let sound = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
    let refused = |faults: &FaultSet, plan: &Plan, words: &str| {
        let found = check(&fabric, faults, plan).expect_err("it is wrong");
        let shown: String = found.iter().map(|v| format!("{v}\n")).collect();
        assert!(shown.contains(words), "{words} in {shown}");
    };
    // The fibre that bypasses n1 has failed.
    let mut cut = sound.clone();
    let faults = faults(&fabric, &["n0/b0.2"]);
    cut.faults = faults.parts(&fabric);
    refused(
        &faults,
        &cut,
        "rings_without_spare is 0 in the plan, but 1 when computed from its contents",
    );
    let mut used = sound.clone();
    used.groups[0].passing = vec![used.groups[1].passing[0]];
    refused(&FaultSet::none(), &used, "is in both g0 and g1");
    let mut dropped = sound.clone();
    dropped.groups[0].passing.clear();
    refused(&FaultSet::none(), &dropped, "do not form a single cycle");
    let mut counted = sound;
    counted.metrics.gpus_passing = Some(0);
    refused(&FaultSet::none(), &counted, "gpus_passing is 0");
}

#[test]
fn rejects_a_spare_without_effect_and_suggests_a_fix() {
    let text = "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 20, gpus_per_node: 4, k: 2, spare_per_ring: 1}}\njobs: [{name: \
                j, tp: 2}]\n";
    let (fabric, mistakes) = load("f.yaml", text.as_bytes(), &mut |_| Err(String::new()));
    let shown = render(&mistakes, Style::Plain);
    assert!(fabric.is_none() && shown.contains("remove `spare_per_ring`"), "{shown}");
}
