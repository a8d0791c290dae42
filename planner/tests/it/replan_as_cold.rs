// SPDX-License-Identifier: Apache-2.0
//! A replan must keep every group that a new plan could place.

use crate::joint_fabric;
use std::collections::BTreeSet;

use joint_fabric::{fabric, faults};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::joint::{Replanned, replan};
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::id::NodeId;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

fn options() -> Options {
    Options { compare: false, ..Options::default() }
}

fn next(fabric: &Fabric, before: &Plan, faults: &FaultSet) -> Replanned {
    let next = replan(fabric, before, faults, false, options()).expect("a next plan");
    if let Err(found) = check(fabric, faults, &next.plan) {
        panic!("{}: {found:?}", fabric.name);
    }
    next
}

const TWO: &str = "
kind: fabric
version: 2
name: two
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 3}}
dcn: {fat_tree: {nodes_per_tor: 4}}
jobs:
  - {name: a, gpus: 32, tp: 4, step: {training: {model: llama-3.1-8b, pp: 1, dp: 8, micro_batches: 2, tokens: 4096}}}
  - {name: b, gpus: 16, tp: 8, step: {training: {model: llama-3.1-8b, pp: 1, dp: 2, micro_batches: 2, tokens: 4096}}}
";

#[test]
fn small_group_takes_a_node_from_a_larger_spare_ring() {
    let fabric = fabric(TWO);
    let first = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
    for node in 0..24 {
        let broken = faults(&fabric, &[&format!("n{node}")]);
        let Replanned { plan: next, change, .. } = next(&fabric, &first, &broken);
        assert_eq!(next.metrics.gpus_used, 48, "n{node}: {:?}", next.given_up);
        assert!(next.given_up.is_empty(), "n{node}");
        let was = first.groups.iter().filter(|group| group.job.is_some());
        for group in was.filter(|group| !group.nodes.contains(&NodeId(node))) {
            assert!(next.groups.contains(group), "n{node}: {} moved", group.id);
        }
        assert!(change.bundles.len() <= 12, "n{node}: {} bundles switch", change.bundles.len());
    }
}

/// One to four jobs of several ring sizes, and a few spare nodes.
fn drawn(draws: &mut Stream, number: u32) -> Fabric {
    let nodes = draws.random_range(16..=40_u32);
    let k = draws.random_range(2..=3_u8);
    let shape = if draws.random_range(0..2) == 0 { "ring" } else { "line" };
    let mut left = nodes - draws.random_range(3..=nodes / 4);
    let mut jobs = String::new();
    for job in 0..draws.random_range(1..=4_u32) {
        let tp = [2, 4, 8, 12, 16][draws.random_range(0..5_usize)];
        let most = left * 4 / tp;
        if most == 0 {
            continue;
        }
        let groups = draws.random_range(1..=most.min(8));
        left -= (groups * tp).div_ceil(4).min(left);
        let step = match draws.random_range(0..4) {
            0 => {
                format!(", step: {{training: {{model: llama-3.1-8b, dp: {groups}, tokens: 512}}}}")
            }
            _ => String::new(),
        };
        jobs += &format!("  - {{name: j{job}, gpus: {}, tp: {tp}{step}}}\n", groups * tp);
    }
    fabric(&format!(
        "kind: fabric\nversion: 2\nname: drawn-{number}\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: {k}, \
         shape: {shape}}}}}\ndcn: {{fat_tree: {{nodes_per_tor: 4}}}}\njobs:\n{jobs}"
    ))
}

/// Two nodes fail one after the other. If a new plan could place all jobs, the replan must keep all
/// their groups.
#[test]
fn replanning_loses_no_group_that_a_cold_plan_places() {
    let mut draws = Seed(41).stream("double faults", 0);
    let (mut compared, mut moved) = (0, 0);
    for number in 0..cases(100, 10_000) {
        let fabric = drawn(&mut draws, number);
        let nodes = fabric.hbd.nodes();
        let pair = [draws.random_range(0..nodes), draws.random_range(0..nodes)];
        let Ok(mut before) = plan(&fabric, &FaultSet::none(), options()) else { continue };
        let mut broken: Vec<String> = Vec::new();
        for node in pair {
            broken.push(format!("n{node}"));
            let names: Vec<&str> = broken.iter().map(String::as_str).collect();
            let faults = faults(&fabric, &names);
            let Replanned { plan: now, change, .. } = next(&fabric, &before, &faults);
            let differs = before.transceivers.iter().filter(|was| {
                let there = now.transceivers.iter().find(|now| now.bundle == was.bundle);
                there.is_some_and(|now| now.path != was.path)
            });
            let named: BTreeSet<_> = change.bundles.iter().map(|(bundle, ..)| *bundle).collect();
            let unnamed = differs.filter(|was| !named.contains(&was.bundle)).count();
            assert_eq!(unnamed, 0, "{}: {broken:?}", fabric.name);
            let stays = |group: &&lightloom_fabric::plan::Group| {
                let is_hit = broken
                    .iter()
                    .any(|node| group.nodes.iter().any(|own| own.to_string() == *node));
                group.job.is_none()
                    || is_hit
                    || now.groups.iter().any(|now| now.nodes == group.nodes)
            };
            moved += usize::from(!before.groups.iter().all(|group| stays(&group)));
            if let Ok(cold) = plan(&fabric, &faults, options()) {
                compared += 1;
                assert!(
                    now.metrics.gpus_used >= cold.metrics.gpus_used,
                    "{}: {broken:?}: {} GPUs at work, {} in a plan from nothing; {:?}\n{:?}",
                    fabric.name,
                    now.metrics.gpus_used,
                    cold.metrics.gpus_used,
                    now.given_up,
                    fabric.jobs
                );
            }
            before = now;
        }
    }
    println!("{compared} compared, groups that no fault touched moved in {moved}");
    assert!(compared > 150, "{compared}");
}

fn over_switches(nodes: u32, gpus_per_leaf: u32, jobs: &str) -> Fabric {
    let leaves = nodes * 4 / gpus_per_leaf;
    fabric(&format!(
        "
kind: fabric
version: 2
name: over-switches
hbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2, shape: ring}}}}
dcn:
  reconfigurable_fat_tree:
    leaves: {leaves}
    gpus_per_leaf: {gpus_per_leaf}
    circuit_rate: 400Gbps
    electrical: {{rate_per_leaf: 800Gbps, oversubscription: 4}}
    banks: [{{name: b, switches: 2, ports_per_switch: {}, ports_per_leaf: 2}}]
    timing: {{control: 1ms, switching: 10ms}}
jobs:
{jobs}",
        2 * leaves
    ))
}

/// Nodes below two leaves fail one by one. The remaining nodes there are far apart in rank order.
#[test]
fn renumbers_ranks_when_keeping_them_would_slow_the_step() {
    let job = "  - {name: j, gpus: 36, tp: 4, step: {training: {model: llama-3.1-8b, dp: 9, micro_batches: 4, tokens: 4096}}}";
    let fabric = over_switches(12, 8, job);
    let first = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
    let broken = faults(&fabric, &["n3", "n2"]);
    let Replanned { plan: next, ranks_changed, .. } = next(&fabric, &first, &broken);
    let cold = plan(&fabric, &broken, options()).expect("a plan");
    assert!(next.metrics.step_time_ps <= cold.metrics.step_time_ps);
    let changed = ranks_changed.expect("other ranks");
    assert!(changed.groups > 0 && Some(changed.step_time_kept_ps) > next.metrics.step_time_ps);
}

#[test]
fn job_without_a_fault_keeps_its_ranks() {
    let step = |dp| {
        format!(
            "step: {{training: {{model: llama-3.1-8b, dp: {dp}, micro_batches: 4, tokens: 4096}}}}"
        )
    };
    let jobs = format!(
        "  - {{name: a, gpus: 36, tp: 4, {}}}\n  - {{name: b, gpus: 16, tp: 4, {}}}",
        step(9),
        step(4)
    );
    let fabric = over_switches(24, 8, &jobs);
    let first = plan(&fabric, &FaultSet::none(), options()).expect("a plan");
    let of_b = |plan: &Plan| -> Vec<_> {
        let own = plan.ranks.iter().filter(|rank| rank.job == Some(1)).cloned();
        own.collect()
    };
    let nodes_of_b: BTreeSet<NodeId> = (first.groups.iter())
        .filter(|group| group.job == Some(1))
        .flat_map(|group| group.nodes.iter().copied())
        .collect();
    let others = (0..24).map(NodeId).filter(|node| !nodes_of_b.contains(node));
    for node in others {
        let broken = faults(&fabric, &[&node.to_string()]);
        let Replanned { plan: next, .. } = next(&fabric, &first, &broken);
        assert_eq!(of_b(&next), of_b(&first), "{node}");
    }
}

#[test]
fn cold_plan_around_faults_is_as_fast_as_a_repaired_one() {
    let step = |dp| {
        format!(
            "step: {{training: {{model: llama-3.1-8b, dp: {dp}, micro_batches: 4, tokens: 4096}}}}"
        )
    };
    let jobs = format!(
        "  - {{name: a, gpus: 24, tp: 12, {}}}\n  - {{name: b, gpus: 40, tp: 8, {}}}",
        step(2),
        step(5)
    );
    let fabric = over_switches(24, 16, &jobs);
    let options = Options::default();
    let first = plan(&fabric, &FaultSet::none(), options).expect("a plan");
    for pair in [["n2", "n7"], ["n5", "n11"], ["n0", "n23"]] {
        let broken = faults(&fabric, &pair);
        let Replanned { plan: mended, .. } = next(&fabric, &first, &broken);
        let Ok(cold) = plan(&fabric, &broken, options) else { panic!("{pair:?}") };
        check(&fabric, &broken, &cold).expect("a sound plan");
        let is_whole = mended.metrics.gpus_used >= cold.metrics.gpus_used;
        assert!(!is_whole || cold.metrics.step_time_ps <= mended.metrics.step_time_ps, "{pair:?}");
    }
}
