// SPDX-License-Identifier: Apache-2.0
//! A local search that speeds up the slowest line by exchanging single circuits.
//!
//! A move adds a circuit from the bottleneck leaf to a starved peer. A leaf without a free port gives up another
//! circuit; if both leaves do, their former peers are connected if permitted. A move is kept if it speeds up the
//! slowest of its lines. The sorted list of line limits therefore only rises, and the search terminates.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;

use super::super::evaluate::Evaluator;
use super::super::topology::{Ports, Topology};

const CHOICES: usize = 6;

const FRUITLESS_KICKS: u32 = 60;

/// Climbs to `target` or until the bottleneck cannot be relieved, then forces random exchanges and climbs again.
pub(super) fn improve(
    fabric: &ReconfigurableFatTree,
    evaluator: &Evaluator,
    topology: &mut Topology,
    exchanges: u32,
    target: f64,
) {
    let mut stream = Seed(0).stream("one_hop.search", fabric.leaves() as u64);
    let mut search = Search::new(fabric, evaluator, topology.clone(), exchanges);
    search.climb(target);
    let mut best = search.lambda();
    *topology = search.topology.clone();
    let mut fruitless = 0;
    while best < target && search.exchanges_left > 0 && fruitless < FRUITLESS_KICKS {
        search.kick(&mut stream);
        search.climb(target);
        fruitless += 1;
        if search.lambda() > best {
            best = search.lambda();
            topology.clone_from(&search.topology);
            fruitless = 0;
        } else if fruitless % 4 == 0 {
            search = Search::new(fabric, evaluator, topology.clone(), search.exchanges_left);
        }
    }
}

/// A new circuit a–b. If `drop_a` is set, circuit a–drop_a makes room for it, and likewise for b.
#[derive(Clone, Copy)]
struct Move {
    reach: usize,
    a: usize,
    b: usize,
    drop_a: Option<usize>,
    drop_b: Option<usize>,
}

struct Search<'a> {
    evaluator: &'a Evaluator,
    ports: Ports<'a>,
    topology: Topology,
    lambdas: Vec<f64>,
    exchanges_left: u32,
}

impl<'a> Search<'a> {
    fn new(
        fabric: &'a ReconfigurableFatTree,
        evaluator: &'a Evaluator,
        topology: Topology,
        exchanges: u32,
    ) -> Self {
        let ports = Ports::new(fabric, &topology);
        let lines = evaluator.lines();
        let lambdas = (0..lines).map(|line| evaluator.line_lambda(line, &topology)).collect();
        Self { evaluator, ports, topology, lambdas, exchanges_left: exchanges }
    }

    fn lambda(&self) -> f64 {
        self.lambdas[self.slowest_line()]
    }

    fn slowest_line(&self) -> usize {
        (0..self.lambdas.len())
            .min_by(|a, b| self.lambdas[*a].total_cmp(&self.lambdas[*b]))
            .expect("a fabric has leaves")
    }

    /// Stops at a bottleneck that cannot be relieved; other lines cannot then raise the minimum.
    fn climb(&mut self, target: f64) {
        while self.exchanges_left > 0 && self.lambda() < target {
            if !self.relieve(self.slowest_line()) {
                return;
            }
        }
    }

    fn kick(&mut self, stream: &mut Stream) {
        let line = self.slowest_line();
        for line in [line, stream.random_range(0..self.lambdas.len())] {
            let peers = self.starved_peers(line);
            if peers.is_empty() {
                continue;
            }
            let (a, b) = (line / 2, peers[stream.random_range(0..peers.len())]);
            let reaches: Vec<usize> = self.ports.permitted(a, b).collect();
            let reach = match reaches.len() {
                0 => continue,
                1 => reaches[0],
                all => reaches[stream.random_range(0..all)],
            };
            let (of_a, of_b) = (self.victims(reach, a, b), self.victims(reach, b, a));
            if of_a.is_empty() || of_b.is_empty() {
                continue;
            }
            let drop_a = of_a[stream.random_range(0..of_a.len())];
            let drop_b = of_b[stream.random_range(0..of_b.len())];
            if self.make(Move { reach, a, b, drop_a, drop_b }).is_some() {
                for leaf in [Some(a), Some(b), drop_a, drop_b].into_iter().flatten() {
                    for line in [2 * leaf, 2 * leaf + 1] {
                        self.lambdas[line] = self.evaluator.line_lambda(line, &self.topology);
                    }
                }
            }
        }
    }

    fn relieve(&mut self, line: usize) -> bool {
        let leaf = line / 2;
        for peer in self.starved_peers(line) {
            let reaches: Vec<usize> = self.ports.permitted(leaf, peer).collect();
            for reach in reaches {
                for drop_a in self.victims(reach, leaf, peer) {
                    for drop_b in self.victims(reach, peer, leaf) {
                        let exchange = Move { reach, a: leaf, b: peer, drop_a, drop_b };
                        if self.exchanges_left == 0 {
                            return false;
                        }
                        self.exchanges_left -= 1;
                        if self.try_move(exchange) {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    fn starved_peers(&self, line: usize) -> Vec<usize> {
        self.evaluator.starved_peers(line, &self.topology, self.lambdas[line], CHOICES)
    }

    fn victims(&self, reach: usize, leaf: usize, keep: usize) -> Vec<Option<usize>> {
        if self.ports.free_within(reach, leaf) > 0 {
            return vec![None];
        }
        let lambda = self.lambdas[2 * leaf].min(self.lambdas[2 * leaf + 1]);
        let row = self.topology.row(leaf);
        let mut loss: Vec<(f64, usize)> = (0..row.len())
            .filter(|peer| row[*peer] > 0 && *peer != keep)
            .filter(|peer| self.topology.between_within(reach, leaf, *peer) > 0)
            .map(|peer| (-self.evaluator.circuit_rate() * f64::from(row[peer]), peer))
            .collect();
        for (cost, peer) in &mut loss {
            *cost += lambda * self.heaviest(leaf, *peer);
        }
        loss.sort_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)));
        loss.truncate(CHOICES);
        loss.into_iter().map(|(_, peer)| Some(peer)).collect()
    }

    fn heaviest(&self, leaf: usize, peer: usize) -> f64 {
        [2 * leaf, 2 * leaf + 1]
            .iter()
            .map(|line| {
                let traffic = self.evaluator.traffic(*line);
                traffic
                    .binary_search_by_key(&peer, |(peer, _)| *peer)
                    .map_or(0.0, |at| traffic[at].1)
            })
            .fold(0.0, f64::max)
    }

    fn try_move(&mut self, exchange: Move) -> bool {
        let mut touched: Vec<usize> =
            [Some(exchange.a), Some(exchange.b), exchange.drop_a, exchange.drop_b]
                .into_iter()
                .flatten()
                .flat_map(|leaf| [2 * leaf, 2 * leaf + 1])
                .collect();
        touched.sort_unstable();
        touched.dedup();
        let before = touched.iter().map(|line| self.lambdas[*line]).fold(f64::MAX, f64::min);
        let Some(joined) = self.make(exchange) else { return false };
        let after: Vec<f64> =
            touched.iter().map(|line| self.evaluator.line_lambda(*line, &self.topology)).collect();
        if after.iter().copied().fold(f64::MAX, f64::min) > before * (1.0 + 1e-12) {
            for (line, lambda) in touched.into_iter().zip(after) {
                self.lambdas[line] = lambda;
            }
            return true;
        }
        self.undo(exchange, joined);
        false
    }

    fn make(&mut self, exchange: Move) -> Option<bool> {
        let Move { reach, a, b, drop_a, drop_b } = exchange;
        for (leaf, victim) in [(a, drop_a), (b, drop_b)] {
            if let Some(victim) = victim {
                self.drop_circuit(reach, leaf, victim);
            }
        }
        if !self.ports.join_within(reach, &mut self.topology, a, b) {
            self.restore(exchange);
            return None;
        }
        Some(match (drop_a, drop_b) {
            (Some(x), Some(y)) if x != y => self.ports.join_within(reach, &mut self.topology, x, y),
            _ => false,
        })
    }

    fn undo(&mut self, exchange: Move, joined: bool) {
        if let (true, Some(x), Some(y)) = (joined, exchange.drop_a, exchange.drop_b) {
            self.drop_circuit(exchange.reach, x, y);
        }
        self.drop_circuit(exchange.reach, exchange.a, exchange.b);
        self.restore(exchange);
    }

    fn restore(&mut self, exchange: Move) {
        for (leaf, victim) in [(exchange.a, exchange.drop_a), (exchange.b, exchange.drop_b)] {
            if let Some(victim) = victim {
                self.topology.add_within(exchange.reach, leaf, victim, 1);
                self.ports.take(exchange.reach, [leaf, victim]);
            }
        }
    }

    fn drop_circuit(&mut self, reach: usize, first: usize, second: usize) {
        self.topology.remove(reach, first, second);
        self.ports.release(reach, [first, second]);
    }
}
