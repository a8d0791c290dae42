// SPDX-License-Identifier: Apache-2.0
//! Integer programming for the planning problem, with a relaxation as bound. On networks with few
//! leaves, traffic can pass through other leaves. On larger networks, traffic takes one hop:
//!
//! ```text
//!   maximise lambda
//!   lambda·d_ij − e_ij ≤ C·n_ij            each directed pair with demand
//!   sum_j e_ij ≤ E,  sum_j e_ji ≤ E        electrical core, each leaf and direction
//!   sum_j n_ij ≤ ports of i,  n_ij = 0 where no circuit is permitted,  n_ij whole
//! ```
//!
//! Switches are interchangeable, and a variable per switch would make the problem intractable, so
//! the model omits them. [`realise`](super::realise) assigns circuits to switches afterwards.

use std::collections::BTreeMap;

use good_lp::solvers::SolutionStatus;
use good_lp::{Expression, ProblemVariables, Variable, constraint, variable};
use lightloom_fabric::fat_tree::{LeafPair, ReconfigurableFatTree};
use lightloom_units::id::LeafId;

use super::concurrent;
use super::demand::Demand;
use super::evaluate::Evaluator;
use super::one_hop::OneHopPlan;
use super::topology::Topology;
pub use crate::solver::{Limits, SOLVER, Solver};

/// An optimal plan, or the best one within the limits.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactPlan {
    /// The plan. Its bound comes from the solver if it finished, otherwise from the closed form.
    pub plan: OneHopPlan,
    /// Whether the solver timed out.
    pub hit_time_limit: bool,
    /// Whether plan and bound are limited to one-hop traffic.
    pub is_one_hop: bool,
}

/// Above this number of leaves, the model allows only one-hop traffic: routes need a variable per source and pair.
pub const LEAVES_ROUTED: usize = 6;

/// Finds the optimal plan with whole circuits. `None` if the solver finds nothing within its limits.
pub fn plan(
    fabric: &ReconfigurableFatTree,
    demand: &Demand,
    solver: Solver,
    limits: Limits,
) -> Option<ExactPlan> {
    let hops = if fabric.leaves() > LEAVES_ROUTED { Hops::One } else { Hops::Any };
    plan_over(fabric, demand, solver, limits, hops)
}

fn plan_over(
    fabric: &ReconfigurableFatTree,
    demand: &Demand,
    solver: Solver,
    limits: Limits,
    hops: Hops,
) -> Option<ExactPlan> {
    let evaluator = Evaluator::new(fabric, demand);
    let known = match hops {
        Hops::One => evaluator.upper_bound(fabric),
        Hops::Any => concurrent::bound(fabric, &evaluator, 0.0).lambda,
    };
    let model = Model::new(fabric, demand, known, hops);
    let solved = model.solve(solver, limits)?;
    let mut topology = Topology::bare(fabric);
    for (&(reach, (a, b)), count) in &solved.circuits {
        topology.add_within(reach, a, b, count.round() as u32);
    }
    let lambda = match hops {
        Hops::One => evaluator.lambda(&topology),
        Hops::Any => concurrent::rate(&evaluator, &topology, known).lambda,
    };
    let hit_time_limit = matches!(solved.status, SolutionStatus::TimeLimit);
    let proven = if hit_time_limit {
        known
    } else {
        known.min(lambda.max(solved.lambda) * (1.0 + f64::from(limits.gap)))
    };
    Some(ExactPlan {
        plan: OneHopPlan { topology, lambda, lambda_upper_bound: proven },
        hit_time_limit,
        is_one_hop: hops == Hops::One,
    })
}

fn heaviest_directions(demand: &Demand) -> BTreeMap<(usize, usize), f64> {
    let mut pairs = BTreeMap::new();
    for (from, to, bytes) in demand.flows() {
        let key = (from.min(to).index(), from.max(to).index());
        let entry: &mut f64 = pairs.entry(key).or_default();
        *entry = entry.max(demand.bits(bytes));
    }
    pairs
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Hops {
    One,
    Any,
}

/// Rates are in units of one circuit's rate, and lambda in units of the bound.
struct Model {
    variables: ProblemVariables,
    constraints: Vec<good_lp::Constraint>,
    lambda: Variable,
    circuits: BTreeMap<(usize, (usize, usize)), Variable>,
    scale: f64,
}

struct Solved {
    lambda: f64,
    circuits: BTreeMap<(usize, (usize, usize)), f64>,
    status: SolutionStatus,
}

impl Model {
    fn new(fabric: &ReconfigurableFatTree, demand: &Demand, scale: f64, hops: Hops) -> Self {
        let mut variables = ProblemVariables::new();
        let lambda = variables.add(variable().min(0.0).max(1.0));
        let mut model =
            Self { variables, constraints: Vec::new(), lambda, circuits: BTreeMap::new(), scale };
        let leaves = fabric.leaves();
        match hops {
            Hops::One => {
                let pairs: Vec<(usize, usize)> = heaviest_directions(demand).into_keys().collect();
                model.add_circuits(fabric, &pairs);
                model.add_traffic(fabric, demand);
            }
            Hops::Any => {
                let all = (0..leaves).flat_map(|a| (a + 1..leaves).map(move |b| (a, b)));
                model.add_circuits(fabric, &all.collect::<Vec<_>>());
                model.add_flows(fabric, demand);
            }
        }
        model
    }

    fn add_circuits(&mut self, fabric: &ReconfigurableFatTree, pairs: &[(usize, usize)]) {
        for reach in 0..fabric.reaches() {
            let mut degree = vec![Expression::default(); fabric.leaves()];
            let ports: Vec<u32> = (0..fabric.leaves())
                .map(|leaf| fabric.free_ports_within(reach, LeafId::from_index(leaf)))
                .collect();
            for &(a, b) in pairs {
                let pair = LeafPair::new(LeafId::from_index(a), LeafId::from_index(b));
                if !pair.is_some_and(|pair| fabric.permits_within(reach, pair)) {
                    continue;
                }
                let most = ports[a].min(ports[b]);
                let circuits = variable().min(0.0).max(f64::from(most)).integer();
                let circuits = self.variables.add(circuits);
                self.circuits.insert((reach, (a, b)), circuits);
                degree[a] += circuits;
                degree[b] += circuits;
            }
            for (ports, degree) in ports.into_iter().zip(degree) {
                self.constraints.push(constraint!(degree <= f64::from(ports)));
            }
        }
    }

    fn units(
        &self,
        fabric: &ReconfigurableFatTree,
        bare: &Topology,
        pair: (usize, usize),
    ) -> Expression {
        let own = (0..fabric.reaches()).filter_map(|reach| {
            let circuits = self.circuits.get(&(reach, pair))?;
            Some(f64::from(fabric.units_within(reach)) * *circuits)
        });
        own.sum::<Expression>() + f64::from(bare.between(pair.0, pair.1))
    }

    fn add_traffic(&mut self, fabric: &ReconfigurableFatTree, demand: &Demand) {
        let (bare, circuit_rate) = (Topology::bare(fabric), fabric.circuit_unit().0 as f64);
        let mut electrical = vec![Expression::default(); 2 * fabric.leaves()];
        for (from, to, bytes) in demand.flows() {
            let load = demand.bits(bytes) * self.scale / circuit_rate;
            let mut over_core = Expression::default();
            let core = core_of(fabric, from).min(core_of(fabric, to));
            if core > 0.0 {
                let share = self.variables.add(variable().min(0.0).max(core));
                electrical[2 * from.index()] += share;
                electrical[2 * to.index() + 1] += share;
                over_core += share;
            }
            let pair = (from.min(to).index(), from.max(to).index());
            let circuits = self.units(fabric, &bare, pair);
            self.constraints.push(constraint!(load * self.lambda <= circuits + over_core));
        }
        for (line, sum) in electrical.into_iter().enumerate() {
            let core = core_of(fabric, LeafId::from_index(line / 2));
            self.constraints.push(constraint!(sum <= core));
        }
    }

    fn add_flows(&mut self, fabric: &ReconfigurableFatTree, demand: &Demand) {
        let (leaves, rate) = (fabric.leaves(), fabric.circuit_unit().0 as f64);
        let bare = Topology::bare(fabric);
        let core: Vec<f64> =
            (0..leaves).map(|leaf| core_of(fabric, LeafId::from_index(leaf))).collect();
        let arcs: Vec<(usize, usize)> = (0..=leaves)
            .flat_map(|a| (0..=leaves).map(move |b| (a, b)))
            .filter(|(a, b)| a != b && ((*a).max(*b) < leaves || core[*a.min(b)] > 0.0))
            .collect();
        let most: Vec<Expression> = arcs
            .iter()
            .map(|(a, b)| match a.max(b) == &leaves {
                true => Expression::from(core[*a.min(b)]),
                false => self.units(fabric, &bare, (*a.min(b), *a.max(b))),
            })
            .collect();
        let mut load = vec![Expression::default(); arcs.len()];
        for source in 0..leaves {
            let mut kept = vec![Expression::default(); leaves + 1];
            for (load, &(a, b)) in load.iter_mut().zip(&arcs).filter(|(_, arc)| arc.1 != source) {
                let flow = self.variables.add(variable().min(0.0));
                *load += flow;
                kept[b] += flow;
                kept[a] -= flow;
            }
            for (to, kept) in kept.into_iter().enumerate().filter(|(to, _)| *to != source) {
                let ends = [source, to].map(LeafId::from_index);
                let sent =
                    if to < leaves { demand.bits(demand.bytes(ends[0], ends[1])) } else { 0.0 };
                let wanted = sent * self.scale / rate;
                self.constraints.push(constraint!(kept == wanted * self.lambda));
            }
        }
        for (load, most) in load.into_iter().zip(most) {
            self.constraints.push(constraint!(load <= most));
        }
    }

    fn solve(self, solver: Solver, limits: Limits) -> Option<Solved> {
        let Self { variables, constraints, lambda, circuits, scale } = self;
        let solution = solver.solve(variables.maximise(lambda), constraints, limits)?;
        Some(Solved {
            lambda: solution.value(lambda) * scale,
            circuits: circuits.iter().map(|(pair, n)| (*pair, solution.value(*n))).collect(),
            status: solution.status(),
        })
    }
}

/// Returns the rate of a leaf through the core, in units of a circuit.
fn core_of(fabric: &ReconfigurableFatTree, leaf: LeafId) -> f64 {
    fabric.electrical_rate_of(leaf) / fabric.circuit_unit().0 as f64
}

#[cfg(test)]
mod tests {
    use super::super::one_hop::{self, Effort};
    use super::super::testkit::{fabric, spec};
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::seed::Seed;
    use lightloom_units::{BitsPerSecond, Bytes};
    use proptest::prelude::*;

    /// At a given rate, each pair independently needs ceil(lambda·max(d_ij, d_ji)/C) circuits. If all banks have the same
    /// reach, a rate is feasible exactly if every leaf has enough ports (ATRO, arXiv 2507.13717, uses the same fact). The
    /// search covers only the rates beyond which some pair needs another circuit.
    fn plan_without_core(fabric: &ReconfigurableFatTree, demand: &Demand) -> Option<OneHopPlan> {
        let pairs = heaviest_directions(demand);
        for &(a, b) in pairs.keys() {
            let (a, b) = (LeafId::from_index(a), LeafId::from_index(b));
            if !LeafPair::new(a, b).is_some_and(|pair| fabric.permits(pair)) {
                return None;
            }
        }
        let circuit_rate = fabric.spec().circuit_rate.0 as f64;
        let ports: Vec<u32> =
            (0..fabric.leaves()).map(|leaf| fabric.free_ports(LeafId::from_index(leaf))).collect();
        let mut rates: Vec<f64> = pairs
            .values()
            .flat_map(|bits| {
                (1..=fabric.optical_ports())
                    .map(move |count| f64::from(count) * circuit_rate / bits)
            })
            .collect();
        rates.sort_by(f64::total_cmp);
        let feasible = |lambda: f64| {
            let needed = needed_circuits(fabric.leaves(), &pairs, lambda, circuit_rate);
            (0..fabric.leaves()).all(|leaf| needed.degree(leaf) <= ports[leaf])
        };
        let reached = rates.partition_point(|rate| feasible(*rate));
        let lambda = if reached == 0 { 0.0 } else { rates[reached - 1] };
        let topology = needed_circuits(fabric.leaves(), &pairs, lambda, circuit_rate);
        let lambda = lambda.min(Evaluator::new(fabric, demand).lambda(&topology));
        Some(OneHopPlan { topology, lambda, lambda_upper_bound: lambda })
    }

    fn needed_circuits(
        leaves: usize,
        pairs: &BTreeMap<(usize, usize), f64>,
        lambda: f64,
        circuit_rate: f64,
    ) -> Topology {
        let mut topology = Topology::dark(leaves);
        for (&(a, b), bits) in pairs {
            // A pair that exactly fills its circuits must not need another one because of rounding.
            let circuits = lambda * bits / circuit_rate;
            topology.add_many(a, b, (circuits - 1e-9).ceil().max(0.0) as u32);
        }
        topology
    }

    #[test]
    fn heuristic_is_within_one_percent_of_the_proven_bound() {
        for (leaves, seed) in [(16, 0), (16, 1), (32, 0), (32, 1), (64, 1)] {
            for shape in [shapes::moe, shapes::weight_sync] {
                let fabric = fabric(leaves, leaves / 2);
                let demand = shape(leaves as usize, Seed(seed));
                let limits = Limits { gap: 1e-3, seconds: 60.0 };
                let exact = plan(&fabric, &demand, Solver::Microlp, limits).unwrap();
                let heuristic = one_hop::plan(&fabric, &demand, Effort::default());
                let gap = one_hop::gap(heuristic.lambda, exact.plan.lambda_upper_bound);
                assert!(gap <= 0.01, "{leaves} leaves, seed {seed}: gap {gap}");
            }
        }
    }

    /// Like [`shapes::moe`] for one direction of one layer, so that sending and receiving are independent.
    #[cfg(feature = "highs")]
    fn moe_one_way(leaves: usize, seed: Seed) -> Demand {
        let mut stream = seed.stream("shape.moe_one_way", leaves as u64);
        let mut demand = Demand::none(leaves);
        for from in 0..leaves {
            for to in (from / 8 * 8..leaves.min(from / 8 * 8 + 8)).filter(|to| *to != from) {
                let size = Bytes((shapes::log_normal(&mut stream, 0.6) * 1e9) as u64);
                demand.add(LeafId::from_index(from), LeafId::from_index(to), size);
            }
        }
        for from in 0..leaves {
            let next = LeafId::from_index((from + 1) % leaves);
            demand.add(LeafId::from_index(from), next, Bytes(200_000_000));
        }
        demand
    }

    /// HiGHS (one thread, time limited) is the oracle where microlp is too slow.
    #[cfg(feature = "highs")]
    #[test]
    fn heuristic_is_within_one_percent_of_highs_up_to_64_leaves() {
        type Shape = fn(usize, Seed) -> Demand;
        // With few ports, one-directional demand leaves too many choices for the local search.
        let shapes: [(Shape, f64); 3] =
            [(shapes::moe, 0.01), (moe_one_way, 0.03), (shapes::weight_sync, 0.01)];
        for leaves in [16, 32, 64] {
            for ((shape, most_at_16), seed) in
                shapes.into_iter().flat_map(|shape| (0..3).map(move |seed| (shape, seed)))
            {
                let most = if leaves == 16 { most_at_16 } else { 0.01 };
                let fabric = fabric(leaves, leaves / 2);
                let demand = shape(leaves as usize, Seed(seed));
                let limits = Limits { gap: 1e-3, seconds: 30.0 };
                let exact = plan(&fabric, &demand, Solver::Highs, limits).unwrap();
                let heuristic = one_hop::plan(&fabric, &demand, Effort::default());
                assert!(heuristic.lambda <= exact.plan.lambda_upper_bound * (1.0 + 1e-6));
                if !exact.hit_time_limit {
                    let gap = one_hop::gap(heuristic.lambda, exact.plan.lambda_upper_bound);
                    assert!(gap <= most, "{leaves} leaves, seed {seed}: gap {gap}");
                }
            }
        }
    }

    #[cfg(feature = "highs")]
    #[test]
    fn both_solvers_find_the_same_optimum() {
        let fabric = fabric(12, 8);
        for seed in 0..3 {
            let demand = shapes::weight_sync(12, Seed(seed));
            let solve = |solver| plan(&fabric, &demand, solver, Limits::default()).unwrap();
            let (ours, theirs) = (solve(Solver::Microlp), solve(Solver::Highs));
            let ratio = ours.plan.lambda / theirs.plan.lambda;
            assert!((ratio - 1.0).abs() < 1e-3, "seed {seed}: {ratio}");
        }
    }

    #[test]
    fn solver_marks_the_plan_it_returns_at_its_time_limit() {
        let fabric = fabric(24, 12);
        let demand = shapes::dense(24, Seed(1));
        let limits = Limits { gap: 1e-6, seconds: 1.0 };
        if let Some(exact) = plan(&fabric, &demand, Solver::Microlp, limits) {
            assert!(exact.hit_time_limit, "a dense demand on 24 leaves takes longer");
            assert!(exact.plan.lambda <= exact.plan.lambda_upper_bound);
        }
    }

    fn best_by_enumeration(fabric: &ReconfigurableFatTree, demand: &Demand) -> f64 {
        fn extend(
            pairs: &[(usize, usize)],
            fabric: &ReconfigurableFatTree,
            evaluator: &Evaluator,
            topology: &mut Topology,
        ) -> f64 {
            let Some((&(a, b), rest)) = pairs.split_first() else {
                return evaluator.lambda(topology);
            };
            let mut best = extend(rest, fabric, evaluator, topology);
            let ports = fabric.optical_ports();
            if topology.degree(a) < ports && topology.degree(b) < ports {
                topology.add(a, b);
                best = best.max(extend(pairs, fabric, evaluator, topology));
                topology.remove(0, a, b);
            }
            best
        }
        let leaves = fabric.leaves();
        let pairs: Vec<(usize, usize)> =
            (0..leaves).flat_map(|a| (a + 1..leaves).map(move |b| (a, b))).collect();
        let evaluator = Evaluator::new(fabric, demand);
        extend(&pairs, fabric, &evaluator, &mut Topology::dark(leaves))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_method_agrees_with_enumeration_on_tiny_fabrics(
            entries in prop::collection::vec((0u32..4, 0u32..4, 1u64..1_000), 1..10),
            core_gbps in prop_oneof![Just(0u64), Just(100), Just(400)],
        ) {
            let mut spec = spec(4, 4);
            spec.electrical.rate_per_leaf = BitsPerSecond::from_gbps(core_gbps);
            let fabric = ReconfigurableFatTree::new(spec).unwrap();
            let mut demand = Demand::none(4);
            for (from, to, megabytes) in entries {
                demand.add(LeafId(from), LeafId(to), Bytes(megabytes * 1_000_000));
            }
            prop_assume!(demand.total().0 > 0);
            let best = best_by_enumeration(&fabric, &demand);
            let solver = (Solver::Microlp, Limits::default());
            let exact = plan_over(&fabric, &demand, solver.0, solver.1, Hops::One).unwrap();
            let routed = plan(&fabric, &demand, Solver::Microlp, Limits::default()).unwrap();
            prop_assert!(routed.plan.lambda_upper_bound >= exact.plan.lambda * (1.0 - 1e-6));
            prop_assert!((exact.plan.lambda / best - 1.0).abs() < 1e-3, "{} {best}", exact.plan.lambda);
            let heuristic = one_hop::plan(&fabric, &demand, Effort::default());
            prop_assert!(heuristic.lambda <= best * (1.0 + 1e-9));
            prop_assert!(best <= heuristic.lambda_upper_bound * (1.0 + 1e-9));
            if core_gbps == 0 {
                let searched = plan_without_core(&fabric, &demand).unwrap();
                prop_assert!((searched.lambda / best - 1.0).abs() < 1e-6, "{} {best}", searched.lambda);
                let counted = Evaluator::new(&fabric, &demand).lambda(&searched.topology);
                prop_assert!((counted / searched.lambda - 1.0).abs() < 1e-6);
            }
        }
    }
}
