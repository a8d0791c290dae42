// SPDX-License-Identifier: Apache-2.0
//! Exchanges a few circuits on the switches after a fault has changed the traffic slightly.
//!
//! Each step adds a circuit from the slowest leaf to a starved peer. It uses free ports on one switch, or turns `a–x`
//! and `b–y` on one switch into `a–b` and `x–y` on the same ports. A step therefore changes at most two circuits, all
//! on one switch, and is kept only if it speeds up the slowest of its lines.

use std::collections::BTreeSet;

use lightloom_fabric::fat_tree::{CrossConnect, LeafPair, ReconfigurableFatTree};
use lightloom_units::id::{LeafId, OcsId};

use super::evaluate::Evaluator;
use super::realise::{PortBook, topology_of};
use super::topology::Topology;

const PEERS: usize = 6;

/// Stops when all phases reach the fraction `good` of their bounds, when steps do not help, or after `steps` steps.
pub(super) fn patch(
    fabric: &ReconfigurableFatTree,
    live: &[(&Evaluator, f64)],
    circuits: Vec<CrossConnect>,
    good: f64,
    steps: u32,
) -> Vec<CrossConnect> {
    let mut patch = Patch::new(fabric, live, circuits);
    for _ in 0..steps {
        let slowest = patch.slowest();
        if patch.shares[slowest] >= good || !patch.relieve(slowest) {
            break;
        }
    }
    let mut circuits = patch.circuits;
    circuits.sort_unstable();
    circuits
}

struct Patch<'a> {
    fabric: &'a ReconfigurableFatTree,
    live: &'a [(&'a Evaluator, f64)],
    lines: usize,
    circuits: Vec<CrossConnect>,
    topology: Topology,
    shares: Vec<f64>,
    books: Vec<PortBook<'a>>,
}

struct Step {
    remove: Vec<usize>,
    add: Vec<CrossConnect>,
}

impl<'a> Patch<'a> {
    fn new(
        fabric: &'a ReconfigurableFatTree,
        live: &'a [(&'a Evaluator, f64)],
        circuits: Vec<CrossConnect>,
    ) -> Self {
        let topology = topology_of(fabric, &circuits);
        let books = PortBook::all(fabric, &circuits);
        let lines = 2 * fabric.leaves();
        let shares = vec![0.0; live.len() * lines];
        let mut patch = Self { fabric, live, lines, circuits, topology, shares, books };
        patch.judge(&(0..fabric.leaves()).collect());
        patch
    }

    fn slowest(&self) -> usize {
        let least =
            (0..self.shares.len()).min_by(|a, b| self.shares[*a].total_cmp(&self.shares[*b]));
        least.unwrap_or(0)
    }

    fn judge(&mut self, leaves: &BTreeSet<usize>) {
        for (phase, (evaluator, bound)) in self.live.iter().enumerate() {
            for line in leaves.iter().flat_map(|leaf| [2 * leaf, 2 * leaf + 1]) {
                self.shares[phase * self.lines + line] =
                    evaluator.line_lambda(line, &self.topology) / bound;
            }
        }
    }

    fn slowest_of(&self, leaves: &BTreeSet<usize>) -> f64 {
        let lines = leaves.iter().flat_map(|leaf| [2 * leaf, 2 * leaf + 1]);
        let phases = 0..self.live.len();
        lines
            .flat_map(|line| phases.clone().map(move |phase| phase * self.lines + line))
            .map(|at| self.shares[at])
            .fold(f64::MAX, f64::min)
    }

    fn relieve(&mut self, slowest: usize) -> bool {
        let (phase, line) = (slowest / self.lines, slowest % self.lines);
        let leaf = line / 2;
        let (evaluator, bound) = self.live[phase];
        let lambda = self.shares[slowest] * bound;
        for peer in evaluator.starved_peers(line, &self.topology, lambda, PEERS) {
            let (a, b) = (LeafId::from_index(leaf.min(peer)), LeafId::from_index(leaf.max(peer)));
            if !self.fabric.permits(LeafPair { a, b }) {
                continue;
            }
            let free = self.books.iter_mut().find_map(|book| book.connect(a.index(), b.index()));
            if let Some(circuit) = free {
                // The port book already lists the circuit, so keep it even if it does not help.
                self.add(circuit);
                return true;
            }
            for step in self.exchanges(a, b) {
                if self.try_step(step) {
                    return true;
                }
            }
        }
        false
    }

    fn exchanges(&self, a: LeafId, b: LeafId) -> Vec<Step> {
        let [of_a, of_b] = [a, b].map(|leaf| self.movable_at(leaf));
        let mut steps = Vec::new();
        for &first in &of_a {
            for &second in &of_b {
                let (one, two) = (self.circuits[first], self.circuits[second]);
                if one.ocs != two.ocs || first == second {
                    continue;
                }
                let ((a_port, x, x_port), (b_port, y, y_port)) = (far(one, a), far(two, b));
                if x == b || y == a {
                    continue;
                }
                let mut add = vec![between(one.ocs, (a, a_port), (b, b_port))];
                let reach = self.fabric.reach_of(one.ocs);
                if !self.fabric.permits_within(reach, LeafPair { a: a.min(b), b: a.max(b) }) {
                    continue;
                }
                let rest = LeafPair::new(x, y);
                let rest = rest.filter(|rest| self.fabric.permits_within(reach, *rest));
                add.extend(rest.map(|_| between(one.ocs, (x, x_port), (y, y_port))));
                steps.push(Step { remove: vec![first, second], add });
            }
        }
        steps
    }

    /// Returns the indices of circuits with an end at `leaf`, without those that stay.
    fn movable_at(&self, leaf: LeafId) -> Vec<usize> {
        let staying = &self.fabric.spec().usable;
        let circuits = self.circuits.iter().enumerate();
        let own = circuits.filter(|(_, own)| [own.a, own.b].contains(&leaf));
        own.filter(|(_, own)| !staying.contains(own)).map(|(at, _)| at).collect()
    }

    fn try_step(&mut self, step: Step) -> bool {
        let old: Vec<CrossConnect> = step.remove.iter().map(|at| self.circuits[*at]).collect();
        let changed = old.iter().chain(&step.add);
        let touched: BTreeSet<usize> =
            changed.flat_map(|circuit| [circuit.a.index(), circuit.b.index()]).collect();
        let before = self.slowest_of(&touched);
        self.rejoin(&old, &step.add, &touched);
        if self.slowest_of(&touched) > before * (1.0 + 1e-9) {
            self.replace(step.remove, step.add);
            return true;
        }
        self.rejoin(&step.add, &old, &touched);
        false
    }

    fn rejoin(&mut self, old: &[CrossConnect], new: &[CrossConnect], touched: &BTreeSet<usize>) {
        for circuit in old {
            self.topology.darken(self.fabric, circuit);
        }
        for circuit in new {
            self.topology.light(self.fabric, circuit);
        }
        self.judge(touched);
    }

    fn add(&mut self, circuit: CrossConnect) {
        self.topology.light(self.fabric, &circuit);
        self.judge(&[circuit.a.index(), circuit.b.index()].into());
        self.circuits.push(circuit);
    }

    fn replace(&mut self, mut remove: Vec<usize>, add: Vec<CrossConnect>) {
        remove.sort_unstable();
        for at in remove.into_iter().rev() {
            let gone = self.circuits.swap_remove(at);
            self.books[gone.ocs.index()].release(gone);
        }
        for circuit in add {
            self.books[circuit.ocs.index()].occupy(circuit);
            self.circuits.push(circuit);
        }
    }
}

fn far(circuit: CrossConnect, leaf: LeafId) -> (u32, LeafId, u32) {
    match circuit.a == leaf {
        true => (circuit.a_port, circuit.b, circuit.b_port),
        false => (circuit.b_port, circuit.a, circuit.a_port),
    }
}

fn between(ocs: OcsId, one: (LeafId, u32), two: (LeafId, u32)) -> CrossConnect {
    let ((a, a_port), (b, b_port)) = if one.0 < two.0 { (one, two) } else { (two, one) };
    CrossConnect { ocs, a_port, b_port, a, b }
}
