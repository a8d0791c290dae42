// SPDX-License-Identifier: Apache-2.0
//! Exchanges of circuits, rated by the prices of the routes on the current circuits.
//!
//! By duality, another circuit between two leaves is worth what a bit pays on its cheapest path
//! between them, and an existing circuit is worth its own price. Exchanging the ends of two circuits
//! is therefore worth the difference, as long as few circuits change.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::super::topology::{Ports, Topology};
use super::flows::{Settled, cheapest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Circuit {
    reach: usize,
    ends: [usize; 2],
}

#[derive(Clone, Debug)]
pub(super) struct Exchange {
    worth: f64,
    removed: [Option<Circuit>; 2],
    added: [Option<Circuit>; 2],
}

struct CircuitPrices {
    leaves: usize,
    /// Price of a bit on its cheapest path, in both directions together.
    cheapest: Vec<f64>,
    /// Price of a bit on the circuits between two leaves, in both directions together.
    own: Vec<f64>,
}

impl CircuitPrices {
    fn of(topology: &Topology, settled: &Settled) -> Self {
        let leaves = topology.leaves();
        let mut prices =
            Self { leaves, cheapest: vec![0.0; leaves * leaves], own: vec![0.0; leaves * leaves] };
        let of_arcs = settled.proof.arc_prices();
        for from in 0..leaves {
            let tree = cheapest(&settled.proof, &of_arcs, from);
            for to in 0..leaves {
                prices.cheapest[from * leaves + to] += tree.price[to];
                prices.cheapest[to * leaves + from] += tree.price[to];
            }
        }
        for (at, arc) in settled.proof.arcs.iter().enumerate() {
            if arc.from < leaves && arc.to < leaves {
                prices.own[arc.from * leaves + arc.to] += of_arcs[at];
                prices.own[arc.to * leaves + arc.from] += of_arcs[at];
            }
        }
        prices
    }

    fn added(&self, circuit: Option<Circuit>) -> f64 {
        circuit
            .map_or(0.0, |circuit| self.cheapest[circuit.ends[0] * self.leaves + circuit.ends[1]])
    }

    fn removed(&self, circuit: Option<Circuit>) -> f64 {
        circuit.map_or(0.0, |circuit| self.own[circuit.ends[0] * self.leaves + circuit.ends[1]])
    }
}

/// Best first.
pub(super) fn exchanges(
    fabric: &ReconfigurableFatTree,
    topology: &Topology,
    settled: &Settled,
) -> Vec<Exchange> {
    let prices = CircuitPrices::of(topology, settled);
    let ports = Ports::new(fabric, topology);
    let mut exchanges = Vec::new();
    let mut consider = |removed: [Option<Circuit>; 2], added: [Option<Circuit>; 2]| {
        let worth = added.map(|circuit| prices.added(circuit)).iter().sum::<f64>()
            - removed.map(|circuit| prices.removed(circuit)).iter().sum::<f64>();
        if worth > 0.0 {
            exchanges.push(Exchange { worth, removed, added });
        }
    };
    for reach in 0..fabric.reaches() {
        let permitted = |a: usize, b: usize| {
            let circuit = Circuit { reach, ends: [a, b] };
            (a != b && ports.permitted(a, b).any(|own| own == reach)).then_some(circuit)
        };
        let circuits: Vec<Circuit> = topology
            .pairs()
            .map(|(pair, _)| Circuit { reach, ends: [pair.a.index(), pair.b.index()] })
            .filter(|circuit| topology.between_within(reach, circuit.ends[0], circuit.ends[1]) > 0)
            .collect();
        let free: Vec<usize> =
            (0..topology.leaves()).filter(|leaf| ports.free_within(reach, *leaf) > 0).collect();
        for (at, &a) in free.iter().enumerate() {
            for &b in &free[at + 1..] {
                if let Some(circuit) = permitted(a, b) {
                    consider([None, None], [Some(circuit), None]);
                }
            }
        }
        for (at, &one) in circuits.iter().enumerate() {
            let [a, b] = one.ends;
            for &leaf in &free {
                for end in [a, b] {
                    consider([Some(one), None], [permitted(end, leaf), None]);
                }
            }
            for &other in &circuits[at + 1..] {
                let [c, d] = other.ends;
                for (first, second) in [((a, c), (b, d)), ((a, d), (b, c))] {
                    let added = [permitted(first.0, first.1), permitted(second.0, second.1)];
                    consider([Some(one), Some(other)], added);
                }
            }
        }
    }
    exchanges.sort_by(|one, other| other.worth.total_cmp(&one.worth));
    exchanges
}

pub(super) fn made(
    fabric: &ReconfigurableFatTree,
    topology: &Topology,
    exchanges: &[Exchange],
    most: usize,
) -> Topology {
    let mut topology = topology.clone();
    let mut is_touched = vec![false; topology.leaves()];
    let mut left = most;
    for exchange in exchanges {
        let circuits = || exchange.removed.iter().chain(&exchange.added).flatten();
        let mut leaves = circuits().flat_map(|circuit| circuit.ends);
        if leaves.any(|leaf| is_touched[leaf]) {
            continue;
        }
        circuits().flat_map(|circuit| circuit.ends).for_each(|leaf| is_touched[leaf] = true);
        for circuit in exchange.removed.iter().flatten() {
            topology.remove(circuit.reach, circuit.ends[0], circuit.ends[1]);
        }
        let mut ports = Ports::new(fabric, &topology);
        for circuit in exchange.added.iter().flatten() {
            ports.join_within(circuit.reach, &mut topology, circuit.ends[0], circuit.ends[1]);
        }
        left -= 1;
        if left == 0 {
            break;
        }
    }
    topology
}
