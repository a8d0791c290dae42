// SPDX-License-Identifier: Apache-2.0
//! Multi-hop traffic: plans are compared with an integer program, and bounds are proven by prices.

use crate::flow_judge::{Hops, best, drawn};
use crate::joint_fabric::{fabric, faults};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::PhasePlan;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::plan::{
    CarriedStep, Options as CircuitOptions, plan as plan_circuits,
};
use lightloom_planner::rfabric::testkit::check;
use lightloom_planner::{Options, plan};
use lightloom_testkit::cases;
use lightloom_units::Picoseconds;

/// Three rings over four leaves with two ports each. No set of circuits connects every pair with
/// traffic.
const FEW_PORTS: &str = "
kind: fabric
version: 2
name: few-ports
hbd: {khop: {nodes: 8, gpus_per_node: 2, k: 2}}
dcn:
  reconfigurable_fat_tree:
    leaves: 4
    gpus_per_leaf: 4
    circuit_rate: 400Gbps
    electrical: {rate_per_leaf: 1600Gbps, oversubscription: 16}
    banks: [{name: b, switches: 1, ports_per_switch: 8, ports_per_leaf: 2}]
    timing: {control: 1ms, switching: 10ms}
jobs:
  - name: j
    gpus: 12
    tp: 4
    step: {training: {model: llama-3.1-8b, pp: 1, dp: 3, micro_batches: 64, tokens: 4096, gradient_slack: 100s, micro_batch_slack: 100s}}
";

#[test]
fn phase_time_covers_routes_over_several_hops() {
    let fabric = fabric(FEW_PORTS);
    let faults = faults(&fabric, &["n1", "n4"]);
    let options = Options { compare: false, ..Options::default() };
    let plan = plan(&fabric, &faults, options).expect("a plan");
    lightloom_planner::check::check(&fabric, &faults, &plan).expect("a sound plan");
    for phase in &plan.phases {
        println!("{} {} of {}", phase.name, phase.lambda, phase.lambda_upper_bound);
        assert!(
            phase.gap < 0.02,
            "{}: {} of {}",
            phase.name,
            phase.lambda,
            phase.lambda_upper_bound
        );
    }
}

fn planned(
    seed: u64,
) -> Option<(CarriedStep, Demand, lightloom_fabric::fat_tree::ReconfigurableFatTree)> {
    let (network, demand) = drawn(seed);
    let phase =
        Phase { name: "p".into(), job: None, demand: demand.clone(), slack: Picoseconds::ZERO };
    let plan = plan_circuits(&network, &[phase], &[], CircuitOptions::default()).ok()?;
    Some((plan, demand, network))
}

#[test]
fn multi_hop_plans_are_near_optimal_with_valid_bounds() {
    let (mut shares, mut routed) = (Vec::new(), 0);
    for seed in 0..cases(200, 1_000) {
        let optimum = best(&drawn(seed).0, &drawn(seed).1, Hops::Any);
        let Some((plan, demand, network)) = planned(seed) else {
            assert!(optimum < 1e-9, "seed {seed}: refused, and {optimum} is possible");
            continue;
        };
        let phase = &plan.phases[0];
        assert_eq!(check(&network, &[demand], &plan), Vec::<String>::new(), "seed {seed}");
        let bound = phase.lambda_upper_bound;
        assert!(optimum <= bound * (1.0 + 1e-6), "seed {seed}: optimum {optimum} bound {bound}");
        routed += usize::from(!phase.routes.is_empty());
        shares.push((phase.lambda / optimum, seed));
    }
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let near = shares.iter().filter(|(share, _)| *share >= 0.99).count();
    println!(
        "{} planned, {routed} with routes, {near} within 1 %, worst {:?}",
        shares.len(),
        &shares[..12]
    );
    assert!(shares[0].0 > 0.9 && near * 100 >= shares.len() * 98, "{near} of {}", shares.len());
}

/// Regression: nothing passed through other leaves above 32 leaves, and no circuits were searched above
/// 8, so that phases took up to 15 times as long as possible.
#[test]
fn networks_of_many_leaves_route_through_other_leaves() {
    let sizes: &[(u32, u32)] = &[(12, 2), (16, 2), (20, 4), (24, 4), (34, 4), (40, 4), (64, 8)];
    let mut shares = Vec::new();
    for (leaves, switches) in sizes.iter().take(cases(2, sizes.len())) {
        let text = format!(
            "kind: fabric\nversion: 2\nname: many\ndcn:\n  reconfigurable_fat_tree:\n    leaves: {leaves}\n    gpus_per_leaf: 16\n    \
             circuit_rate: 400Gbps\n    electrical: {{rate_per_leaf: 6400Gbps, oversubscription: 64}}\n    \
             banks: [{{name: b, switches: {switches}, ports_per_switch: {}, ports_per_leaf: 2}}]\n    \
             timing: {{control: 1ms, switching: 10ms}}\n\
             jobs: [{{name: j, step: {{phases: [{{name: a, demand: {{shape: {{dense: {{seed: 1}}}}}}}}]}}}}]\n",
            2 * leaves
        );
        let (fabric, none) = (fabric(&text), FaultSet::default());
        let plan = plan(&fabric, &none, Options::default()).expect("a plan");
        lightloom_planner::check::check(&fabric, &none, &plan).expect("a sound plan");
        let share = plan.phases[0].lambda / plan.phases[0].lambda_upper_bound;
        println!("{leaves} leaves: {share:.3} of the bound");
        shares.push(share);
    }
    assert!(shares.iter().all(|share| *share >= 0.85), "{shares:?}");
}

#[test]
fn detects_an_edited_price_share_or_route() {
    let mut found = [0; 4];
    for seed in 0..60 {
        let Some((plan, demand, network)) = planned(seed) else { continue };
        let mut refuses = |at: usize, change: &dyn Fn(&mut PhasePlan) -> bool| {
            let mut changed = plan.clone();
            if change(&mut changed.phases[0]) {
                let said = check(&network, std::slice::from_ref(&demand), &changed);
                assert!(!said.is_empty(), "seed {seed}, change {at}");
                found[at] += 1;
            }
        };
        refuses(0, &|phase| {
            let Some(prices) = &mut phase.prices else { return false };
            let dearest = (0..prices.ports.len())
                .max_by(|a, b| prices.ports[*a].price.total_cmp(&prices.ports[*b].price));
            dearest.map(|port| prices.ports.remove(port)).is_some_and(|port| port.price > 1e-3)
        });
        refuses(1, &|phase| {
            phase.lambda_upper_bound *= 0.999;
            phase.gap = 1.0 - phase.lambda / phase.lambda_upper_bound;
            phase.gap > 0.0
        });
        refuses(2, &|phase| phase.routes.first_mut().map(|route| route.weight *= 0.9).is_some());
        refuses(3, &|phase| {
            phase
                .routes
                .iter_mut()
                .find(|route| route.core_hop.is_none())
                .map(|route| route.core_hop = Some(9))
                .is_some()
        });
    }
    assert!(found.iter().all(|times| *times > 5), "{found:?}");
}
