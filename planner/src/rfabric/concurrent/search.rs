// SPDX-License-Identifier: Apache-2.0
//! Searches for the best circuits for multi-hop routes.
//!
//! The search starts from the best one-hop circuits and from the rounded fractional circuits of the
//! bound. It moves single circuits, or exchanges the ends of two circuits of the same reach, while
//! the rate rises. With few leaves it tries all exchanges, else those that prices recommend.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;

use super::super::evaluate::Evaluator;
use super::super::topology::{Ports, Topology};
use super::flows::{Settled, settle};
use super::{
    LEAVES_MAX, NEAR, RateBound, TOLERANCE, exchange, flows_of, of_ports, settled_on, unit,
};

/// Above this number of leaves, only exchanges that prices recommend are tried.
const LEAVES_TRIED: usize = 8;

/// Single exchanges to try if several at once do not help.
const SINGLES: usize = 6;

const TRIES: u32 = 60;

/// Minimum relative gain of a change; smaller gains may be numerical errors.
const GAIN: f64 = 2.0 * TOLERANCE / 5.0;

/// Returns the best circuits found from these and from the rounded ones. `None` if there are too many leaves.
pub fn search(
    fabric: &ReconfigurableFatTree,
    evaluator: &Evaluator,
    from: &Topology,
    bound: &RateBound,
) -> Option<Topology> {
    if fabric.leaves() > LEAVES_MAX {
        return None;
    }
    let mut best: Option<CircuitSearch<'_>> = None;
    for topology in rounded(fabric, evaluator).into_iter().chain([from.clone()]) {
        let mut search = CircuitSearch::new(fabric, evaluator, bound.lambda, topology);
        match fabric.leaves() > LEAVES_TRIED {
            true => search.climb_by_prices(),
            false => search.climb(),
        }
        if best.as_ref().is_none_or(|best| search.reached > best.reached) {
            best = Some(search);
        }
        if best.as_ref().is_some_and(CircuitSearch::is_near) {
            break;
        }
    }
    best.map(|search| search.topology)
}

fn rounded(fabric: &ReconfigurableFatTree, evaluator: &Evaluator) -> Option<Topology> {
    let (leaves, unit) = (fabric.leaves(), unit(evaluator)?);
    let network = of_ports(fabric, evaluator, unit);
    let settled = settle(network, flows_of(evaluator, unit), TOLERANCE, f64::INFINITY)?;
    let arcs = settled.loads();
    let circuits = unit / (settled.seconds * evaluator.circuit_rate());
    let mut topology = Topology::bare(fabric);
    let mut ports = Ports::new(fabric, &topology);
    let mut rest = Vec::new();
    for (at, arc) in settled.proof.arcs.iter().enumerate() {
        // Only circuits use ports at both ends.
        if arc.uses.len() < 2 || arc.back.is_some_and(|back| back < at) {
            continue;
        }
        let (a, b, reach) = (arc.from, arc.to, arc.uses[0].0 / leaves - 2);
        let back = arc.back.map_or(0.0, |back| arcs[back]);
        let wanted = arcs[at].max(back) * circuits / f64::from(fabric.units_within(reach));
        for _ in 0..wanted as u32 {
            ports.join_within(reach, &mut topology, a, b);
        }
        rest.push((wanted.fract(), reach, a, b));
    }
    rest.sort_by(|x, y| y.0.total_cmp(&x.0).then((x.1, x.2, x.3).cmp(&(y.1, y.2, y.3))));
    for (_, reach, a, b) in rest {
        ports.join_within(reach, &mut topology, a, b);
    }
    Some(topology)
}

struct CircuitSearch<'a> {
    fabric: &'a ReconfigurableFatTree,
    evaluator: &'a Evaluator,
    bound: f64,
    topology: Topology,
    reached: f64,
    tries: u32,
    /// The routes on these circuits. `None` if one hop is faster.
    routes: Option<Settled>,
}

impl<'a> CircuitSearch<'a> {
    fn new(
        fabric: &'a ReconfigurableFatTree,
        evaluator: &'a Evaluator,
        bound: f64,
        topology: Topology,
    ) -> Self {
        let reached = evaluator.lambda(&topology);
        let (tries, routes) = (TRIES, None);
        let mut search = Self { fabric, evaluator, bound, topology, reached, tries, routes };
        if !search.is_near() {
            search.routes = settled_on(evaluator, &search.topology, f64::INFINITY);
            let routed = search.routes.as_ref().map_or(0.0, |routes| search.rate(routes));
            search.reached = search.reached.max(routed);
        }
        search
    }

    fn rate(&self, routes: &Settled) -> f64 {
        (1.0 / routes.seconds).min(self.evaluator.host_bound())
    }

    fn is_near(&self) -> bool {
        self.reached >= NEAR * self.bound
    }

    fn climb(&mut self) {
        while !self.is_near() {
            let around = self.neighbours();
            if !around.into_iter().any(|topology| self.offer(topology)) {
                return;
            }
        }
    }

    /// Makes many recommended exchanges at once, and fewer if they do not help together.
    fn climb_by_prices(&mut self) {
        let most = self.fabric.leaves() / 2;
        let mut batch = most;
        while !self.is_near() && self.tries > 0 {
            if self.routes.is_none() {
                self.routes = settled_on(self.evaluator, &self.topology, f64::INFINITY);
            }
            let Some(routes) = &self.routes else { return };
            let exchanges = exchange::exchanges(self.fabric, &self.topology, routes);
            let mut tried = None;
            let is_better = loop {
                let topology = exchange::made(self.fabric, &self.topology, &exchanges, batch);
                if tried.as_ref() != Some(&topology) && self.offer(topology.clone()) {
                    break true;
                }
                tried = Some(topology);
                batch /= 2;
                if batch <= 1 {
                    let mut single = exchanges.chunks(1).take(SINGLES);
                    break single.any(|one| {
                        self.offer(exchange::made(self.fabric, &self.topology, one, 1))
                    });
                }
            };
            if !is_better {
                return;
            }
            batch = (2 * batch.max(1)).min(most);
        }
    }

    fn offer(&mut self, topology: Topology) -> bool {
        let least = self.reached * (1.0 + GAIN);
        if self.tries == 0 || !self.may_serve(&topology, least) {
            return false;
        }
        self.tries -= 1;
        let direct = self.evaluator.lambda(&topology);
        if direct > least {
            (self.topology, self.reached, self.routes) = (topology, direct, None);
            return true;
        }
        let routes = settled_on(self.evaluator, &topology, 1.0 / least);
        let Some(routes) = routes else { return false };
        let reached = self.rate(&routes);
        let is_better = reached > least;
        if is_better {
            (self.topology, self.reached, self.routes) = (topology, reached, Some(routes));
        }
        is_better
    }

    fn may_serve(&self, topology: &Topology, lambda: f64) -> bool {
        (0..self.evaluator.lines()).all(|line| {
            let bits: f64 = self.evaluator.traffic(line).iter().map(|(_, bits)| bits).sum();
            let circuits = f64::from(topology.degree(line / 2)) * self.evaluator.circuit_rate();
            lambda * bits <= circuits + self.evaluator.electrical_rate_of(line / 2)
        })
    }

    fn neighbours(&self) -> Vec<Topology> {
        let leaves = self.fabric.leaves();
        let mut around = self.with_one_more(&self.topology, None);
        let circuits: Vec<(usize, usize, usize)> = (0..self.fabric.reaches())
            .flat_map(|reach| pairs(leaves).map(move |(a, b)| (reach, a, b)))
            .filter(|(reach, a, b)| self.topology.between_within(*reach, *a, *b) > 0)
            .collect();
        for (at, &(reach, a, b)) in circuits.iter().enumerate() {
            let mut without = self.topology.clone();
            without.remove(reach, a, b);
            let moved = self.with_one_more(&without, Some((a, b)));
            // The ends of a circuit may each join a leaf that has a free port.
            let both = moved.iter().flat_map(|one| self.with_one_more(one, Some((a, b))));
            let both: Vec<Topology> = both.collect();
            around.extend(moved.into_iter().chain(both));
            for &(other, c, d) in &circuits[at + 1..] {
                if other == reach {
                    around.extend(self.exchanged(&without, reach, [(a, b), (c, d)]));
                }
            }
        }
        around
    }

    /// Returns the circuits with each possible one in addition, except between the leaves `not`.
    fn with_one_more(&self, from: &Topology, not: Option<(usize, usize)>) -> Vec<Topology> {
        let pairs = pairs(from.leaves()).filter(|pair| Some(*pair) != not);
        let joined = pairs.filter_map(|(a, b)| {
            let mut topology = from.clone();
            Ports::new(self.fabric, from).join(&mut topology, a, b).then_some(topology)
        });
        joined.collect()
    }

    fn exchanged(
        &self,
        without: &Topology,
        reach: usize,
        [(a, b), (c, d)]: [(usize, usize); 2],
    ) -> Vec<Topology> {
        let mut exchanged = Vec::new();
        for ends in [[(a, c), (b, d)], [(a, d), (b, c)]] {
            let mut topology = without.clone();
            topology.remove(reach, c, d);
            let mut ports = Ports::new(self.fabric, &topology);
            let mut is_made = false;
            for (a, b) in ends {
                is_made |= a != b && ports.join_within(reach, &mut topology, a, b);
            }
            exchanged.extend(is_made.then_some(topology));
        }
        exchanged
    }
}

fn pairs(leaves: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..leaves).flat_map(move |a| (a + 1..leaves).map(move |b| (a, b)))
}
