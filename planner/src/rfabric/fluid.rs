// SPDX-License-Identifier: Apache-2.0
//! A fluid model of a phase, where flows share circuits, interfaces and the electrical core by
//! max-min fairness, weighted by size.
//!
//! The closed form assumes optimal sharing of the core. In this model, bytes are divided between circuits and core as
//! in the plan, and each flow gets its fair share, recomputed whenever a flow ends. When circuits change, the remaining
//! bytes are divided again. The result is never below the closed form; the difference is the cost of fair sharing.

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_fabric::plan::{Plan, RoutePlan};
use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::demand::Demand;
use super::evaluate::Evaluator;
use super::phases::Phase;
use super::realise::topology_of;
use super::topology::Topology;
use super::transition::stage_topologies;

#[derive(Clone, Debug)]
struct Flow {
    from: usize,
    to: usize,
    bits_left: f64,
    bits: f64,
    circuits: u32,
    route: Option<RoutePlan>,
}

#[derive(Clone, Copy)]
enum Link {
    Up = 0,
    Down = 1,
    Send = 2,
    Receive = 3,
}

/// Returns the duration of every phase in seconds, including its change of circuits. Infinite if bytes never arrive.
pub fn plan_seconds(fabric: &ReconfigurableFatTree, phases: &[Phase], plan: &Plan) -> Vec<f64> {
    let count = phases.len();
    let stage_seconds = fabric.spec().timing.total().as_secs_f64();
    (0..count)
        .map(|at| {
            let before = &plan.phases[(at + count - 1) % count];
            let change = plan
                .transitions
                .iter()
                .find(|change| change.to == plan.phases[at].name && change.from == before.name);
            let last = topology_of(fabric, &plan.phases[at].circuits);
            let last = (&last, plan.phases[at].routes.as_slice());
            let interfaces = phases[at].demand.interface_seconds(fabric.spec().gpu_rate.0 as f64);
            let (least, demand) =
                (interfaces.unwrap_or(0.0), phases[at].demand.clone().at_whole_rate(1));
            let Some(change) = change else {
                return seconds_in_steps(fabric, &demand, &[], last).max(least);
            };
            let slack = phases[at].slack.as_secs_f64();
            let steps: Vec<(f64, Topology)> =
                stage_topologies(fabric, &before.circuits, &change.stages)
                    .into_iter()
                    .enumerate()
                    .map(|(stage, topology)| {
                        let end = (stage + 1) as f64 * stage_seconds;
                        ((end - slack).clamp(0.0, stage_seconds), topology)
                    })
                    .collect();
            let exposed = change.exposed_ps.as_secs_f64();
            seconds_in_steps(fabric, &demand, &steps, last).max(exposed).max(least)
        })
        .collect()
}

/// Returns the seconds until the last byte arrives. Infinite if some bytes cannot arrive.
pub fn seconds(fabric: &ReconfigurableFatTree, demand: &Demand, topology: &Topology) -> f64 {
    seconds_in_steps(fabric, demand, &[], (topology, &[]))
}

fn seconds_in_steps(
    fabric: &ReconfigurableFatTree,
    demand: &Demand,
    steps: &[(f64, Topology)],
    last: (&Topology, &[RoutePlan]),
) -> f64 {
    let mut left = demand.clone();
    let mut elapsed = 0.0;
    for (seconds, topology) in steps.iter().filter(|(seconds, _)| *seconds > 0.0) {
        let (took, rest) = advance(fabric, &left, topology, &[], *seconds);
        if rest.total() == Bytes::ZERO {
            return elapsed + took;
        }
        elapsed += seconds;
        left = rest;
    }
    elapsed + advance(fabric, &left, last.0, last.1, f64::INFINITY).0
}

fn advance(
    fabric: &ReconfigurableFatTree,
    demand: &Demand,
    topology: &Topology,
    routes: &[RoutePlan],
    seconds: f64,
) -> (f64, Demand) {
    let mut flows = match routes {
        [] => divide(fabric, demand, topology),
        routes => over(demand, routes),
    };
    let mut elapsed = 0.0;
    while !flows.is_empty() && elapsed < seconds {
        let rates = rates(fabric, topology, &flows);
        let next = flows
            .iter()
            .zip(&rates)
            .map(|(flow, rate)| flow.bits_left / rate)
            .fold(f64::INFINITY, f64::min)
            .min(seconds - elapsed);
        if next.is_infinite() {
            elapsed = f64::INFINITY;
            break;
        }
        elapsed += next;
        for (flow, rate) in flows.iter_mut().zip(&rates) {
            flow.bits_left -= rate * next;
        }
        flows.retain(|flow| flow.bits_left > 1.0);
    }
    let mut left = Demand::none(demand.leaves());
    for flow in &flows {
        let bytes = Bytes((flow.bits_left / 8.0).ceil() as u64);
        left.add(LeafId::from_index(flow.from), LeafId::from_index(flow.to), bytes);
    }
    (elapsed, left)
}

fn over(demand: &Demand, routes: &[RoutePlan]) -> Vec<Flow> {
    let mut flows = Vec::new();
    for route in routes {
        let bits = demand.bytes(route.from, route.to).0 as f64 * 8.0 * route.weight;
        if bits > 1.0 {
            let (from, to, route) = (route.from.index(), route.to.index(), Some(route.clone()));
            flows.push(Flow { from, to, bits_left: bits, bits, circuits: 0, route });
        }
    }
    flows
}

/// Circuits get the bytes that they can carry until the planned end; the core gets the rest.
fn divide(fabric: &ReconfigurableFatTree, demand: &Demand, topology: &Topology) -> Vec<Flow> {
    let has_core = fabric.electrical_rate() > 0.0;
    let receiving = fabric.ends() - fabric.leaves();
    let mut reachable = Demand::none(demand.leaves());
    for (from, to, bytes) in demand.flows() {
        if has_core || topology.between(from.index(), to.index() + receiving) > 0 {
            reachable.add(from, to, bytes);
        }
    }
    let lambda = Evaluator::new(fabric, &reachable).lambda(topology);
    let circuit = fabric.circuit_unit().0 as f64;
    let mut flows = Vec::new();
    for (from, to, bytes) in demand.flows() {
        let (from, to, bits) = (from.index(), to.index(), bytes.0 as f64 * 8.0);
        let circuits = topology.between(from, to + receiving);
        let carried =
            if has_core { bits.min(f64::from(circuits) * circuit / lambda) } else { bits };
        if circuits > 0 {
            flows.push(Flow { from, to, bits_left: carried, bits: carried, circuits, route: None });
        }
        let rest = if circuits > 0 { bits - carried } else { bits };
        if rest > 1.0 {
            flows.push(Flow { from, to, bits_left: rest, bits: rest, circuits: 0, route: None });
        }
    }
    flows
}

fn rates(fabric: &ReconfigurableFatTree, topology: &Topology, flows: &[Flow]) -> Vec<f64> {
    let receiving = fabric.ends() - fabric.leaves();
    let mut capacity = vec![0.0; 4 * fabric.leaves()];
    for leaf in 0..fabric.leaves() {
        for link in [Link::Up, Link::Down] {
            capacity[4 * leaf + link as usize] =
                fabric.electrical_rate_of(LeafId::from_index(leaf));
        }
        for link in [Link::Send, Link::Receive] {
            capacity[4 * leaf + link as usize] = fabric.host_rate();
        }
    }
    let circuit = fabric.circuit_unit().0 as f64;
    let mut pairs: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let ways: Vec<Way> = flows
        .iter()
        .map(|flow| {
            let mut links =
                vec![4 * flow.from + Link::Send as usize, 4 * flow.to + Link::Receive as usize];
            if let Some(route) = &flow.route {
                for (a, b, is_core) in route.hops() {
                    if is_core {
                        links.extend([4 * a + Link::Up as usize, 4 * b + Link::Down as usize]);
                        continue;
                    }
                    links.push(*pairs.entry((a, b)).or_insert_with(|| {
                        capacity.push(f64::from(topology.between(a, b + receiving)) * circuit);
                        capacity.len() - 1
                    }));
                }
            } else if flow.circuits == 0 {
                links
                    .extend([4 * flow.from + Link::Up as usize, 4 * flow.to + Link::Down as usize]);
            }
            let limit = f64::from(flow.circuits) * circuit;
            let limit = if flow.circuits == 0 { f64::INFINITY } else { limit };
            Way { links, limit, weight: flow.bits }
        })
        .collect();
    max_min(&mut capacity, &ways)
}

struct Way {
    links: Vec<usize>,
    limit: f64,
    weight: f64,
}

/// Raises all rates together until a flow reaches its limit or a link is full. Deducts them from `capacity`.
fn max_min(capacity: &mut [f64], ways: &[Way]) -> Vec<f64> {
    let mut rates = vec![0.0; ways.len()];
    let mut rising: Vec<usize> = (0..ways.len()).collect();
    while !rising.is_empty() {
        let mut users = vec![0.0; capacity.len()];
        for flow in &rising {
            for link in &ways[*flow].links {
                users[*link] += ways[*flow].weight;
            }
        }
        let by_links = (0..capacity.len())
            .filter(|link| users[*link] > 0.0)
            .map(|link| capacity[link] / users[link])
            .fold(f64::INFINITY, f64::min);
        let by_limits = rising
            .iter()
            .map(|flow| (ways[*flow].limit - rates[*flow]) / ways[*flow].weight)
            .fold(f64::INFINITY, f64::min);
        let rise = by_links.min(by_limits).max(0.0);
        for flow in &rising {
            let Way { links, weight, .. } = &ways[*flow];
            rates[*flow] += rise * weight;
            for link in links {
                capacity[*link] -= rise * weight;
            }
        }
        rising.retain(|flow| {
            let Way { links, limit, .. } = &ways[*flow];
            rates[*flow] < limit * (1.0 - 1e-12) && links.iter().all(|link| capacity[*link] > 1e-3)
        });
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::super::one_hop::{self, Effort};
    use super::super::testkit::fabric;
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::seed::Seed;

    #[test]
    fn second_flow_on_a_core_link_ends_with_the_full_rate() {
        let fabric = fabric(3, 2);
        // One leaf sends 1 GB and 2 GB. The flows share the link until 2 GB have been sent, after
        // 0.2 s; the remaining 1 GB takes 0.1 s.
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(1), Bytes(1_000_000_000));
        demand.add(LeafId(0), LeafId(2), Bytes(2_000_000_000));
        let seconds = seconds(&fabric, &demand, &Topology::dark(3));
        assert!((seconds - 0.3).abs() < 1e-6, "{seconds}");
    }

    #[test]
    fn circuit_adds_its_rate_to_the_core() {
        let fabric = fabric(3, 2);
        let mut topology = Topology::dark(3);
        topology.add(0, 1);
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(1), Bytes(60_000_000_000));
        let seconds = seconds(&fabric, &demand, &topology);
        assert!((seconds - 1.0).abs() < 1e-6, "480 Gb over 400 + 80 Gb/s: {seconds}");
    }

    #[test]
    fn fluid_time_is_at_most_5_percent_above_the_closed_form() {
        for shape in [shapes::moe as fn(usize, Seed) -> Demand, shapes::weight_sync] {
            let fabric = fabric(16, 8);
            let demand = shape(16, Seed(1));
            let plan = one_hop::plan(&fabric, &demand, Effort::default());
            let closed = 1.0 / Evaluator::new(&fabric, &demand).lambda(&plan.topology);
            let fluid = seconds(&fabric, &demand, &plan.topology);
            assert!(fluid >= closed * (1.0 - 1e-6), "{fluid} {closed}");
            assert!(fluid <= closed * 1.05, "{fluid} {closed}");
        }
    }

    #[test]
    fn traffic_without_a_route_never_arrives() {
        let mut spec = super::super::testkit::spec(3, 2);
        spec.electrical.rate_per_leaf = lightloom_units::BitsPerSecond::ZERO;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(1), Bytes(1));
        assert!(seconds(&fabric, &demand, &Topology::dark(3)).is_infinite());
    }
}
