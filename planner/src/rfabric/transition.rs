// SPDX-License-Identifier: Apache-2.0
//! Changes from one set of cross-connects to the next in stages, under traffic.
//!
//! A port must drop its old circuit before it can make a new one. In every stage, the affected
//! switches belong to one failure domain, which limits the effect of a failed stage. The remaining
//! circuits and the electrical core serve the *live* demand at no less than a floor. The live
//! demand is the demand of the next phase, because protecting the ending phase would often make the
//! last stage impossible.
//!
//! The method is greedy first fit. Each stage changes as many switches as the floor allows,
//! starting with those that lose the fewest circuits. If changing a single switch would violate the
//! floor, its change is split into independent slices.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_units::id::OcsId;

use super::evaluate::Evaluator;
use super::realise::topology_of;
use super::topology::Topology;

pub use lightloom_fabric::plan::Stage;

/// Splits the change from `before` to `after` into stages. During each stage, `live` keeps at least
/// the fraction `floor` of the lower of its rates before and after the change. `None` if even the smallest change
/// violates the floor.
pub fn stage(
    fabric: &ReconfigurableFatTree,
    before: &[CrossConnect],
    after: &[CrossConnect],
    live: &Evaluator,
    floor: f64,
) -> Option<Vec<Stage>> {
    let mut progress = Progress::new(fabric, before, live);
    let reference = progress.lambda().min(lambda_of(fabric, after, live));
    let mut pending = changes(before, after);
    pending.sort_by_key(|change| (change.remove.len(), first_ocs(change)));
    let mut stages = Vec::new();
    while !pending.is_empty() {
        let mut chosen = progress.best_domain(&pending, floor * reference);
        if chosen.is_empty() {
            let sliced: Vec<Stage> = pending.iter().flat_map(slices).collect();
            if sliced.len() == pending.len() {
                return None;
            }
            pending = sliced;
            continue;
        }
        chosen.sort_unstable();
        let mut stage = Stage::default();
        for at in chosen.into_iter().rev() {
            let change = pending.remove(at);
            stage.remove.extend(change.remove);
            stage.add.extend(change.add);
        }
        stage.remove.sort_unstable();
        stage.add.sort_unstable();
        progress.apply(&stage);
        stages.push(stage);
    }
    Some(stages)
}

/// Like [`stage`], but lowers the floor until there are stages. Also returns that floor.
pub fn stage_above_lower_floor(
    fabric: &ReconfigurableFatTree,
    before: &[CrossConnect],
    after: &[CrossConnect],
    live: &Evaluator,
    mut floor: f64,
) -> (Vec<Stage>, f64) {
    loop {
        match stage(fabric, before, after, live, floor) {
            Some(stages) => return (stages, floor),
            None if floor > 0.05 => floor /= 2.0,
            None => floor = 0.0,
        }
    }
}

/// Returns the rate of `live` in each stage, while the affected circuits are dark.
pub fn stage_lambdas(
    fabric: &ReconfigurableFatTree,
    before: &[CrossConnect],
    stages: &[Stage],
    live: &Evaluator,
) -> Vec<f64> {
    let mut progress = Progress::new(fabric, before, live);
    stages
        .iter()
        .map(|stage| {
            progress.darken(&stage.remove);
            let lambda = progress.lambda();
            progress.light(&stage.add);
            lambda
        })
        .collect()
}

/// Returns the circuits that carry traffic in each stage, while the affected circuits are dark.
pub fn stage_topologies(
    fabric: &ReconfigurableFatTree,
    before: &[CrossConnect],
    stages: &[Stage],
) -> Vec<Topology> {
    let mut now: BTreeSet<CrossConnect> = before.iter().copied().collect();
    stages
        .iter()
        .map(|stage| {
            for circuit in &stage.remove {
                now.remove(circuit);
            }
            let lit: Vec<CrossConnect> = now.iter().copied().collect();
            now.extend(&stage.add);
            topology_of(fabric, &lit)
        })
        .collect()
}

fn changes(before: &[CrossConnect], after: &[CrossConnect]) -> Vec<Stage> {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
    let mut by_switch = BTreeMap::<OcsId, Stage>::new();
    for circuit in old.difference(&new) {
        by_switch.entry(circuit.ocs).or_default().remove.push(**circuit);
    }
    for circuit in new.difference(&old) {
        by_switch.entry(circuit.ocs).or_default().add.push(**circuit);
    }
    by_switch.into_values().collect()
}

fn first_ocs(change: &Stage) -> OcsId {
    change.remove.iter().chain(&change.add).map(|circuit| circuit.ocs).min().unwrap_or_default()
}

fn slices(change: &Stage) -> Vec<Stage> {
    let circuits: Vec<(&CrossConnect, bool)> = change
        .remove
        .iter()
        .map(|circuit| (circuit, true))
        .chain(change.add.iter().map(|circuit| (circuit, false)))
        .collect();
    let mut slice_of: Vec<usize> = (0..circuits.len()).collect();
    let mut first_at_port = BTreeMap::new();
    for (at, (circuit, _)) in circuits.iter().enumerate() {
        for port in [circuit.a_port, circuit.b_port] {
            let other = *first_at_port.entry(port).or_insert(at);
            let (from, to) = (slice_of[at], slice_of[other]);
            for slice in &mut slice_of {
                if *slice == from {
                    *slice = to;
                }
            }
        }
    }
    let mut parts = BTreeMap::<usize, Stage>::new();
    for ((circuit, removed), slice) in circuits.into_iter().zip(slice_of) {
        let part = parts.entry(slice).or_default();
        if removed {
            part.remove.push(*circuit);
        } else {
            part.add.push(*circuit);
        }
    }
    parts.into_values().collect()
}

fn lambda_of(fabric: &ReconfigurableFatTree, circuits: &[CrossConnect], live: &Evaluator) -> f64 {
    live.lambda(&topology_of(fabric, circuits))
}

struct Progress<'a> {
    fabric: &'a ReconfigurableFatTree,
    live: &'a Evaluator,
    circuits: Topology,
    lambdas: Vec<f64>,
}

impl<'a> Progress<'a> {
    fn new(
        fabric: &'a ReconfigurableFatTree,
        before: &[CrossConnect],
        live: &'a Evaluator,
    ) -> Self {
        let circuits = topology_of(fabric, before);
        let lambdas = (0..live.lines()).map(|line| live.line_lambda(line, &circuits)).collect();
        Self { fabric, live, circuits, lambdas }
    }

    fn lambda(&self) -> f64 {
        self.lambdas.iter().copied().fold(f64::MAX, f64::min)
    }

    fn darken(&mut self, circuits: &[CrossConnect]) {
        for circuit in circuits {
            self.circuits.darken(self.fabric, circuit);
        }
        self.judge(circuits);
    }

    fn light(&mut self, circuits: &[CrossConnect]) {
        for circuit in circuits {
            self.circuits.light(self.fabric, circuit);
        }
        self.judge(circuits);
    }

    fn judge(&mut self, circuits: &[CrossConnect]) {
        let mut leaves: Vec<usize> =
            circuits.iter().flat_map(|circuit| self.fabric.ends_of(circuit)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        for line in leaves.into_iter().flat_map(|leaf| [2 * leaf, 2 * leaf + 1]) {
            self.lambdas[line] = self.live.line_lambda(line, &self.circuits);
        }
    }

    fn apply(&mut self, stage: &Stage) {
        self.darken(&stage.remove);
        self.light(&stage.add);
    }

    fn best_domain(&mut self, pending: &[Stage], floor_lambda: f64) -> Vec<usize> {
        let mut best: Vec<usize> = Vec::new();
        let mut best_size = 0;
        for domain in 0..self.fabric.spec().failure_domains {
            let (mut chosen, mut size) = (Vec::new(), 0);
            for (at, change) in pending.iter().enumerate() {
                if self.fabric.failure_domain(first_ocs(change)) != domain {
                    continue;
                }
                self.darken(&change.remove);
                if self.lambda() >= floor_lambda * (1.0 - 1e-9) {
                    chosen.push(at);
                    size += change.remove.len() + change.add.len();
                } else {
                    self.light(&change.remove);
                }
            }
            for at in &chosen {
                self.light(&pending[*at].remove);
            }
            if size > best_size {
                (best, best_size) = (chosen, size);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::super::one_hop::{self, Effort};
    use super::super::realise::realise;
    use super::super::testkit::{fabric, spec};
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::id::LeafId;
    use lightloom_units::seed::Seed;
    use lightloom_units::{BitsPerSecond, Bytes};

    fn two_phases() -> (ReconfigurableFatTree, Vec<CrossConnect>, Vec<CrossConnect>, Evaluator) {
        let fabric = fabric(16, 16);
        let (old, new) = (shapes::moe(16, Seed(1)), shapes::weight_sync(16, Seed(1)));
        let plan = |demand| one_hop::plan(&fabric, demand, Effort::default()).topology;
        let before = realise(&fabric, &plan(&old), &[]).cross_connects;
        let after = realise(&fabric, &plan(&new), &before).cross_connects;
        let live = Evaluator::new(&fabric, &new);
        (fabric, before, after, live)
    }

    #[test]
    fn stages_change_one_domain_at_a_time_above_the_floor() {
        let (fabric, before, after, live) = two_phases();
        let stages = stage(&fabric, &before, &after, &live, 0.75).unwrap();
        let mut now: BTreeSet<CrossConnect> = before.iter().copied().collect();
        for stage in &stages {
            let domains: BTreeSet<u32> = stage
                .remove
                .iter()
                .chain(&stage.add)
                .map(|circuit| fabric.failure_domain(circuit.ocs))
                .collect();
            assert_eq!(domains.len(), 1);
            for circuit in &stage.remove {
                assert!(now.remove(circuit));
            }
            now.extend(&stage.add);
        }
        assert_eq!(now, after.iter().copied().collect());
        let reference = lambda_of(&fabric, &before, &live).min(lambda_of(&fabric, &after, &live));
        for lambda in stage_lambdas(&fabric, &before, &stages, &live) {
            assert!(lambda >= 0.75 * reference * (1.0 - 1e-9));
        }
    }

    #[test]
    fn without_a_floor_each_domain_has_one_stage() {
        let (fabric, before, after, live) = two_phases();
        assert_eq!(stage(&fabric, &before, &after, &live, 0.0).unwrap().len(), 4);
        assert!(stage(&fabric, &before, &before, &live, 0.75).unwrap().is_empty());
    }

    #[test]
    fn no_stage_keeps_an_impossible_floor() {
        let mut spec = spec(4, 2);
        spec.electrical.rate_per_leaf = BitsPerSecond::ZERO;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let circuit = |a: u32, a_port, b: u32, b_port| CrossConnect {
            ocs: OcsId(0),
            a_port,
            b_port,
            a: LeafId(a),
            b: LeafId(b),
        };
        let before = [circuit(0, 0, 1, 2), circuit(0, 1, 2, 4), circuit(1, 3, 3, 6)];
        let after = [circuit(0, 1, 1, 3), circuit(0, 0, 2, 4), circuit(1, 2, 3, 6)];
        let mut demand = Demand::none(4);
        demand.add(LeafId(0), LeafId(1), Bytes(1_000));
        let live = Evaluator::new(&fabric, &demand);
        assert_eq!(stage(&fabric, &before, &after, &live, 0.75), None);
        assert!(stage(&fabric, &before, &after, &live, 0.0).is_some());
    }
}
