// SPDX-License-Identifier: Apache-2.0
//! Tests nodes left idle on purpose, and that joint plans are never slower than separate ones.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::joint::replan;
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use rand::RngExt;

fn text(nodes: u32, per_leaf: u32, [pp, dp]: [u32; 2]) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\n\
         dcn: {{leaf_spine: {{nodes_per_leaf: {per_leaf}, oversubscription: 4}}}}\n\
         jobs: [{{name: t, gpus: {}, tp: 4, step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, \
         micro_batches: 4, tokens: 4096}}}}}}]\n",
        4 * pp * dp
    )
}

fn planned(text: &str, broken: &[&str]) -> Plan {
    let fabric = fabric(text);
    let broken = faults(&fabric, broken);
    let plan = plan(&fabric, &broken, Options::default()).expect("a plan");
    if let Err(found) = check(&fabric, &broken, &plan) {
        panic!("{found:?}");
    }
    plan
}

fn step_ms(plan: &Plan) -> f64 {
    plan.metrics.step_time_ps.expect("a job trains").as_secs_f64() * 1e3
}

/// Milliseconds per step if gradients stay below leaves and interfaces are the limit. `between` is
/// the time of the micro-batches between non-blocking leaves.
fn expected_ms(between: f64, [pp, dp]: [u32; 2]) -> f64 {
    let bytes = 2.0 * f64::from(dp - 1) / f64::from(dp) * 8_030_261_248.0 * 2.0 / f64::from(4 * pp);
    between * 4.0 / 0.85 + bytes * 8.0 / 400e9 * 1e3 / 0.96
}

/// Expected values are from a brute force over all placements. The best ones keep whole stages or
/// sets of replicas below leaves.
#[test]
fn leaves_nodes_idle_to_keep_stages_below_leaves() {
    for broken in [&[][..], &["n2"], &["n2", "n5"]] {
        let step = step_ms(&planned(&text(9, 3, [2, 2]), broken));
        let expected = expected_ms(0.447_392, [2, 2]);
        assert!((step - expected).abs() < 0.01, "{broken:?}: {step} ms, not {expected}");
    }
    let step = step_ms(&planned(&text(24, 4, [4, 3]), &[]));
    let expected = expected_ms(1.006_633, [4, 3]);
    assert!((step - expected).abs() < 0.01, "{step} ms, not {expected}");
}

/// A plan may leave any node idle, so another working node must not slow the step. The planner
/// ignores gains below one per cent.
#[test]
fn additional_failed_node_never_speeds_up_a_plan() {
    let mut draws = Seed(5).stream("one more", 0);
    let mut slower = 0;
    for _ in 0..cases(15, 60) {
        let (pp, dp) = (draws.random_range(1..=4_u32), draws.random_range(1..=4_u32));
        let per_leaf = draws.random_range(2..=5_u32);
        let leaves = (pp * dp).div_ceil(per_leaf) + draws.random_range(1..=3);
        let (nodes, one) = (leaves * per_leaf, text(leaves * per_leaf, per_leaf, [pp, dp]));
        let first = draws.random_range(0..nodes);
        let step = step_ms(&planned(&one, &[&format!("n{first}")]));
        for second in (0..nodes).filter(|second| *second != first) {
            let two = step_ms(&planned(&one, &[&format!("n{first}"), &format!("n{second}")]));
            assert!(step <= two * 1.011, "{one}\nn{first} {step} ms, n{second} too {two} ms");
            slower += usize::from(two > step * 1.000_001);
        }
    }
    assert!(slower > 0, "no broken node cost anything");
}

#[test]
fn lost_group_moves_to_a_spare_below_its_leaf() {
    let text = text(9, 3, [2, 2]);
    let fabric = fabric(&text);
    let before = planned(&text, &[]);
    for node in 0..9 {
        let dead = faults(&fabric, &[&format!("n{node}")]);
        let next = replan(&fabric, &before, &dead, false, Options::default()).expect("a plan").plan;
        let step = step_ms(&next);
        let expected = expected_ms(0.447_392, [2, 2]);
        assert!((step - expected).abs() < 0.01, "n{node}: {step} ms, not {expected}");
    }
}

#[test]
fn plan_is_never_slower_than_its_halves_planned_separately() {
    let (mut draws, mut gained) = (Seed(3).stream("idle", 0), 0);
    for _ in 0..80 {
        let (pp, dp) = (draws.random_range(1..=4_u32), draws.random_range(1..=4_u32));
        let per_leaf = draws.random_range(2..=6_u32);
        let leaves = (pp * dp).div_ceil(per_leaf) + draws.random_range(0..=3);
        let (nodes, one) = (leaves * per_leaf, text(leaves * per_leaf, per_leaf, [pp, dp]));
        let dead = format!("n{}", draws.random_range(0..nodes));
        let broken: &[&str] = if nodes > pp * dp { &[&dead] } else { &[] };
        let gain = planned(&one, broken).metrics.orchestration_gain.unwrap_or(0.0);
        assert!(gain >= -1e-12, "{one}, {broken:?}: {gain}");
        gained += usize::from(gain > 0.0);
    }
    assert!(gained > 20, "{gained} of 80 gained anything");
}

fn dragonfly(broken: &[String]) -> f64 {
    let text = include_str!("../../../topologies/dragonfly-72.yaml");
    let broken: Vec<&str> = broken.iter().map(String::as_str).collect();
    step_ms(&planned(text, &broken)) / 1e3
}

#[test]
fn partly_failed_dragonfly_group_is_at_least_as_fast_as_a_failed_one() {
    for group in 0..9 {
        let nodes: Vec<String> =
            (8 * group..8 * group + 8).map(|node| format!("n{node}")).collect();
        let all = dragonfly(&nodes);
        for broken in [1, 2, 4, 6] {
            let step = dragonfly(&nodes[..broken]);
            assert!(step <= all * 1.000_001, "group {group}: {broken} {step} s, all {all} s");
        }
    }
}

#[test]
fn gain_stays_within_its_bound_on_islands() {
    let mut draws = Seed(11).stream("islands", 0);
    let mut bounded = 0;
    for _ in 0..60 {
        let (pp, dp) = (draws.random_range(1..=4_u32), draws.random_range(2..=4_u32));
        let (island, per_leaf) =
            (1 << draws.random_range(0..=3_u32), 1 << draws.random_range(0..=3_u32));
        let nodes = 32;
        let text = format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{switch: {{nodes: {nodes}, gpus_per_node: 4, gpus: {}}}}}\n\
             dcn: {{leaf_spine: {{nodes_per_leaf: {per_leaf}}}}}\n\
             jobs: [{{name: t, gpus: {}, tp: 4, step: {{training: {{model: llama-3.1-8b, pp: {pp}, dp: {dp}, \
             micro_batches: 4, tokens: 4096}}}}}}]\n",
            4 * island,
            4 * pp * dp
        );
        let metrics = planned(&text, &[]).metrics;
        let Some(gain) = metrics.orchestration_gain else { continue };
        let bound = metrics.orchestration_gain_upper_bound.expect("islands and leaves divide");
        assert!(gain <= bound + 1e-9, "{text}: {gain} of {bound}");
        if pp * dp <= island {
            assert!((bound - 1.0).abs() < 1e-9, "{text}: {bound}");
        }
        bounded += usize::from(bound < 0.999);
    }
    assert!(bounded > 5, "{bounded} bounds say anything");
}
