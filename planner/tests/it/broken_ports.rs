// SPDX-License-Identifier: Apache-2.0
//! Single failed ports on optical switches: the bound covers every set of circuits, and a plan is
//! found whenever one exists.

use crate::joint_fabric;
use std::collections::BTreeSet;

use joint_fabric::faults;
use lightloom_fabric::fat_tree::{FatTreeSpec, ReconfigurableFatTree};
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::phases::Phase;
use lightloom_planner::rfabric::testkit::{self, check};
use lightloom_planner::rfabric::{Options, plan};
use lightloom_units::id::{LeafId, OcsId, OcsPortId};
use lightloom_units::seed::Seed;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};
use rand::RngExt;

const LEAVES: usize = 4;

type Circuits = [[u8; LEAVES]; LEAVES];

/// Collects all sets of circuits on the working ports of one switch, given per leaf by `ports`.
fn of_switch(ports: [u8; LEAVES], from: usize, now: Circuits, all: &mut BTreeSet<Circuits>) {
    let pairs: Vec<(usize, usize)> =
        (0..LEAVES).flat_map(|a| (a + 1..LEAVES).map(move |b| (a, b))).collect();
    all.insert(now);
    for (at, (a, b)) in pairs.iter().copied().enumerate().skip(from) {
        if ports[a] > 0 && ports[b] > 0 {
            let (mut ports, mut now) = (ports, now);
            ports[a] -= 1;
            ports[b] -= 1;
            now[a][b] += 1;
            of_switch(ports, at, now, all);
        }
    }
}

fn serves(spec: &FatTreeSpec, bytes: &[(usize, usize, u64)], of: &Circuits, lambda: f64) -> bool {
    let mut core = [[0.0; 2]; LEAVES];
    let mut hosts = [[0.0; 2]; LEAVES];
    for &(from, to, bytes) in bytes {
        let bits = lambda * bytes as f64 * 8.0;
        let carried = f64::from(of[from.min(to)][from.max(to)]) * spec.circuit_rate.0 as f64;
        let over = (bits - carried).max(0.0);
        core[from][0] += over;
        core[to][1] += over;
        hosts[from][0] += bits;
        hosts[to][1] += bits;
    }
    let core_rate = spec.electrical.rate_per_leaf.0 as f64 / spec.electrical.oversubscription;
    let host_rate = f64::from(spec.gpus_per_leaf) * spec.gpu_rate.0 as f64;
    core.iter().flatten().all(|bits| *bits <= core_rate + 1.0)
        && hosts.iter().flatten().all(|bits| *bits <= host_rate + 1.0)
}

/// Tries every set of circuits. 0 if none serves all traffic.
fn best(spec: &FatTreeSpec, bytes: &[(usize, usize, u64)], dead: &BTreeSet<OcsPortId>) -> f64 {
    let mut all = BTreeSet::from([Circuits::default()]);
    let per_leaf = spec.banks[0].ports_per_leaf;
    for ocs in (0..spec.banks[0].switches).map(OcsId) {
        let mut ports = [per_leaf as u8; LEAVES];
        for dead in dead.iter().filter(|dead| dead.ocs == ocs) {
            ports[(dead.port / per_leaf) as usize] -= 1;
        }
        let mut own = BTreeSet::new();
        of_switch(ports, 0, Circuits::default(), &mut own);
        let sum = |one: &Circuits, other: &Circuits| {
            let mut sum = *one;
            sum.iter_mut().flatten().zip(other.iter().flatten()).for_each(|(a, b)| *a += b);
            sum
        };
        all = all.iter().flat_map(|one| own.iter().map(|own| sum(one, own))).collect();
    }
    let mut best = 1e-3;
    for of in all {
        if !serves(spec, bytes, &of, best * (1.0 + 1e-9)) {
            continue;
        }
        let (mut low, mut high) = (best, 1e9);
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            if serves(spec, bytes, &of, middle) { low = middle } else { high = middle }
        }
        best = low;
    }
    if best > 1.1e-3 { best } else { 0.0 }
}

#[test]
fn plans_with_failed_ports_stay_within_their_bound() {
    let mut draws = Seed(7).stream("broken ports", 0);
    let (mut planned, mut optimal, mut least) = (0, 0, 1.0_f64);
    for case in 0..150 {
        let mut spec = testkit::spec(LEAVES as u32, [2, 4][case % 2]);
        if case % 3 == 0 {
            spec.electrical.rate_per_leaf = BitsPerSecond::ZERO;
        }
        let network = ReconfigurableFatTree::new(spec.clone()).unwrap();
        let mut faults = FaultSet::default();
        for _ in 0..draws.random_range(1..=3) {
            let ocs = OcsId(draws.random_range(0..spec.banks[0].switches));
            let port = draws.random_range(0..spec.banks[0].ports_per_switch);
            faults.ocs_ports.insert(OcsPortId { ocs, port });
        }
        let mut demand = Demand::none(LEAVES);
        for _ in 0..draws.random_range(1..=6) {
            let (a, b) = (draws.random_range(0..4_u32), draws.random_range(0..4_u32));
            if a != b {
                demand.add(LeafId(a), LeafId(b), Bytes(draws.random_range(1..=8) * 100_000_000));
            }
        }
        if demand.total() == Bytes::ZERO {
            continue;
        }
        let bytes: Vec<(usize, usize, u64)> =
            demand.flows().map(|(from, to, bytes)| (from.index(), to.index(), bytes.0)).collect();
        let best = best(&spec, &bytes, &faults.ocs_ports);
        let left = network.without(&faults);
        let slack = Picoseconds::ZERO;
        let phases = [Phase { job: None, name: "p".into(), demand: demand.clone(), slack }];
        match plan(&left, &phases, &[], Options::default()) {
            Ok(found) => {
                let phase = &found.phases[0];
                assert_eq!(check(&left, &[demand], &found), Vec::<String>::new(), "case {case}");
                assert!(
                    best <= phase.lambda_upper_bound * (1.0 + 1e-6),
                    "{case}: {best} {phase:?}"
                );
                let is_one_hop = phase.routes.is_empty();
                assert!(
                    !is_one_hop || phase.lambda <= best * (1.0 + 1e-6),
                    "{case}: {best} {phase:?}"
                );
                planned += 1;
                optimal += usize::from(phase.lambda >= best * (1.0 - 1e-6));
                least = least.min(phase.lambda / best);
            }
            Err(error) => assert!(best == 0.0, "case {case}: {best} is possible, and: {error}"),
        }
    }
    assert!(planned > 100, "{planned}");
    assert!(optimal * 100 >= planned * 95, "{optimal} of {planned} at the optimum, least {least}");
}

#[test]
fn failed_port_disables_no_other_port_on_the_leaf() {
    let fabric = joint_fabric::fabric(include_str!("../../../topologies/pod-64.yaml"));
    let step = |broken: &[&str]| {
        let plan = lightloom_planner::plan(
            &fabric,
            &faults(&fabric, broken),
            lightloom_planner::Options::default(),
        )
        .unwrap();
        plan.metrics.step_time_ps.expect("a step").as_secs_f64() * 1e3
    };
    let (one, two) = (step(&["ocs0/p0"]), step(&["ocs0/p0", "ocs0/p1"]));
    assert!(one < 1.3, "{one} ms with one broken port, {two} ms with two");
}
