// SPDX-License-Identifier: Apache-2.0
//! Steps of several jobs have separate phases, and their circuits never change between phases.

use crate::joint_fabric;
use joint_fabric::{fabric, faults};
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::{Violation, check};
use lightloom_planner::joint::replan;
use lightloom_planner::{Options, plan};
use lightloom_units::Picoseconds;

const POD: &str = "
kind: fabric
version: 2
name: two-jobs
hbd: {khop: {nodes: 128, gpus_per_node: 4, k: 3}}
dcn:
  reconfigurable_fat_tree:
    leaves: 16
    gpus_per_leaf: 32
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 12.8Tbps, oversubscription: 8}
    banks: [{name: core, switches: 8, ports_per_switch: 32, ports_per_leaf: 2}]
    timing: {control: 10us, switching: 10us}
jobs:
";
const A: &str = "  - {name: a, gpus: 224, tp: 8, step: {training: {model: llama-3.1-70b, pp: 4, dp: 7, micro_batches: 16, tokens: 4096}}}\n";
const B: &str = "  - {name: b, gpus: 224, tp: 16, step: {training: {model: llama-3.1-8b, pp: 2, dp: 7, micro_batches: 8, tokens: 4096}}}\n";

fn sent(plan: &Plan, phase: &str) -> u64 {
    let phase = plan.phases.iter().find(|own| own.name == phase).expect("the phase is there");
    phase.demand_bytes.0 + phase.ring_bytes.0 + phase.leaf_bytes.0
}

#[test]
fn phases_of_two_jobs_are_planned_separately_on_common_circuits() {
    let both = fabric(&(POD.to_owned() + A + B));
    let none = faults(&both, &[]);
    let planned = plan(&both, &none, Options::default()).expect("a plan");
    check(&both, &none, &planned).expect("a sound plan");
    let names: Vec<&str> = planned.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["a/micro-batches", "a/gradients", "b/micro-batches", "b/gradients"]);
    assert!(planned.transitions.is_empty());
    let mut lit = planned.phases.iter().map(|phase| &phase.circuits).filter(|own| !own.is_empty());
    let first = lit.next().expect("circuits");
    assert!(lit.all(|own| own == first), "one set of circuits");

    // A job must send the same total as if it ran alone.
    for (job, text) in [("a", A), ("b", B)] {
        let own = fabric(&(POD.to_owned() + text));
        let alone = plan(&own, &none, Options::default()).expect("a plan");
        for phase in ["micro-batches", "gradients"] {
            let (together, alone) =
                (sent(&planned, &format!("{job}/{phase}")), sent(&alone, phase));
            assert_eq!(together, alone, "{job} {phase}");
        }
    }
    let of_job = |job: &str| -> Picoseconds {
        let own = planned.phases.iter().filter(|phase| phase.job.as_deref() == Some(job));
        own.map(|phase| phase.duration_ps).sum()
    };
    assert_eq!(planned.metrics.step_time_ps, Some(of_job("a").max(of_job("b"))));
    assert!(planned.metrics.orchestration_gain <= planned.metrics.orchestration_gain_upper_bound);
}

#[test]
fn fault_in_either_job_keeps_circuits_common() {
    let both = fabric(&(POD.to_owned() + A + B));
    let before = plan(&both, &faults(&both, &[]), Options::default()).expect("a plan");
    for parts in [&["n3"][..], &["n70", "ocs2"], &["ocs1/p3"]] {
        let faults = faults(&both, parts);
        let next = replan(&both, &before, &faults, false, Options::default()).expect("a plan").plan;
        check(&both, &faults, &next).expect("a sound plan");
        assert_eq!(next.phases.len(), 4, "{parts:?}");
    }
}

/// All replicas of a job are below one leaf until a node failure moves one of them.
const SMALL: &str = "
kind: fabric
version: 2
name: small
hbd: {khop: {nodes: 20, gpus_per_node: 4, k: 2}}
dcn:
  reconfigurable_fat_tree:
    leaves: 10
    gpus_per_leaf: 8
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 800Gbps, oversubscription: 4}
    banks: [{name: agg, switches: 2, ports_per_switch: 40, ports_per_leaf: 4}]
    timing: {control: 1ms, switching: 10ms}
jobs:
  - {name: one, gpus: 32, tp: 8, step: {training: {model: llama-3.1-8b, pp: 2, dp: 2, micro_batches: 4, tokens: 8192}}}
  - {name: two, gpus: 32, tp: 8, step: {training: {model: llama-3.1-8b, pp: 2, dp: 2, micro_batches: 4, tokens: 8192}}}
";

#[test]
fn replans_of_two_jobs_are_valid_around_any_node() {
    for (text, nodes) in [(SMALL.to_owned(), 20), (POD.to_owned() + A + B, 128)] {
        let both = fabric(&text);
        let before = plan(&both, &faults(&both, &[]), Options::default()).expect("a plan");
        for node in 0..nodes {
            let dead = faults(&both, &[&format!("n{node}")]);
            let next = replan(&both, &before, &dead, false, Options::default());
            let next = next.unwrap_or_else(|error| panic!("n{node}: {error}")).plan;
            check(&both, &dead, &next).unwrap_or_else(|found| panic!("n{node}: {found:?}"));
        }
    }
}

#[test]
fn detects_circuits_that_follow_one_of_two_jobs() {
    let both = fabric(&(POD.to_owned() + A + B));
    let none = faults(&both, &[]);
    let mut wrong = plan(&both, &none, Options::default()).expect("a plan");
    let lit = wrong.phases.iter().position(|phase| !phase.circuits.is_empty()).expect("circuits");
    wrong.phases[lit].circuits.pop();
    let found = check(&both, &none, &wrong).expect_err("it is wrong");
    let is_named = |one: &Violation| one.to_string().contains("but several jobs use them");
    assert!(found.iter().any(is_named), "{found:?}");
}

/// An RL step and a job with placed GPUs would both use the first leaves.
#[test]
fn rejects_an_rl_step_together_with_a_placed_job() {
    let rl = "  - {name: rl, step: {rl: {model: qwen2.5-72b, trainer_gpus: 256, generation_gpus: 256, tp: 8, pp: 4, samples: 1024, tokens_per_sample: 8192, replica_gpus: 64, tail_replica_gpus: 32}}}\n";
    let load = |text: &str| {
        lightloom_planner::load("f.yaml", text.as_bytes(), &mut |name| Err(name.to_owned()))
    };
    let (alone, mistakes) = load(&(POD.to_owned() + rl));
    assert!(alone.is_some(), "{mistakes:?}");
    let second = rl.replace("name: rl", "name: other");
    for beside in [A, &second] {
        let (fabric, mistakes) = load(&(POD.to_owned() + rl + beside));
        let said = format!("{mistakes:?}");
        assert!(fabric.is_none() && said.contains("has GPUs there"), "{said}");
        assert!(said.contains("`phases`"), "{said}");
    }
}
