// SPDX-License-Identifier: Apache-2.0
//! Lanes of phases: the hosts below each leaf, and the lit lanes between leaves.
//!
//! Phases run from GPU to GPU if the plan places ranks. Otherwise, they run between hosts that each
//! represent a leaf with the total rate of its GPUs.

use std::collections::BTreeMap;

use lightloom_engine::{LinkId, Route, VertexId};
use lightloom_fabric::fat_tree::LeafPair;
use lightloom_fabric::plan::{Rank, RoutePlan};
use lightloom_planner::rfabric::concurrent;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::topology::Topology;
use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::super::Context;
use crate::substrate::{Lane, LaneHop, OpticalCircuits, Substrate, both_ways};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) host: VertexId,
    pub(super) leaf: usize,
    up: LinkId,
}

#[derive(Clone)]
pub(crate) struct Leaves<'a> {
    pub(super) circuits: Option<&'a OpticalCircuits>,
    pub(super) count: usize,
    gpus: Vec<Option<End>>,
    cables: BTreeMap<LeafPair, Vec<Lane>>,
    lane_bytes: f64,
}

impl<'a> Leaves<'a> {
    pub(crate) fn of(substrate: &'a Substrate, ranks: &[Rank]) -> Self {
        let circuits = substrate.circuits.as_ref();
        let rings = substrate.rings.as_ref();
        let direct = rings.and_then(|rings| rings.fabric().dcn.direct());
        let rate = match (circuits, direct) {
            (Some(circuits), _) => circuits.network().circuit_unit().bytes_per_second(),
            (None, Some(network)) => network.leaf.link_rate.bytes_per_second(),
            (None, None) => 0.0,
        };
        Self {
            circuits,
            count: match circuits {
                Some(circuits) => circuits.network().leaves(),
                None => rings.map_or(0, |rings| {
                    let fabric = rings.fabric();
                    fabric.dcn.leaves(fabric.hbd.nodes()) as usize
                }),
            },
            gpus: ranks.iter().map(|rank| Self::end(substrate, rings?.vertex(rank.gpu))).collect(),
            cables: if direct.is_some() { cables(substrate) } else { BTreeMap::new() },
            lane_bytes: rate,
        }
    }

    /// Returns whether a plan chooses between circuits or cables, rather than switches between paths.
    pub(crate) fn have_lanes(&self) -> bool {
        self.circuits.is_some() || !self.cables.is_empty()
    }

    pub(super) fn end(substrate: &Substrate, host: VertexId) -> Option<End> {
        let rings = substrate.rings.as_ref()?;
        let leaf = rings.fabric().dcn.leaf_of(rings.gpu(host)?).index();
        Some(End { host, leaf, up: substrate.link_to_leaf(host)? })
    }

    pub(super) fn gpu(&self, place: u32) -> Option<End> {
        *self.gpus.get(place as usize)?
    }

    pub(super) fn joint(&self, leaf: usize) -> Option<End> {
        let circuits = self.circuits?;
        let [up, _] = circuits.interface(LeafId::from_index(leaf));
        Some(End { host: circuits.host(leaf), leaf, up })
    }

    /// If `hops` is empty, the switches choose the route.
    pub(super) fn way(
        &self,
        substrate: &Substrate,
        [from, to]: [End; 2],
        hops: &[LaneHop],
    ) -> Route {
        if hops.is_empty() {
            return substrate.route.clone();
        }
        let over = hops.iter().flat_map(|hop| match (hop.lane, self.circuits) {
            (Lane::Cable(link), _) if hop.from < hop.to => vec![link],
            (Lane::Cable(link), _) => vec![link.reverse()],
            (_, Some(circuits)) => circuits.links_of(hop),
            (_, None) => Vec::new(),
        });
        Route::Links(std::iter::once(from.up).chain(over).chain([to.up.reverse()]).collect())
    }

    fn bytes_per_second(&self, (lane, ends): LanePort) -> f64 {
        let network = self.circuits.map(OpticalCircuits::network);
        match (lane, network, ends[0].or(ends[1])) {
            (Lane::Core, Some(network), Some(leaf)) => {
                network.electrical_rate_of(LeafId::from_index(leaf)) / 8.0
            }
            (Lane::Circuit(circuit), Some(network), _) => {
                network.circuit_rate_of(circuit.ocs).bytes_per_second()
            }
            _ => self.lane_bytes,
        }
    }

    pub(super) fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        let circuits = self.circuits.into_iter();
        let circuits = circuits.flat_map(|all| all.circuits().flat_map(|one| all.links(one)));
        let cables = self.cables.values().flatten().filter_map(|lane| match lane {
            Lane::Cable(link) => Some(both_ways(*link)),
            Lane::Circuit(_) | Lane::Core => None,
        });
        let joint = (0..self.count).filter_map(|leaf| self.joint(leaf));
        let ends = self.gpus.iter().copied().flatten().chain(joint);
        circuits.chain(cables.flatten()).chain(ends.flat_map(|end| both_ways(end.up)))
    }
}

fn cables(substrate: &Substrate) -> BTreeMap<LeafPair, Vec<Lane>> {
    let mut cables = BTreeMap::<LeafPair, Vec<Lane>>::new();
    let Some(rings) = &substrate.rings else { return cables };
    for (at, link) in substrate.network.links().iter().enumerate() {
        let [Some(from), Some(to)] = [link.from, link.to].map(|end| rings.leaf_at(end)) else {
            continue;
        };
        if let Some(pair) = LeafPair::new(from, to).filter(|pair| pair.a == from) {
            cables.entry(pair).or_default().push(Lane::Cable(LinkId::from_index(at)));
        }
    }
    cables
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) own: u64,
    pub(super) of_leaves: u64,
}

/// Bytes over each sequence of lanes.
pub(super) type LaneShare = (Vec<LaneHop>, u64);
pub(super) type LaneShares = Vec<LaneShare>;

/// Planned routes, or the one-hop rate if there are none.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneDivision {
    pub(super) lambda: f64,
    pub(super) routes: Vec<RoutePlan>,
}

impl LaneDivision {
    /// Returns the seconds until all lanes have carried their shares, if traffic follows planned routes.
    pub(super) fn seconds<'s>(
        &self,
        leaves: &Leaves<'_>,
        shares: impl Iterator<Item = &'s LaneShare>,
    ) -> Option<f64> {
        let mut loads = BTreeMap::<LanePort, f64>::new();
        for (hops, size) in shares.filter(|_| !self.routes.is_empty()) {
            for port in hops.iter().flat_map(ports) {
                *loads.entry(port).or_default() += *size as f64;
            }
        }
        let seconds = loads.into_iter().map(|(port, bytes)| bytes / leaves.bytes_per_second(port));
        seconds.reduce(f64::max)
    }
}

/// One direction of a circuit or cable, or the link between the core and one leaf.
type LanePort = (Lane, [Option<usize>; 2]);

fn ports(&LaneHop { from, to, lane }: &LaneHop) -> Vec<LanePort> {
    match lane {
        Lane::Core => vec![(lane, [Some(from), None]), (lane, [None, Some(to)])],
        Lane::Circuit(_) | Lane::Cable(_) => vec![(lane, [Some(from), Some(to)])],
    }
}

#[derive(Clone, Debug)]
pub(super) struct Lanes {
    topology: Topology,
    /// By first and second leaf. Most lanes carry traffic in both directions and are listed twice.
    lanes: BTreeMap<[usize; 2], Vec<Lane>>,
    has_core: bool,
    /// Whether only packet switches connect the leaves. They choose the paths themselves.
    are_switched: bool,
    lane_bytes: f64,
}

impl Lanes {
    pub(super) fn now(leaves: &Leaves<'_>, context: &Context<'_>) -> Self {
        let network = leaves.circuits.map(OpticalCircuits::network);
        let mut topology = Topology::dark(network.map_or(leaves.count, |own| own.ends()));
        let mut lanes = BTreeMap::<[usize; 2], Vec<Lane>>::new();
        for circuit in context.circuits_up.iter().filter(|circuit| {
            let links = leaves.circuits.map(|all| all.links(circuit));
            links.into_iter().flatten().all(|link| context.carries(link))
        }) {
            let Some(network) = network else { continue };
            topology.light(network, circuit);
            let [a, b] = [circuit.a.index(), circuit.b.index()];
            // With a flow for each unit of the rate, interfaces that share by flow fill fast circuits as well.
            let units = network.units_of(circuit.ocs) as usize;
            for pair in [[a, b], [b, a]].into_iter().take(if network.is_one_way() { 1 } else { 2 })
            {
                lanes.entry(pair).or_default().extend(vec![Lane::Circuit(*circuit); units]);
            }
        }
        for (pair, cables) in &leaves.cables {
            let mut carrying = cables.clone();
            carrying.retain(|lane| match lane {
                Lane::Cable(link) => context.carries(*link) && context.carries(link.reverse()),
                Lane::Circuit(_) | Lane::Core => true,
            });
            let [a, b] = [pair.a.index(), pair.b.index()];
            lanes.extend([([a, b], carrying.clone()), ([b, a], carrying)]);
        }
        Self {
            topology,
            has_core: leaves.circuits.is_some_and(OpticalCircuits::has_core),
            are_switched: leaves.circuits.is_none(),
            lane_bytes: leaves.lane_bytes,
            lanes,
        }
    }

    fn between(&self, from: usize, to: usize) -> &[Lane] {
        self.lanes.get(&[from, to]).map_or(&[], Vec::as_slice)
    }

    fn hop(&self, hop: (usize, usize, bool)) -> &[Lane] {
        match hop {
            (from, to, false) => self.between(from, to),
            (_, _, true) if self.has_core => &[Lane::Core],
            (_, _, true) => &[],
        }
    }

    pub(super) fn carry(&self, route: &RoutePlan) -> bool {
        route.hops().all(|hop| !self.hop(hop).is_empty())
    }

    pub(super) fn division(
        &self,
        leaves: &Leaves<'_>,
        left: &BTreeMap<[usize; 2], u64>,
        planned: &[RoutePlan],
    ) -> LaneDivision {
        let evaluator = leaves.circuits.map(|circuits| {
            let mut demand = Demand::none(circuits.network().leaves());
            for ([from, to], left) in left {
                let is_joined = self.has_core || !self.between(*from, *to).is_empty();
                if is_joined || !planned.is_empty() {
                    let [from, to] = [from, to].map(|leaf| LeafId::from_index(*leaf));
                    demand.add(from, to, Bytes(*left));
                }
            }
            Evaluator::new(circuits.network(), &demand)
        });
        let lambda = evaluator.as_ref().map_or(0.0, |it| it.lambda(&self.topology));
        let routes = match planned.iter().all(|route| self.carry(route)) {
            true => planned.to_vec(),
            false => evaluator.as_ref().map_or_else(Vec::new, |it| {
                concurrent::rate(it, &self.topology, f64::INFINITY).routes
            }),
        };
        LaneDivision { lambda, routes }
    }

    /// Returns nothing if the pair has to wait for light. A share without lanes stays below its leaf, or switches choose
    /// its path.
    pub(super) fn divide(&self, left: Left, division: &LaneDivision) -> LaneShares {
        match division.routes.is_empty() {
            _ if left.from == left.to => vec![(Vec::new(), left.own)],
            true if self.are_switched => vec![(Vec::new(), left.own)],
            true => self.shares(left, division.lambda),
            false => self.over(left, &division.routes),
        }
    }

    fn over(&self, left: Left, routes: &[RoutePlan]) -> LaneShares {
        let mut shares = LaneShares::new();
        for route in routes {
            if (route.from.index(), route.to.index()) != (left.from, left.to) {
                continue;
            }
            let widths: Vec<usize> = route.hops().map(|hop| self.hop(hop).len()).collect();
            for Piece { share, lane_of } in pieces(&widths) {
                let size = (left.own as f64 * route.weight * share) as u64;
                let hops = route.hops().zip(lane_of).map(|(hop, lane)| LaneHop {
                    from: hop.0,
                    to: hop.1,
                    lane: self.hop(hop)[lane],
                });
                shares.push((hops.collect(), size));
            }
        }
        let sent: u64 = shares.iter().map(|(_, size)| size).sum();
        if let Some((_, first)) = shares.first_mut() {
            *first += left.own - sent.min(left.own);
        }
        shares.retain(|(_, size)| *size > 0);
        shares
    }

    /// Splits bytes over lanes. Circuits get as many bytes as they can carry until the planned end.
    fn shares(&self, left: Left, lambda: f64) -> LaneShares {
        let circuits = self.between(left.from, left.to);
        let carried = circuits.len() as f64 * self.lane_bytes / lambda;
        let carried = u128::from((carried.ceil() as u64).min(left.of_leaves));
        let of_this = carried * u128::from(left.own) / u128::from(left.of_leaves.max(1));
        let over_circuits = match (circuits.is_empty(), self.has_core) {
            (true, true) => 0,
            (true, false) => return Vec::new(),
            (false, false) => left.own,
            (false, true) => u64::try_from(of_this).unwrap_or(u64::MAX),
        };
        let over_core = [(Lane::Core, left.own - over_circuits)];
        let count = circuits.len() as u64;
        let over_circuits = circuits.iter().zip(0..count).map(|(lane, at)| {
            (*lane, over_circuits / count + u64::from(at < over_circuits % count))
        });
        let shares = over_circuits.chain(over_core).filter(|(_, size)| *size > 0);
        shares
            .map(|(lane, size)| (vec![LaneHop { from: left.from, to: left.to, lane }], size))
            .collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Piece {
    share: f64,
    lane_of: Vec<usize>,
}

/// Splits a route wherever a hop switches to its next lane. `widths` is the number of lanes per hop.
fn pieces(widths: &[usize]) -> Vec<Piece> {
    let mut cuts: Vec<f64> = Vec::new();
    for width in widths {
        cuts.extend((1..=*width).map(|lane| lane as f64 / *width as f64));
    }
    cuts.sort_by(f64::total_cmp);
    cuts.dedup_by(|a, b| (*a - *b).abs() < ONE_CUT);
    let mut from = 0.0;
    cuts.into_iter()
        .map(|to| {
            let middle = f64::midpoint(from, to);
            let lane_of = widths.iter().map(|width| (middle * *width as f64) as usize).collect();
            Piece { share: to - std::mem::replace(&mut from, to), lane_of }
        })
        .collect()
}

/// Merges cuts that differ only by rounding.
const ONE_CUT: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_hop_carry_equal_shares() {
        for widths in [vec![1], vec![3], vec![3, 2], vec![2, 3, 4], vec![5, 1, 4]] {
            let pieces = pieces(&widths);
            for (hop, width) in widths.iter().enumerate() {
                for lane in 0..*width {
                    let own = pieces.iter().filter(|piece| piece.lane_of[hop] == lane);
                    let share: f64 = own.map(|piece| piece.share).sum();
                    assert!((share * *width as f64 - 1.0).abs() < 1e-9, "{widths:?}: {pieces:?}");
                }
            }
        }
    }
}
