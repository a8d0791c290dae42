// SPDX-License-Identifier: Apache-2.0
//! A two-way circuit is two one-way circuits, so one-way circuits on the same ports never make a step longer.

use crate::flow_judge::drawn_one_way;
use crate::joint_fabric::{fabric, faults};
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_planner::check::check;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::plan::{self, Options as CircuitOptions};
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::Picoseconds;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

/// Returns a drawn fabric with the directions of its circuits left open.
fn drawn(seed: u64) -> String {
    let draws: &mut Stream = &mut Seed(seed).stream("one-way steps", 0);
    let leaves = draws.random_range(3..=8_u32);
    let nodes = leaves * draws.random_range(1..=3_u32);
    let pp = draws.random_range(1..=3_u32);
    let cp = draws.random_range(1..=nodes.div_euclid(pp).min(3));
    let dp = nodes / (pp * cp);
    let ports = draws.random_range(1..=3_u32);
    let core = [0, 100, 400][draws.random_range(0..3_usize)];
    format!(
        "kind: fabric\nversion: 2\nname: drawn\nhbd: {{khop: {{nodes: {nodes}, gpus_per_node: 4, k: 2}}}}\ndcn:\n  \
         reconfigurable_fat_tree:\n    leaves: {leaves}\n    gpus_per_leaf: {}\n    circuit_rate: 400Gbps\n    electrical: \
         {{rate_per_leaf: {core}Gbps, oversubscription: 1}}\n    banks: [{{name: b, switches: 1, ports_per_switch: {}, \
         ports_per_leaf: {ports}, one_way: ONE_WAY}}]\n    timing: {{control: 1ms, switching: 10ms}}\njobs: [{{name: j, \
         gpus: {}, tp: 4, step: {{training: {{model: llama-3.1-8b, pp: {pp}, cp: {cp}, dp: {dp}, micro_batches: 64, tokens: \
         4096, gradient_slack: 100s, micro_batch_slack: 100s}}}}}}]\n",
        4 * nodes / leaves,
        leaves * ports,
        4 * pp * cp * dp,
    )
}

#[test]
fn one_way_steps_are_never_longer_than_two_way_steps() {
    let (mut slower, mut shorter, mut tried) = (0, 0, 0);
    for seed in 0..cases(45, 600) {
        let text = drawn(seed);
        let step = |one_way: &str| {
            let fabric = fabric(&text.replace("ONE_WAY", one_way));
            let healthy = faults(&fabric, &[]);
            let plan = plan(&fabric, &healthy, Options::default()).ok()?;
            check(&fabric, &healthy, &plan).expect("a sound plan");
            plan.metrics.step_time_ps
        };
        let Some(two_way) = step("false") else { continue };
        let one_way = step("true").expect("one-way circuits can form every two-way circuit");
        if one_way > two_way {
            println!("seed {seed}: {one_way:?} {two_way:?}");
            slower += 1;
        }
        shorter += usize::from(one_way < two_way);
        tried += 1;
    }
    assert!(
        slower == 0 && tried > 30 && shorter > 0,
        "{slower} slower, {shorter} shorter of {tried}"
    );
}

#[test]
fn one_way_circuits_are_never_slower_than_two_way_circuits() {
    let (mut shorter, mut tried) = (0, 0);
    for seed in 0..cases(40, 400) {
        let (network, demand) = drawn_one_way(seed as u64);
        let mut spec = network.spec().clone();
        spec.banks.iter_mut().for_each(|bank| bank.one_way = false);
        let Ok(twin) = ReconfigurableFatTree::new(spec) else { continue };
        let phase = Phase { name: "p".into(), job: None, demand, slack: Picoseconds::ZERO };
        let step = |network: &ReconfigurableFatTree| {
            let planned =
                plan::plan(network, std::slice::from_ref(&phase), &[], CircuitOptions::default());
            planned.ok()?.step_time_ps
        };
        let Some(two_way) = step(&twin) else { continue };
        let one_way = step(&network).expect("one-way circuits can form every two-way circuit");
        assert!(one_way <= two_way, "seed {seed}: {one_way:?} {two_way:?}");
        shorter += usize::from(one_way < two_way);
        tried += 1;
    }
    assert!(tried > 10 && shorter > 0, "{shorter} of {tried}");
}
