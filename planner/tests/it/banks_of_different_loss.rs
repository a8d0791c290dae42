// SPDX-License-Identifier: Apache-2.0
//! Several banks with different losses, leaves and ports: each bank connects only the pairs that it permits.

use crate::flow_judge::{Hops, best, drawn, drawn_building, drawn_mixture, drawn_one_way};
use lightloom_fabric::fat_tree::{LeafPair, ReconfigurableFatTree};
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::one_hop::{self, Effort};
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::plan::{Options, plan};
use lightloom_planner::rfabric::testkit::{self, check};
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

/// Regression test: a second bank without permitted pairs disabled the first one.
#[test]
fn bank_without_an_admissible_path_does_not_affect_others() {
    let one = testkit::spec(4, 8);
    let mut two = one.clone();
    two.banks.push(two.banks[0].clone());
    two.banks[1].insertion_loss_db = 3.5;
    let [one, two] = [one, two].map(|spec| ReconfigurableFatTree::new(spec).expect("a fabric"));
    assert_eq!((two.banks_without_circuits(), two.reaches()), (vec![1], 1));
    let leaves = || (0..4).map(LeafId);
    assert!(leaves().all(|leaf| one.free_ports(leaf) == two.free_ports(leaf)));
    let pair = LeafPair { a: LeafId(0), b: LeafId(1) };
    assert!(two.permits(pair));
}

#[test]
fn plans_and_bounds_are_valid_with_unequal_bank_losses() {
    let (planned, worst) = judged(200, drawn);
    let two_reaches = (0..200).filter(|seed| drawn(*seed).0.reaches() == 2).count();
    assert!(two_reaches * 3 > 200 && worst > 0.6, "{planned} {two_reaches} {worst}");
}

#[test]
fn plans_and_bounds_are_valid_for_banks_of_some_leaves_with_odd_and_occupied_ports() {
    let count = if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { 500 } else { 60 };
    let (planned, worst) = judged(count, drawn_building);
    assert!(planned * 3 > count && worst > 0.6, "{planned} {worst}");
}

/// A ring in one direction needs one transmitter and one receiver per leaf. Two-way circuits can use the other direction
/// only for detours round the ring: x forward and y backward with x + 5y = 1, y = 1 - x, in units of a circuit.
#[test]
fn one_way_circuits_carry_a_ring_in_one_direction_over_all_ports() {
    let rate = |one_way: bool| {
        let mut spec = testkit::spec(6, 2);
        (spec.banks[0].one_way, spec.banks[0].ports_per_leaf) = (one_way, 2);
        spec.electrical.rate_per_leaf = BitsPerSecond::ZERO;
        let network = ReconfigurableFatTree::new(spec).expect("a fabric");
        let mut demand = Demand::none(6);
        (0..6).for_each(|at| demand.add(LeafId(at), LeafId((at + 1) % 6), Bytes(100_000_000_000)));
        let phase =
            Phase { name: "p".into(), job: None, demand: demand.clone(), slack: Picoseconds::ZERO };
        let plan = plan(&network, &[phase], &[], Options::default()).expect("a plan");
        assert_eq!(check(&network, &[demand], &plan), Vec::<String>::new());
        assert!(plan.phases[0].gap < 0.01, "{:?}", plan.phases[0]);
        plan.phases[0].lambda
    };
    assert!((rate(false) - 0.6).abs() < 0.01);
    assert!((rate(true) - 1.0).abs() < 1e-9);
}

#[test]
fn plans_and_bounds_of_one_way_circuits_are_valid() {
    let count = if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { 500 } else { 40 };
    let (planned, worst) = judged(count, drawn_one_way);
    assert!(planned * 3 > count && worst > 0.9, "{planned} {worst}");
}

/// Two phases with the demands of two draws, planned from the circuits of a plan for the second demand only.
#[test]
fn plans_and_bounds_are_valid_for_banks_of_different_rates_and_circuits_that_stay() {
    let count = if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { 500 } else { 12 };
    let (planned, worst) = judged(count, drawn_mixture);
    assert!(planned * 3 > count && worst > 0.55, "{planned} {worst}");
    let phase = |name: &str, demand: &Demand| Phase {
        name: name.into(),
        job: None,
        demand: demand.clone(),
        slack: Picoseconds::from_millis(100),
    };
    let (mut changed, mut stayed) = (0, 0);
    for seed in 0..count {
        let (network, first) = drawn_mixture(seed);
        let second = drawn_mixture(seed + count).1;
        if first.leaves() != second.leaves() {
            continue;
        }
        let second = phase("second", &second);
        let Ok(one) = plan(&network, std::slice::from_ref(&second), &[], Options::default()) else {
            continue;
        };
        let phases = [phase("first", &first), second];
        let existing = &one.phases[0].circuits;
        let Ok(two) = plan(&network, &phases, existing, Options::default()) else { continue };
        let demands: Vec<Demand> = phases.iter().map(|phase| phase.demand.clone()).collect();
        assert_eq!(check(&network, &demands, &two), Vec::<String>::new(), "seed {seed}");
        changed += usize::from(!two.transitions.is_empty());
        stayed += network.staying().count();
    }
    assert!(changed > 0 && stayed > 0, "{changed} {stayed}");
}

/// Plans `count` networks, and compares each plan and its bound with the optimum. Returns the number of networks that
/// have a plan, and the lowest rate as a share of the optimum.
fn judged(count: u64, drawn: fn(u64) -> (ReconfigurableFatTree, Demand)) -> (u64, f64) {
    let (mut planned, mut worst) = (0, (1.0_f64, 0));
    for seed in 0..count {
        let (network, demand) = drawn(seed);
        let optimum = best(&network, &demand, Hops::One);
        let routed = best(&network, &demand, Hops::Any);
        assert!(routed >= optimum * (1.0 - 1e-6), "seed {seed}: more ways are never slower");
        let found = match network.is_one_way() {
            true => one_hop::plan(&network.halves(), &demand.between_halves(), Effort::default()),
            false => one_hop::plan(&network, &demand, Effort::default()),
        };
        let bound = found.lambda_upper_bound;
        assert!(
            optimum <= bound * (1.0 + 1e-6) + 1e-9,
            "seed {seed}: optimum {optimum} bound {bound}"
        );
        let phase =
            Phase { name: "p".into(), job: None, demand: demand.clone(), slack: Picoseconds::ZERO };
        match plan(&network, &[phase], &[], Options::default()) {
            Ok(plan) => {
                planned += 1;
                let findings = check(&network, std::slice::from_ref(&demand), &plan);
                assert_eq!(findings, Vec::<String>::new(), "seed {seed}");
                let share = plan.phases[0].lambda / optimum;
                if optimum > 1e-9 && share < worst.0 {
                    worst = (share, seed);
                }
            }
            Err(error) => assert!(optimum < 1e-9, "seed {seed}: {optimum} and {error}"),
        }
    }
    let (worst, seed) = worst;
    println!("{count} networks, {planned} planned, worst {worst:.4} of the best, seed {seed}");
    (planned, worst)
}
