// SPDX-License-Identifier: Apache-2.0

use super::super::testkit::{fabric, spec};
use super::*;
use lightloom_fabric::fault::FaultSet;
use lightloom_units::id::OcsPortId;
use lightloom_units::seed::Seed;
use proptest::prelude::*;
use rand::RngExt;

fn random_topology(fabric: &ReconfigurableFatTree, seed: u64) -> Topology {
    let mut stream = Seed(seed).stream("test.topology", 0);
    let leaves = fabric.leaves();
    let mut topology = Topology::dark(leaves);
    let ports: Vec<u32> =
        (0..leaves).map(|leaf| fabric.free_ports(LeafId::from_index(leaf))).collect();
    for _ in 0..leaves * fabric.optical_ports() as usize * 2 {
        let (a, b) = (stream.random_range(0..leaves), stream.random_range(0..leaves));
        if a != b && topology.degree(a) < ports[a] && topology.degree(b) < ports[b] {
            topology.add(a, b);
        }
    }
    topology
}

fn check_ports(fabric: &ReconfigurableFatTree, realisation: &Realisation) {
    let mut used = BTreeSet::new();
    for circuit in realisation.cross_connects.iter().chain(&fabric.spec().held) {
        assert!(used.insert((circuit.ocs, circuit.a_port)), "{circuit:?}");
        assert!(used.insert((circuit.ocs, circuit.b_port)), "{circuit:?}");
        let ports = fabric.ports_per_leaf(circuit.ocs);
        assert_eq!(circuit.a_port / ports, circuit.a.0);
        assert_eq!(circuit.b_port / ports, circuit.b.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn realises_every_topology_that_fits_the_ports(
        leaves in 2u32..=128, switches in 1u32..=32, half in 1u32..=2, seed in 0u64..1_000_000,
    ) {
        let mut spec = spec(leaves, 2);
        spec.banks[0].switches = switches;
        spec.banks[0].ports_per_leaf = 2 * half;
        spec.banks[0].ports_per_switch = 2 * half * leaves;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let topology = random_topology(&fabric, seed);
        let realisation = realise(&fabric, &topology, &[]);
        prop_assert!(realisation.unplaced.is_empty());
        prop_assert_eq!(&topology_of(&fabric, &realisation.cross_connects), &topology);
        check_ports(&fabric, &realisation);
        let again = realise(&fabric, &topology, &realisation.cross_connects);
        prop_assert_eq!(&again.cross_connects, &realisation.cross_connects);
        prop_assert_eq!(again.kept, again.kept_upper_bound);
    }

    #[test]
    fn fills_two_banks_of_different_width_evenly(seed in 0u64..1_000_000) {
        let mut spec = spec(24, 8);
        let mut wide = spec.banks[0].clone();
        wide.ports_per_leaf = 4;
        wide.ports_per_switch = 96;
        wide.switches = 3;
        spec.banks.push(wide);
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let topology = random_topology(&fabric, seed);
        let realisation = realise(&fabric, &topology, &[]);
        prop_assert!(realisation.unplaced.is_empty());
        check_ports(&fabric, &realisation);
    }

    #[test]
    fn leaves_ports_of_other_jobs_untouched(seed in 0u64..1_000_000) {
        let plain = fabric(12, 8);
        let held = realise(&plain, &random_topology(&plain, seed), &[]).cross_connects;
        let mut spec = spec(12, 8);
        spec.held = held.into_iter().step_by(5).collect();
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let mut topology = Topology::dark(12);
        for a in 0..12 {
            for b in a + 1..12 {
                let free = |leaf: usize, topology: &Topology| {
                    fabric.free_ports(LeafId::from_index(leaf)) > topology.degree(leaf)
                };
                if free(a, &topology) && free(b, &topology) {
                    topology.add(a, b);
                }
            }
        }
        let realisation = realise(&fabric, &topology, &[]);
        check_ports(&fabric, &realisation);
        let placed = realisation.cross_connects.len() + realisation.unplaced.len();
        prop_assert_eq!(placed as u64, topology.count());
    }
}

fn fits_somehow(circuits: &[(usize, usize)], free: &mut [Vec<u32>]) -> bool {
    let Some((&(a, b), rest)) = circuits.split_first() else { return true };
    (0..free.len()).any(|at| {
        if free[at][a] == 0 || free[at][b] == 0 {
            return false;
        }
        (free[at][a], free[at][b]) = (free[at][a] - 1, free[at][b] - 1);
        let fits = fits_somehow(rest, free);
        (free[at][a], free[at][b]) = (free[at][a] + 1, free[at][b] + 1);
        fits
    })
}

/// Regression test: each failed port used to disable another port of its leaf.
#[test]
fn failed_ports_lose_only_circuits_that_cannot_fit() {
    let (mut possible, mut placed) = (0, 0);
    for seed in 0..2_000 {
        let mut stream = Seed(seed).stream("test.dead", 0);
        let per_leaf = 2 * stream.random_range(1..=2);
        let mut small = spec(stream.random_range(3..=5), 2 * per_leaf);
        small.banks[0].switches = 2;
        small.banks[0].ports_per_leaf = per_leaf;
        small.banks[0].ports_per_switch = per_leaf * small.leaves;
        small.failure_domains = 1;
        let plain = ReconfigurableFatTree::new(small).unwrap();
        let mut faults = FaultSet::none();
        for _ in 0..stream.random_range(1..=3) {
            let ocs = OcsId::from_index(stream.random_range(0..plain.switches()));
            let port = stream.random_range(0..per_leaf * plain.leaves() as u32);
            faults.ocs_ports.insert(OcsPortId { ocs, port });
        }
        let fabric = plain.without(&faults);
        let topology = random_topology(&fabric, seed);
        let realisation = realise(&fabric, &topology, &[]);
        check_ports(&fabric, &realisation);
        let is_dead = |ocs, port| faults.ocs_ports.contains(&OcsPortId { ocs, port });
        for one in &realisation.cross_connects {
            assert!(!is_dead(one.ocs, one.a_port) && !is_dead(one.ocs, one.b_port), "{one:?}");
        }
        let circuits: Vec<(usize, usize)> = topology
            .pairs()
            .flat_map(|(pair, count)| {
                std::iter::repeat_n((pair.a.index(), pair.b.index()), count as usize)
            })
            .collect();
        let mut free: Vec<Vec<u32>> = (0..fabric.switches())
            .map(OcsId::from_index)
            .map(|ocs| {
                let leaves = (0..fabric.leaves()).map(LeafId::from_index);
                leaves.map(|leaf| per_leaf - fabric.dead_ports_of(ocs, leaf)).collect()
            })
            .collect();
        if fits_somehow(&circuits, &mut free) {
            possible += 1;
            placed += u32::from(realisation.unplaced.is_empty());
        }
    }
    assert!(possible > 1_000 && placed * 100 >= possible * 99, "{placed} of {possible}");
}

fn swap_ends(topology: &mut Topology, times: usize) {
    let mut stream = Seed(2).stream("test.change", 0);
    for _ in 0..times {
        let pairs: Vec<LeafPair> = topology.pairs().map(|(pair, _)| pair).collect();
        let x = pairs[stream.random_range(0..pairs.len())];
        let y = pairs[stream.random_range(0..pairs.len())];
        let [a, b, c, d] = [x.a, x.b, y.a, y.b].map(LeafId::index);
        if a != d && b != c && x != y {
            topology.remove(0, a, b);
            topology.remove(0, c, d);
            topology.add(a, d);
            topology.add(b, c);
        }
    }
}

#[test]
fn topology_change_keeps_85_percent_of_reusable_circuits() {
    let fabric = fabric(128, 64);
    let mut topology = Topology::uniform_mesh(&fabric);
    swap_ends(&mut topology, 2_000);
    let before = realise(&fabric, &topology, &[]).cross_connects;
    swap_ends(&mut topology, 400);
    let after = realise(&fabric, &topology, &before);
    assert!(after.unplaced.is_empty());
    let share = after.kept as f64 / after.kept_upper_bound as f64;
    assert!(share >= 0.85, "kept {share}");
    let fresh = realise(&fabric, &topology, &[]).cross_connects;
    let common = fresh.iter().filter(|circuit| before.contains(circuit)).count();
    assert!(common * 2 < after.kept, "a fresh decomposition keeps far less: {common}");
}
