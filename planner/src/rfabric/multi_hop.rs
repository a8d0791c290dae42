// SPDX-License-Identifier: Apache-2.0
//! Traffic that passes through other leaves: how fast a topology is when routes are free.
//!
//! The topology comes from the one-hop planner; here only the routing is optimised, as a concurrent flow
//! aggregated by source, with the electrical core as a node of its own:
//!
//! ```text
//!   maximise lambda − epsilon · (all flow)
//!   at each leaf v ≠ s:  inflow of s − outflow of s = lambda·d_sv
//!   sum over sources of flow on a pair ≤ C·n      up and down links of the core ≤ E
//! ```
//!
//! The small term prefers direct routes among equals. Hosts set their own limit, as everywhere.

use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, variable,
};
use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::id::LeafId;

use super::demand::Demand;
use super::evaluate::Evaluator;
use super::exact::ExactError;
use super::topology::Topology;

/// Leaves beyond which the linear program takes too long with the solver that is always there.
pub const LEAVES_MAX: usize = 24;

/// What free routing reaches on a topology.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routed {
    /// How often per second the demand is served.
    pub lambda: f64,
    /// Bytes carried over circuits ÷ bytes that left their source over circuits: 1 where every route
    /// is direct.
    pub mean_circuit_hops: f64,
}

/// Routes `demand` over `topology` as fast as possible.
///
/// # Errors
/// If the fabric has more than [`LEAVES_MAX`] leaves, or the solver fails.
pub fn route(
    fabric: &ReconfigurableFatTree,
    demand: &Demand,
    topology: &Topology,
) -> Result<Routed, ExactError> {
    let leaves = fabric.leaves();
    if leaves > LEAVES_MAX {
        return Err(ExactError::Solver(format!(
            "{leaves} leaves, and routes are optimised for at most {LEAVES_MAX}"
        )));
    }
    let evaluator = Evaluator::new(fabric, demand);
    // Rates in circuits and lambda in units of what one hop reaches, so that numbers are near one.
    let scale = evaluator.lambda(topology).max(evaluator.host_bound() * 1e-3);
    let mut program = Program::new(fabric, topology, evaluator.host_bound() / scale);
    for source in 0..leaves {
        program.add_source(demand, source, scale / evaluator.circuit_rate());
    }
    program.solve(scale)
}

/// An arc: from, to (`leaves` is the core), capacity in circuits, and what all sources send over it.
struct Arc {
    from: usize,
    to: usize,
    capacity: f64,
    load: Expression,
}

struct Program {
    leaves: usize,
    variables: ProblemVariables,
    constraints: Vec<good_lp::Constraint>,
    arcs: Vec<Arc>,
    lambda: Variable,
    all_flow: Expression,
    circuit_flow: Expression,
    departing: Expression,
}

impl Program {
    fn new(fabric: &ReconfigurableFatTree, topology: &Topology, lambda_max: f64) -> Self {
        let leaves = fabric.leaves();
        let core = |leaf| {
            let rate = fabric.electrical_rate_of(LeafId::from_index(leaf));
            rate / fabric.spec().circuit_rate.0 as f64
        };
        let mut arcs = Vec::new();
        let mut add = |from, to, capacity: f64| {
            if capacity > 0.0 {
                arcs.push(Arc { from, to, capacity, load: Expression::default() });
            }
        };
        for from in 0..leaves {
            for to in 0..leaves {
                add(from, to, f64::from(topology.between(from, to)));
            }
            add(from, leaves, core(from));
            add(leaves, from, core(from));
        }
        let mut variables = ProblemVariables::new();
        let lambda = variables.add(variable().min(0.0).max(lambda_max));
        Self {
            leaves,
            variables,
            constraints: Vec::new(),
            arcs,
            lambda,
            all_flow: Expression::default(),
            circuit_flow: Expression::default(),
            departing: Expression::default(),
        }
    }

    /// Flow variables of one source and their conservation.
    fn add_source(&mut self, demand: &Demand, source: usize, circuits_per_bit: f64) {
        let wanted: Vec<f64> = demand.flows().filter(|(from, ..)| from.index() == source).fold(
            vec![0.0; self.leaves + 1],
            |mut wanted, (_, to, bytes)| {
                wanted[to.index()] = demand.bits(bytes) * circuits_per_bit;
                wanted
            },
        );
        if wanted.iter().all(|wanted| *wanted <= 0.0) {
            return;
        }
        let mut kept = vec![Expression::default(); self.leaves + 1];
        for arc in self.arcs.iter_mut().filter(|arc| arc.to != source) {
            let flow = self.variables.add(variable().min(0.0).max(arc.capacity));
            arc.load += flow;
            kept[arc.to] += flow;
            kept[arc.from] -= flow;
            self.all_flow += flow;
            if arc.from < self.leaves && arc.to < self.leaves {
                self.circuit_flow += flow;
                if arc.from == source {
                    self.departing += flow;
                }
            }
        }
        for (node, kept) in kept.into_iter().enumerate().filter(|(node, _)| *node != source) {
            self.constraints.push(constraint!(kept == wanted[node] * self.lambda));
        }
    }

    fn solve(self, scale: f64) -> Result<Routed, ExactError> {
        let Self {
            variables, constraints, arcs, lambda, all_flow, circuit_flow, departing, ..
        } = self;
        let most: f64 = arcs.iter().map(|arc| arc.capacity).sum();
        let objective = lambda - all_flow * (1e-4 / most.max(1.0));
        let mut model = variables.maximise(objective).using(good_lp::solvers::microlp::microlp);
        for constraint in constraints {
            model.add_constraint(constraint);
        }
        for arc in arcs {
            model.add_constraint(constraint!(arc.load <= arc.capacity));
        }
        let solution = model.solve().map_err(|error| ExactError::Solver(error.to_string()))?;
        let departing = solution.eval(departing);
        let hops = if departing > 1e-9 { solution.eval(circuit_flow) / departing } else { 1.0 };
        Ok(Routed { lambda: solution.value(lambda) * scale, mean_circuit_hops: hops })
    }
}

#[cfg(test)]
mod tests {
    use super::super::one_hop::{self, Effort};
    use super::super::testing::{fabric, spec};
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::seed::Seed;
    use lightloom_units::{BitsPerSecond, Bytes};

    #[test]
    fn a_detour_carries_what_no_circuit_joins() {
        let mut spec = spec(3, 2);
        spec.electrical.rate_per_leaf = BitsPerSecond::ZERO;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let mut topology = Topology::dark(3);
        topology.add(0, 1);
        topology.add(1, 2);
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(2), Bytes(50_000_000_000));
        assert!(Evaluator::new(&fabric, &demand).lambda(&topology) <= 0.0);
        let routed = route(&fabric, &demand, &topology).unwrap();
        assert!((routed.lambda - 1.0).abs() < 1e-6, "400 Gb in one second: {}", routed.lambda);
        assert!((routed.mean_circuit_hops - 2.0).abs() < 1e-6);
    }

    #[test]
    fn free_routes_are_never_slower_than_one_hop() {
        for (leaves, shape) in
            [(8, shapes::dense as fn(usize, Seed) -> Demand), (8, shapes::weight_sync)]
        {
            let fabric = fabric(leaves, 4);
            let demand = shape(leaves as usize, Seed(2));
            let one_hop = one_hop::plan(&fabric, &demand, Effort::default());
            let routed = route(&fabric, &demand, &one_hop.topology).unwrap();
            assert!(routed.lambda >= one_hop.lambda * (1.0 - 1e-6));
            assert!(routed.mean_circuit_hops >= 1.0 - 1e-6);
        }
    }

    #[test]
    fn too_large_a_fabric_is_refused() {
        let error = route(&fabric(32, 4), &Demand::none(32), &Topology::dark(32)).unwrap_err();
        assert!(error.to_string().contains("at most 24"), "{error}");
    }
}
