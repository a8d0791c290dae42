// SPDX-License-Identifier: Apache-2.0
//! Computes in closed form how fast a topology serves a demand, and a bound over all topologies.
//!
//! `lambda` is how many times per second the demand of a phase can be served, so the phase takes 1/lambda. The traffic
//! of a pair uses its circuits, each at rate C, and overflows to the electrical core. Each leaf can send and receive
//! over the core at rate E. A value of lambda is therefore feasible exactly if, for every leaf i,
//!
//! ```text
//!   sum over j of max(0, lambda·d_ij − C·n_ij)  ≤  E      and the same for d_ji
//! ```
//!
//! and if the GPU interfaces below each leaf suffice: lambda · sum of d_ij ≤ their total rate. In
//! addition, no GPU may exceed the rate of its own interfaces, including for traffic within a leaf.
//!
//! Each *line* (one leaf in one direction) limits lambda, as does the busiest GPU.

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::{LeafPair, ReconfigurableFatTree};
use lightloom_units::id::LeafId;

use super::demand::Demand;
use super::topology::Topology;

#[derive(Clone, Debug)]
struct Line {
    leaf: usize,
    traffic: Vec<(usize, f64)>,
    host_limit: f64,
}

/// A demand prepared for evaluating many topologies.
#[derive(Clone, Debug)]
pub struct Evaluator {
    leaves: usize,
    /// Leaf i sends on line 2i and receives on line 2i+1.
    lines: Vec<Line>,
    circuit_rate: f64,
    electrical_rates: Vec<f64>,
    pub(super) has_halves: bool,
}

impl Evaluator {
    /// Prepares `demand` on `fabric`. If circuits are one-way, the lines are those of the halves of leaves.
    ///
    /// # Panics
    /// Panics if demand and fabric have different sizes; see [`Demand::must_fit`].
    pub fn new(fabric: &ReconfigurableFatTree, demand: &Demand) -> Self {
        assert_eq!(fabric.leaves(), demand.leaves(), "demand and fabric have the same size");
        if fabric.is_one_way() {
            return Self::new(&fabric.halves(), &demand.between_halves());
        }
        let leaves = fabric.leaves();
        let mut lines: Vec<Line> = (0..2 * leaves)
            .map(|at| Line { leaf: at / 2, traffic: Vec::new(), host_limit: f64::MAX })
            .collect();
        for (from, to, bytes) in demand.flows() {
            let bits = demand.bits(bytes);
            lines[2 * from.index()].traffic.push((to.index(), bits));
            lines[2 * to.index() + 1].traffic.push((from.index(), bits));
        }
        let interfaces = demand.interface_seconds(fabric.spec().gpu_rate.0 as f64);
        let interface_limit = interfaces.map_or(f64::MAX, |seconds| 1.0 / seconds);
        for line in lines.iter_mut().filter(|line| !line.traffic.is_empty()) {
            let bits: f64 = line.traffic.iter().map(|(_, bits)| bits).sum();
            line.host_limit = (fabric.host_rate() / bits).min(interface_limit);
        }
        Self {
            leaves,
            lines,
            circuit_rate: fabric.circuit_unit().0 as f64,
            electrical_rates: (0..leaves)
                .map(|leaf| fabric.electrical_rate_of(LeafId::from_index(leaf)))
                .collect(),
            has_halves: fabric.has_halves(),
        }
    }

    /// Returns the unit of circuit rates in bit/s.
    pub fn circuit_rate(&self) -> f64 {
        self.circuit_rate
    }

    /// Returns the rate of a leaf to and from the electrical core in bit/s.
    pub fn electrical_rate_of(&self, leaf: usize) -> f64 {
        self.electrical_rates[leaf]
    }

    /// Returns the rate limit set by the GPU interfaces. It applies to every network.
    pub fn host_bound(&self) -> f64 {
        self.lines.iter().map(|line| line.host_limit).fold(f64::MAX, f64::min)
    }

    /// Returns the number of lines, two per leaf.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns the traffic of one line as (peer, bits), sorted by peer.
    pub fn traffic(&self, line: usize) -> &[(usize, f64)] {
        &self.lines[line].traffic
    }

    /// Returns the peers whose circuits carry less than their traffic at the rate `lambda`, the most starved first.
    pub(super) fn starved_peers(
        &self,
        line: usize,
        topology: &Topology,
        lambda: f64,
        most: usize,
    ) -> Vec<usize> {
        let row = topology.row(line / 2);
        let mut starved: Vec<(f64, usize)> = Vec::new();
        for &(peer, bits) in self.traffic(line) {
            let hunger = lambda * bits - self.circuit_rate * f64::from(row[peer]);
            if hunger > 0.0 {
                starved.push((hunger, peer));
            }
        }
        starved.sort_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)));
        starved.into_iter().take(most).map(|(_, peer)| peer).collect()
    }

    /// Returns the highest rate that a line allows on any circuits. `f64::MAX` without traffic.
    pub fn rate_of_line(&self, fabric: &ReconfigurableFatTree, line: usize) -> f64 {
        let Line { leaf, traffic, .. } = &self.lines[line];
        let bits: f64 = traffic.iter().map(|(_, bits)| bits).sum();
        let optical = fabric.optical_rate_of(LeafId::from_index(*leaf));
        match bits > 0.0 {
            true => (optical + self.electrical_rates[*leaf]) / bits,
            false => f64::MAX,
        }
    }

    /// Returns how many times per second `topology` serves the demand. `f64::MAX` without traffic.
    pub fn lambda(&self, topology: &Topology) -> f64 {
        assert_eq!(self.leaves, topology.leaves(), "topology and demand have the same size");
        (0..self.lines.len()).map(|line| self.line_lambda(line, topology)).fold(f64::MAX, f64::min)
    }

    /// The left side of the inequality in the module documentation is convex and increasing in lambda. Newton's method
    /// starts from an upper limit and converges in a few steps; each step drops the pairs whose circuits suffice.
    pub(crate) fn line_lambda(&self, line: usize, topology: &Topology) -> f64 {
        let circuits = topology.row(self.lines[line].leaf);
        self.line_lambda_on(line, |peer| circuits[peer])
    }

    /// Returns how many times per second the common circuits of `from` and `to` serve the demand.
    pub fn lambda_in_common(&self, from: &Topology, to: &Topology) -> f64 {
        let lambdas = self.lines.iter().enumerate().map(|(line, Line { leaf, .. })| {
            let (from, to) = (from.row(*leaf), to.row(*leaf));
            self.line_lambda_on(line, |peer| from[peer].min(to[peer]))
        });
        lambdas.fold(f64::MAX, f64::min)
    }

    fn line_lambda_on(&self, line: usize, circuits: impl Fn(usize) -> u32) -> f64 {
        let Line { leaf, traffic, host_limit } = &self.lines[line];
        let mut lambda = f64::MAX;
        let mut overloaded = traffic.len() + 1;
        loop {
            let (mut rate, mut bits, mut count) = (self.electrical_rates[*leaf], 0.0, 0);
            for &(peer, demand) in traffic {
                let capacity = self.circuit_rate * f64::from(circuits(peer));
                if demand * lambda > capacity {
                    rate += capacity;
                    bits += demand;
                    count += 1;
                }
            }
            // Because of rounding, a pair whose circuits exactly suffice can be counted again. The value is then final.
            if count == 0 || count >= overloaded {
                return lambda.min(*host_limit);
            }
            overloaded = count;
            lambda = rate / bits;
        }
    }

    /// Returns an upper bound for one-hop traffic over all topologies, from the best assignment of
    /// whole circuits to the ports of each leaf.
    ///
    /// It is tighter than (u·C + E) / largest row sum, because a circuit serves at most its pair's
    /// traffic, and both directions share it. `f64::MAX` without traffic.
    pub fn upper_bound(&self, fabric: &ReconfigurableFatTree) -> f64 {
        let mut bound = f64::MAX;
        for leaf in 0..self.leaves {
            let view = LeafView::new(self, fabric, leaf);
            let host_limit =
                self.lines[2 * leaf].host_limit.min(self.lines[2 * leaf + 1].host_limit);
            let mut high = bound.min(view.fluid_bound()).min(host_limit);
            if high == f64::MAX || view.may_reach(high) {
                bound = high;
                continue;
            }
            let mut low = 0.0;
            for _ in 0..50 {
                let lambda = f64::midpoint(low, high);
                if view.may_reach(lambda) {
                    low = lambda;
                } else {
                    high = lambda;
                }
            }
            bound = high;
        }
        bound
    }
}

struct LeafView {
    /// For each peer, (bits sent, bits received) and the set of reaches that may connect it, a bit for each.
    open: Vec<([f64; 2], u64)>,
    total: [f64; 2],
    /// Ports of each reach in units. A bound may connect the units of a port to different leaves, and the ends of a
    /// circuit that stays to others.
    ports: Vec<u32>,
    circuit_rate: f64,
    electrical_rate: f64,
}

impl LeafView {
    fn new(evaluator: &Evaluator, fabric: &ReconfigurableFatTree, leaf: usize) -> Self {
        let id = LeafId::from_index(leaf);
        let mut peers = BTreeMap::<usize, [f64; 2]>::new();
        for direction in 0..2 {
            for &(peer, bits) in evaluator.traffic(2 * leaf + direction) {
                peers.entry(peer).or_default()[direction] = bits;
            }
        }
        let total = [0, 1].map(|direction| peers.values().map(|bits| bits[direction]).sum());
        let mut open: Vec<([f64; 2], u64)> = Vec::new();
        for (peer, bits) in peers {
            let Some(pair) = LeafPair::new(id, LeafId::from_index(peer)) else { continue };
            let permitted =
                (0..fabric.reaches()).filter(|reach| fabric.permits_within(*reach, pair));
            let reaches = permitted.map(|reach| 1 << reach).sum::<u64>();
            if reaches > 0 {
                open.push((bits, reaches));
            }
        }
        let ports = (0..fabric.reaches())
            .map(|reach| fabric.ports_within(reach, id) * fabric.units_within(reach));
        let mut ports: Vec<u32> = ports.collect();
        let all = (1_u64 << (ports.len() - 1) << 1).wrapping_sub(1);
        if open.iter().all(|(_, reaches)| *reaches == all) {
            ports = vec![ports.iter().sum()];
        }
        Self {
            open,
            total,
            ports,
            circuit_rate: evaluator.circuit_rate,
            electrical_rate: evaluator.electrical_rates[leaf],
        }
    }

    fn fluid_bound(&self) -> f64 {
        let heaviest = self.total[0].max(self.total[1]);
        if heaviest <= 0.0 {
            return f64::MAX;
        }
        (f64::from(self.ports.iter().sum::<u32>()) * self.circuit_rate + self.electrical_rate)
            / heaviest
    }

    /// If a weighted sum of the overloads cannot vanish, they cannot both vanish.
    fn may_reach(&self, lambda: f64) -> bool {
        [1.0, 0.75, 0.5, 0.25, 0.0].into_iter().all(|sending| {
            let weights = [sending, 1.0 - sending];
            let load = lambda * (weights[0] * self.total[0] + weights[1] * self.total[1]);
            load * (1.0 - 1e-12) - self.best_relief(lambda, weights) <= self.electrical_rate
        })
    }

    /// The greedy choice is optimal: each further circuit to a peer gains no more than the previous one, and the sets of
    /// circuits for which there are ports form a matroid.
    fn best_relief(&self, lambda: f64, weights: [f64; 2]) -> f64 {
        let mut gains = Vec::new();
        for (bits, reaches) in &self.open {
            let mut rest = bits.map(|bits| lambda * bits);
            let own = self.ports.iter().enumerate().filter(|(reach, _)| reaches >> reach & 1 == 1);
            for _ in 0..own.map(|(_, ports)| ports).sum() {
                let carried = rest.map(|rest| rest.min(self.circuit_rate));
                let gain = weights[0] * carried[0] + weights[1] * carried[1];
                if gain <= 0.0 {
                    break;
                }
                gains.push((gain, *reaches));
                rest = [rest[0] - carried[0], rest[1] - carried[1]];
            }
        }
        gains.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        if let [ports] = self.ports[..] {
            return gains.iter().take(ports as usize).map(|(gain, _)| gain).sum();
        }
        let mut assigned = Assigned::to(&self.ports);
        gains.iter().filter(|(_, reaches)| assigned.add(*reaches)).map(|(gain, _)| gain).sum()
    }
}

/// Circuits of a leaf that are assigned to its ports, by the sets of reaches that may form them.
struct Assigned {
    free: Vec<u32>,
    circuits: Vec<BTreeMap<u64, u32>>,
    /// Reaches whose ports are all in use and cannot be freed.
    full: u64,
}

impl Assigned {
    fn to(ports: &[u32]) -> Self {
        Self { free: ports.to_vec(), circuits: vec![BTreeMap::new(); ports.len()], full: 0 }
    }

    fn add(&mut self, reaches: u64) -> bool {
        let mut seen = reaches & !self.full;
        // Each entry is a reach, and the circuit that leaves the previous reach for it.
        let mut queue: Vec<(usize, u64, Option<usize>)> =
            self.within(seen).map(|reach| (reach, reaches, None)).collect();
        let mut next = 0;
        while let Some(&(reach, _, _)) = queue.get(next) {
            if self.free[reach] > 0 {
                self.free[reach] -= 1;
                self.shift(&queue, next);
                return true;
            }
            for &circuit in self.circuits[reach].keys() {
                let others = circuit & !seen & !self.full;
                seen |= others;
                queue.extend(self.within(others).map(|other| (other, circuit, Some(next))));
            }
            next += 1;
        }
        self.full |= seen;
        false
    }

    fn within(&self, reaches: u64) -> impl Iterator<Item = usize> + use<> {
        (0..self.free.len()).filter(move |reach| reaches >> reach & 1 == 1)
    }

    fn shift(&mut self, queue: &[(usize, u64, Option<usize>)], last: usize) {
        let mut at = Some(last);
        while let Some(step) = at {
            let (reach, circuit, before) = queue[step];
            *self.circuits[reach].entry(circuit).or_default() += 1;
            if let Some(from) = before.map(|before| queue[before].0) {
                let count = self.circuits[from].get_mut(&circuit).expect("it was on this reach");
                *count -= 1;
                if *count == 0 {
                    self.circuits[from].remove(&circuit);
                }
            }
            at = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::spec;
    use super::*;
    use lightloom_units::Bytes;
    use proptest::prelude::*;

    fn lambda_by_bisection(
        fabric: &ReconfigurableFatTree,
        demand: &Demand,
        topology: &Topology,
    ) -> f64 {
        let (circuit, core) = (fabric.spec().circuit_rate.0 as f64, fabric.electrical_rate());
        let feasible = |lambda: f64| {
            let mut load = vec![0.0; 2 * fabric.leaves()];
            for (from, to, bytes) in demand.flows() {
                let carried = circuit * f64::from(topology.between(from.index(), to.index()));
                let over = (lambda * bytes.0 as f64 * 8.0 - carried).max(0.0);
                load[2 * from.index()] += over;
                load[2 * to.index() + 1] += over;
            }
            let mut hosts = vec![0.0; 2 * fabric.leaves()];
            for (from, to, bytes) in demand.flows() {
                hosts[2 * from.index()] += lambda * bytes.0 as f64 * 8.0;
                hosts[2 * to.index() + 1] += lambda * bytes.0 as f64 * 8.0;
            }
            load.iter().all(|load| *load <= core)
                && hosts.iter().all(|load| *load <= fabric.host_rate())
        };
        let (mut low, mut high) = (0.0, 1e9);
        for _ in 0..200 {
            let middle = f64::midpoint(low, high);
            if feasible(middle) { low = middle } else { high = middle }
        }
        low
    }

    proptest! {
        #[test]
        fn closed_form_matches_the_definition_and_stays_below_the_bound(
            entries in prop::collection::vec((0u32..6, 0u32..6, 1u64..1_000), 1..20),
            circuits in prop::collection::vec((0usize..6, 0usize..6), 0..12),
            gpus in 1u32..8,
        ) {
            let mut spec = spec(6, 4);
            spec.gpus_per_leaf = gpus;
            let fabric = ReconfigurableFatTree::new(spec).unwrap();
            let mut demand = Demand::none(6);
            for (from, to, megabytes) in entries {
                demand.add(LeafId(from), LeafId(to), Bytes(megabytes * 1_000_000));
            }
            prop_assume!(demand.total().0 > 0);
            let mut topology = Topology::dark(6);
            for (a, b) in circuits {
                if a != b && topology.degree(a) < 4 && topology.degree(b) < 4 {
                    topology.add(a, b);
                }
            }
            let evaluator = Evaluator::new(&fabric, &demand);
            let lambda = evaluator.lambda(&topology);
            let defined = lambda_by_bisection(&fabric, &demand, &topology);
            prop_assert!((lambda / defined - 1.0).abs() < 1e-9, "{lambda} {defined}");
            prop_assert!(lambda <= evaluator.upper_bound(&fabric) * (1.0 + 1e-9));
        }
    }
}
