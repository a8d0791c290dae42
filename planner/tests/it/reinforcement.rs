// SPDX-License-Identifier: Apache-2.0
//! Reinforcement-learning steps with placed GPUs. The trainer's tensor parallelism stays on rings,
//! islands or links below leaves; the rest is the demand on the network.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_planner::check::check;
use lightloom_planner::joint::replan;
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use rand::RngExt;

const HBDS: [&str; 4] = [
    "khop: {nodes: 32, gpus_per_node: 4, k: 2}",
    "switch: {nodes: 32, gpus_per_node: 4, gpus: 32}",
    "torus: {nodes: 32, gpus_per_node: 4, gpus: 16}",
    "none: {nodes: 32, gpus_per_node: 4}",
];

const CIRCUITS: &str = "reconfigurable_fat_tree: {leaves: 8, gpus_per_leaf: 16, circuit_rate: 400Gbps, \
    electrical: {rate_per_leaf: 6.4Tbps, oversubscription: 8}, \
    banks: [{name: core, switches: 4, ports_per_switch: 16, ports_per_leaf: 2}], \
    timing: {control: 1ms, switching: 10ms}}";

const DCNS: [&str; 3] = [
    CIRCUITS,
    "leaf_spine: {nodes_per_leaf: 4}",
    "fat_tree: {nodes_per_tor: 4, tors_per_domain: 4}",
];

fn text(hbd: &str, dcn: &str, tp: u32, more: &str) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: x\nhbd: {{{hbd}}}\ndcn: {{{dcn}}}\n\
         jobs: [{{name: rl, gpus: 96, tp: {tp}, step: {{rl: {{model: llama-3.1-8b, trainer_gpus: 32, \
         generation_gpus: 64, tp: {tp}, pp: 2, samples: 64, tokens_per_sample: 4096, {more}}}}}}}]\n"
    )
}

fn planned(text: &str, broken: &[&str]) -> Plan {
    let fabric = fabric(text);
    let broken = faults(&fabric, broken);
    let plan = plan(&fabric, &broken, Options::default()).expect("a plan");
    if let Err(found) = check(&fabric, &broken, &plan) {
        panic!("{text}: {found:?}");
    }
    plan
}

fn phase<'a>(plan: &'a Plan, name: &str) -> &'a PhasePlan {
    plan.phases.iter().find(|phase| phase.name == name).expect("the phase")
}

#[test]
fn plans_every_domain_with_every_network() {
    for hbd in HBDS {
        for dcn in DCNS {
            for more in [
                "replica_gpus: 8",
                "replica_gpus: 16, tail_replica_gpus: 8, migrated_share: 0.1",
                "replica_gpus: 32, migrated_share: 0.05",
            ] {
                let plan = planned(&text(hbd, dcn, 8, more), &["n5"]);
                let names: Vec<&str> =
                    plan.phases.iter().map(|phase| phase.name.as_str()).collect();
                assert_eq!(
                    names[..3],
                    ["train+generate", "gradients", "weight-sync"],
                    "{hbd} {dcn}"
                );
                assert_eq!(names.len(), if more.contains("tail") { 4 } else { 3 }, "{names:?}");
                assert!(plan.metrics.orchestration_gain.is_some(), "{hbd} {dcn}");
            }
        }
    }
}

/// Rings carry exactly 4 all-reduces per layer and micro-batch among the trainer's eight ranks, and
/// 2 per layer and token in a replica on one ring. Links between leaves carry none of them.
#[test]
fn rings_carry_tensor_parallelism_of_trainer_and_replicas() {
    let plan = planned(&text(HBDS[0], CIRCUITS, 8, "replica_gpus: 8"), &[]);
    let (hidden, layers, samples, tokens) = (4096.0, 32.0, 64.0, 4096.0);
    let all_reduce = |bytes: f64| 2.0 * 7.0 / 8.0 * bytes * 8.0;
    // Two stages of 16 layers and two replicas are four groups. Each pipeline processes 32
    // micro-batches of one sample.
    let trainer = 4.0 * all_reduce(tokens * hidden * 2.0) * 4.0 * (layers / 2.0) * (samples / 2.0);
    let pool = 8.0 * all_reduce(samples * tokens / 8.0 * hidden * 2.0) * 2.0 * layers;
    let said = phase(&plan, "train+generate").ring_bytes.0 as f64;
    assert!((said / (trainer + pool) - 1.0).abs() < 1e-6, "{said} {}", trainer + pool);
    let weights = phase(&plan, "weight-sync");
    // Each of the eight replicas gets a copy of the weights; some copies stay below a leaf.
    let all = 8.0 * 8_030_261_248.0 * 2.0;
    let sent = (weights.demand_bytes.0 + weights.leaf_bytes.0) as f64;
    assert!((sent / all - 1.0).abs() < 0.01, "{sent} {all}");
}

#[test]
fn node_fault_keeps_the_trainer_and_reduces_generation_replicas() {
    // All 24 nodes are in use, so a failed node cannot be replaced.
    let hbd = "khop: {nodes: 24, gpus_per_node: 4, k: 2}";
    let dcn = "leaf_spine: {nodes_per_leaf: 4}";
    let text = text(hbd, dcn, 8, "replica_gpus: 16");
    let fabric = fabric(&text);
    let before = planned(&text, &[]);
    for node in 0..24 {
        let dead = faults(&fabric, &[&format!("n{node}")]);
        let next = replan(&fabric, &before, &dead, false, Options::default()).expect("a plan").plan;
        if let Err(found) = check(&fabric, &dead, &next) {
            panic!("n{node}: {found:?}");
        }
        let given_up = next.given_up.first().expect("a replica is gone");
        assert_eq!(given_up.gpus, 16, "{given_up:?}");
        assert!(given_up.why.contains("48 of 64 generate"), "{given_up:?}");
    }
}

#[test]
fn random_steps_with_random_faults_are_valid() {
    let mut draws = Seed(21).stream("rl", 0);
    for _ in 0..cases(12, 60) {
        let hbd = HBDS[draws.random_range(0..HBDS.len())];
        let dcn = DCNS[draws.random_range(0..DCNS.len())];
        let tp = [4, 8, 16][draws.random_range(0..3)];
        let replica = [4, 8, 16, 32][draws.random_range(0..4)].max(tp);
        let tail = [4, 8, 16][draws.random_range(0..3)].min(replica);
        let more =
            format!("replica_gpus: {replica}, tail_replica_gpus: {tail}, migrated_share: 0.02");
        let dead = format!("n{}", draws.random_range(0..32));
        planned(&text(hbd, dcn, tp, &more), &[&dead]);
    }
}

#[test]
fn locates_steps_that_do_not_fit() {
    let good = text(HBDS[0], CIRCUITS, 8, "replica_gpus: 8");
    let cases = [
        (("gpus: 96", "gpus: 88"), "trainer and generation have 96 GPUs together"),
        (
            ("tp: 8, pp: 2", "tp: 4, pp: 2"),
            "the job's groups have 8 GPUs, but the trainer's have 4",
        ),
        (("trainer_gpus: 32", "trainer_gpus: 28"), "28 GPUs cannot be divided into groups of 8"),
        (("samples: 64", "samples: 63"), "63 is not a multiple of 2"),
        (("replica_gpus: 8", "replica_gpus: 24"), "64 is not a multiple of 24"),
    ];
    for ((from, to), says) in cases {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let (fabric, mistakes) =
            lightloom_planner::load("f.yaml", text.as_bytes(), &mut |name| Err(name.to_owned()));
        assert!(fabric.is_none(), "{to}");
        let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(all.iter().any(|mistake| mistake.contains(says)), "{says}: {all:?}");
    }
}
