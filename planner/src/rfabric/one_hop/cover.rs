// SPDX-License-Identifier: Apache-2.0
//! Greedily tests whether circuits can take enough traffic off the electrical core at a given rate.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::super::evaluate::Evaluator;
use super::super::topology::{Ports, Topology};

/// Starts with all traffic on the core. Each circuit goes to the pair with the greatest relief, weighted by the urgency
/// at both ends. Returns the topology and whether all core links have enough capacity.
pub(super) fn cover(
    fabric: &ReconfigurableFatTree,
    evaluator: &Evaluator,
    lambda: f64,
) -> (Topology, bool) {
    let mut state = Cover::new(fabric, evaluator, lambda);
    let mut best = Tournament::new(state.pairs.iter().map(|pair| state.score(pair)).collect());
    while let Some(winner) = best.winner() {
        state.place(winner);
        let Pair { ends, .. } = state.pairs[winner];
        for end in ends {
            for &at in &state.pairs_of[end] {
                best.set(at, state.score(&state.pairs[at]));
            }
        }
    }
    let covered = state.excess.iter().all(|excess| *excess <= state.tolerance);
    (state.topology, covered)
}

struct Pair {
    ends: [usize; 2],
    rest: [f64; 2],
}

struct Cover<'a> {
    ports: Ports<'a>,
    topology: Topology,
    pairs: Vec<Pair>,
    pairs_of: Vec<Vec<usize>>,
    excess: Vec<f64>,
    circuit_rate: f64,
    tolerance: f64,
}

impl<'a> Cover<'a> {
    fn new(fabric: &'a ReconfigurableFatTree, evaluator: &Evaluator, lambda: f64) -> Self {
        let leaves = fabric.leaves();
        let topology = Topology::bare(fabric);
        let ports = Ports::new(fabric, &topology);
        let mut excess: Vec<f64> =
            (0..2 * leaves).map(|line| -evaluator.electrical_rate_of(line / 2)).collect();
        for (line, excess) in excess.iter_mut().enumerate() {
            *excess += evaluator.traffic(line).iter().map(|(_, bits)| bits * lambda).sum::<f64>();
        }
        let mut pairs = Vec::new();
        let mut pairs_of = vec![Vec::new(); leaves];
        for first in 0..leaves {
            for (second, rest) in traffic_above(evaluator, first, lambda) {
                if ports.allow(first, second) || topology.between(first, second) > 0 {
                    pairs_of[first].push(pairs.len());
                    pairs_of[second].push(pairs.len());
                    pairs.push(Pair { ends: [first, second], rest });
                }
            }
        }
        let circuit_rate = evaluator.circuit_rate();
        let tolerance = circuit_rate * 1e-9;
        let mut cover = Self { ports, topology, pairs, pairs_of, excess, circuit_rate, tolerance };
        for at in 0..cover.pairs.len() {
            let [a, b] = cover.pairs[at].ends;
            cover.relieve(at, cover.topology.between(a, b));
        }
        cover
    }

    fn urgency(&self, line: usize) -> f64 {
        self.excess[line].max(0.0) / f64::from(self.ports.free_at(line / 2))
    }

    fn score(&self, pair: &Pair) -> f64 {
        let [a, b] = pair.ends;
        let Some(units) = self.ports.units_for(a, b) else { return 0.0 };
        let circuit = self.circuit_rate * f64::from(units);
        let there = pair.rest[0].min(circuit);
        let back = pair.rest[1].min(circuit);
        there * (self.urgency(2 * a) + self.urgency(2 * b + 1))
            + back * (self.urgency(2 * b) + self.urgency(2 * a + 1))
    }

    fn place(&mut self, winner: usize) {
        let [a, b] = self.pairs[winner].ends;
        let units = self.ports.units_for(a, b).expect("only pairs with free ports have a score");
        self.ports.join(&mut self.topology, a, b);
        self.relieve(winner, units);
    }

    fn relieve(&mut self, at: usize, units: u32) {
        let pair = &mut self.pairs[at];
        let [a, b] = pair.ends;
        let circuits = self.circuit_rate * f64::from(units);
        for (direction, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
            let relief = pair.rest[direction].min(circuits);
            pair.rest[direction] -= relief;
            self.excess[2 * from] -= relief;
            self.excess[2 * to + 1] -= relief;
        }
    }
}

fn traffic_above(evaluator: &Evaluator, leaf: usize, lambda: f64) -> Vec<(usize, [f64; 2])> {
    let mut merged = std::collections::BTreeMap::<usize, [f64; 2]>::new();
    for direction in 0..2 {
        for &(peer, bits) in evaluator.traffic(2 * leaf + direction) {
            if peer > leaf {
                merged.entry(peer).or_default()[direction] = bits * lambda;
            }
        }
    }
    merged.into_iter().collect()
}

struct Tournament {
    scores: Vec<f64>,
    winners: Vec<usize>,
}

impl Tournament {
    fn new(mut scores: Vec<f64>) -> Self {
        let size = scores.len().next_power_of_two();
        scores.resize(size, 0.0);
        let mut tournament = Self { winners: vec![0; 2 * size], scores };
        for entry in 0..size {
            tournament.winners[size + entry] = entry;
        }
        for node in (1..size).rev() {
            tournament.winners[node] = tournament.play(node);
        }
        tournament
    }

    fn winner(&self) -> Option<usize> {
        Some(self.winners[1]).filter(|entry| self.scores[*entry] > 0.0)
    }

    fn set(&mut self, entry: usize, score: f64) {
        self.scores[entry] = score;
        let mut node = (self.scores.len() + entry) / 2;
        while node > 0 {
            let before = self.winners[node];
            self.winners[node] = self.play(node);
            if self.winners[node] == before && before != entry {
                return;
            }
            node /= 2;
        }
    }

    fn play(&self, node: usize) -> usize {
        let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
        if self.scores[right] > self.scores[left] { right } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tournament_matches_a_linear_scan(
            scores in prop::collection::vec(0.0..9.0f64, 1..40),
            changes in prop::collection::vec((0usize..40, 0.0..9.0f64), 0..60),
        ) {
            let mut tournament = Tournament::new(scores.clone());
            let mut scores = scores;
            for (entry, score) in changes {
                let entry = entry % scores.len();
                scores[entry] = score;
                tournament.set(entry, score);
                let scan = (0..scores.len()).rev().max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
                prop_assert_eq!(tournament.winner(), scan.filter(|at| scores[*at] > 0.0));
            }
        }
    }
}
