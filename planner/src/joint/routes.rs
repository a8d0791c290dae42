// SPDX-License-Identifier: Apache-2.0
//! Routes phases between directly connected leaves over up to four shortest paths per pair.
//!
//! The time of a phase is determined by the slowest of the busiest cable, the interfaces below the
//! busiest leaf, and the busiest GPU's interfaces. The bound is valid for all routes, because every
//! leaf sends all its traffic over its own cables, and each byte crosses at least as many cables as
//! on a shortest path.

use std::collections::{BTreeMap, VecDeque};

use lightloom_fabric::direct::{DirectNetwork, LeafCable};
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{PhasePlan, RoutePlan};
use lightloom_units::Picoseconds;
use lightloom_units::id::LeafId;

use super::network::Estimate;
use crate::rfabric::demand::Demand;
use crate::rfabric::phases::Phase;

const MOST_PATHS: usize = 4;

struct Graph<'a> {
    network: &'a DirectNetwork,
    cables: BTreeMap<LeafCable, u32>,
    neighbours: Vec<Vec<LeafId>>,
}

pub(super) fn plan(
    network: &DirectNetwork,
    faults: &FaultSet,
    phases: &[Phase],
    silent: impl Fn(&Phase) -> PhasePlan,
) -> Result<Vec<PhasePlan>, (String, String)> {
    let graph = Graph::new(network, faults);
    let routed = phases.iter().map(|phase| {
        let Routed { routes, seconds, least_seconds, .. } =
            graph.route(&phase.demand).map_err(|cut_off| (phase.name.clone(), cut_off))?;
        let (lambda, bound) = (1.0 / seconds, 1.0 / least_seconds);
        Ok(PhasePlan {
            topology: "shortest paths".to_owned(),
            demand_bytes: phase.demand.total(),
            routes,
            lambda,
            lambda_upper_bound: bound,
            gap: 1.0 - lambda / bound,
            duration_ps: Picoseconds::from_secs_f64(seconds),
            ..silent(phase)
        })
    });
    routed.collect()
}

pub(super) fn estimate(network: &DirectNetwork, faults: &FaultSet, phases: &[Phase]) -> Estimate {
    let graph = Graph::new(network, faults);
    let estimates = phases.iter().map(|phase| match graph.route(&phase.demand) {
        Ok(Routed { seconds, between, .. }) => Estimate { seconds, between },
        Err(_) => Estimate { seconds: f64::INFINITY, between: f64::INFINITY },
    });
    estimates.sum()
}

struct Routed {
    routes: Vec<RoutePlan>,
    seconds: f64,
    between: f64,
    least_seconds: f64,
}

impl<'a> Graph<'a> {
    fn new(network: &'a DirectNetwork, faults: &FaultSet) -> Self {
        let cables = network.working(faults);
        let mut neighbours = vec![Vec::new(); network.leaves() as usize];
        for LeafCable { a, b } in cables.keys() {
            neighbours[a.index()].push(*b);
            neighbours[b.index()].push(*a);
        }
        neighbours.iter_mut().for_each(|of_leaf| of_leaf.sort_unstable());
        Self { network, cables, neighbours }
    }

    fn distances(&self, to: LeafId) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.neighbours.len()];
        distances[to.index()] = Some(0);
        let mut next = VecDeque::from([(to, 0)]);
        while let Some((leaf, distance)) = next.pop_front() {
            for neighbour in &self.neighbours[leaf.index()] {
                let slot = &mut distances[neighbour.index()];
                if slot.is_none() {
                    *slot = Some(distance + 1);
                    next.push_back((*neighbour, distance + 1));
                }
            }
        }
        distances
    }

    fn path(
        &self,
        from: LeafId,
        to: LeafId,
        distances: &[Option<u32>],
        number: usize,
    ) -> Vec<LeafId> {
        let (mut path, mut number, mut at) = (vec![from], number, from);
        while at != to {
            let left = distances[at.index()];
            let mut nearer = self.neighbours[at.index()].clone();
            nearer.retain(|leaf| distances[leaf.index()].map(|distance| distance + 1) == left);
            at = nearer[(number + from.index() + to.index()) % nearer.len()];
            number /= nearer.len();
            path.push(at);
        }
        path
    }

    fn route(&self, demand: &Demand) -> Result<Routed, String> {
        let mut by_target: BTreeMap<LeafId, Vec<(LeafId, f64)>> = BTreeMap::new();
        for (from, to, bytes) in demand.flows() {
            by_target.entry(to).or_default().push((from, demand.bits(bytes)));
        }
        let mut routes = Vec::new();
        let mut loads: BTreeMap<(LeafId, LeafId), f64> = BTreeMap::new();
        let mut cable_bits = 0.0;
        for (to, flows) in by_target {
            let distances = self.distances(to);
            for (from, bits) in flows {
                let distance = distances[from.index()]
                    .ok_or_else(|| format!("no working cables connect {from} and {to}"))?;
                cable_bits += bits * f64::from(distance);
                let mut paths: Vec<Vec<LeafId>> = Vec::new();
                for number in 0..MOST_PATHS {
                    let path = self.path(from, to, &distances, number);
                    if !paths.contains(&path) {
                        paths.push(path);
                    }
                }
                let weight = 1.0 / paths.len() as f64;
                for path in paths {
                    for pair in path.windows(2) {
                        *loads.entry((pair[0], pair[1])).or_default() += bits * weight;
                    }
                    let via = path[1..path.len() - 1].to_vec();
                    routes.push(RoutePlan { from, to, via, core_hop: None, weight });
                }
            }
        }
        routes.sort_by_key(|route| (route.from, route.to));
        let busiest = loads.iter().map(|((a, b), bits)| bits / self.rate(*a, *b));
        let of_gpu = demand.interface_seconds(self.network.leaf.link_rate.0 as f64).unwrap_or(0.0);
        let rate_of_interfaces = self.network.interface_rate();
        let interfaces = demand.busiest_leaf_seconds(|_| rate_of_interfaces).max(of_gpu);
        let between = busiest.fold(0.0, f64::max);
        let all: f64 = self.cables.values().map(|count| 2.0 * f64::from(*count)).sum();
        let spread = cable_bits / (all * self.network.leaf.link_rate.0 as f64);
        let own = demand.busiest_leaf_seconds(|leaf| self.rate_of(leaf));
        let seconds = between.max(interfaces);
        Ok(Routed { routes, seconds, between, least_seconds: interfaces.max(own).max(spread) })
    }

    fn rate(&self, a: LeafId, b: LeafId) -> f64 {
        let cables = self.cables.get(&LeafCable { a: a.min(b), b: a.max(b) }).copied();
        f64::from(cables.unwrap_or(0)) * self.network.leaf.link_rate.0 as f64
    }

    fn rate_of(&self, leaf: LeafId) -> f64 {
        self.neighbours[leaf.index()].iter().map(|other| self.rate(leaf, *other)).sum()
    }
}
