// SPDX-License-Identifier: Apache-2.0
//! Computes the rate of a phase with multi-hop traffic as a maximum concurrent flow.
//!
//! ```text
//!   route   for given circuits: weighted paths over them and the packet core
//!   bound   for any circuits: prices of ports and uplinks that no circuits and no routes beat
//! ```
//!
//! Any set of prices `l` for ports and uplinks proves a bound. If every byte takes its cheapest path, the traffic costs
//! at most as much as all ports and uplinks together, so `lambda ≤ Σ capacity · l / Σ demand · cheapest path`. Each
//! direction of a circuit pays a share of the port prices at its ends; the two directions together pay the full price.

mod congestion;
mod exchange;
mod flows;
mod search;

use lightloom_fabric::fat_tree::{LeafPair, ReconfigurableFatTree};
use lightloom_fabric::plan::{CorePrice, PairShare, PortPrice, Prices, RoutePlan};
use lightloom_units::id::LeafId;

use super::evaluate::Evaluator;
use super::topology::Topology;
use congestion::Congestion;
use flows::{PricedFlow, PricedPath, Settled, settle};
pub use search::search;

/// Above this number of leaves, traffic takes one hop.
pub const LEAVES_MAX: usize = 128;

const TOLERANCE: f64 = 0.005;

/// Skip multi-hop routes if the one-hop rate reaches this share of the bound, or of the rate with routes.
pub(super) const NEAR: f64 = 0.99;

/// A path with a smaller share of a pair's traffic does not justify a switch rule.
const LEAST_WEIGHT: f64 = 1e-3;

const EVEN: f64 = 1e-8;

/// A rate and the routes that achieve it.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedRate {
    /// Number of times per second that the demand is served.
    pub lambda: f64,
    /// Empty if each pair uses its direct circuits and the core for the rest.
    pub routes: Vec<RoutePlan>,
}

/// An upper bound for all circuits and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct RateBound {
    /// Maximum number of times per second that the demand can be served.
    pub lambda: f64,
    /// The prices that prove the bound. `None` if GPU interfaces are the limit.
    pub prices: Option<Prices>,
    /// Whether the gap to the one-hop rate is large enough to try multi-hop routes.
    pub has_room: bool,
}

impl RateBound {
    /// Returns the best rate on the given circuits, with multi-hop routes if they pay off.
    pub fn rate(&self, evaluator: &Evaluator, topology: &Topology) -> RoutedRate {
        match self.has_room {
            true => rate(evaluator, topology, self.lambda),
            false => RoutedRate { lambda: evaluator.lambda(topology), routes: Vec::new() },
        }
    }
}

/// Like [`RateBound::rate`], for a given bound.
pub fn rate(evaluator: &Evaluator, topology: &Topology, bound: f64) -> RoutedRate {
    let direct = RoutedRate { lambda: evaluator.lambda(topology), routes: Vec::new() };
    if direct.lambda >= NEAR * bound {
        return direct;
    }
    match route(evaluator, topology, direct.lambda / NEAR) {
        Some(routed) if routed.lambda * NEAR >= direct.lambda => routed,
        _ => direct,
    }
}

/// Finds the fastest multi-hop routes. `None` if a leaf is unreachable, if there are more than
/// [`LEAVES_MAX`] leaves, or if the rate does not exceed `least`.
pub fn route(evaluator: &Evaluator, topology: &Topology, least: f64) -> Option<RoutedRate> {
    if topology.leaves() > LEAVES_MAX {
        return None;
    }
    let Settled { flows, proof, least_seconds, .. } = settled_on(evaluator, topology, 1.0 / least)?;
    if least_seconds * least >= 1.0 {
        return None;
    }
    Some(rate_of(evaluator, topology, &flows, &proof))
}

fn settled_on(evaluator: &Evaluator, topology: &Topology, most_seconds: f64) -> Option<Settled> {
    let unit = unit(evaluator)?;
    let network = network_of(evaluator, topology, unit);
    settle(network, flows_of(evaluator, unit), TOLERANCE, most_seconds)
}

fn network_of(evaluator: &Evaluator, topology: &Topology, unit: f64) -> Congestion {
    let leaves = topology.leaves();
    let mut network = Congestion::new(leaves + 1, 2 * leaves + 2 * topology.pairs().count());
    add_core(&mut network, evaluator, unit);
    for (at, (pair, count)) in topology.pairs().enumerate() {
        let seconds = unit / (f64::from(count) * evaluator.circuit_rate());
        let (a, b, thing) = (pair.a.index(), pair.b.index(), 2 * (leaves + at));
        network.add(a, b, vec![(thing, seconds)]);
        if !evaluator.has_halves {
            network.add(b, a, vec![(thing + 1, seconds)]);
        }
    }
    network
}

/// Bounds the rate by single leaves and, if that exceeds `reached`, by prices of all leaves.
pub fn bound(fabric: &ReconfigurableFatTree, evaluator: &Evaluator, reached: f64) -> RateBound {
    let mut best = RateBound { lambda: evaluator.host_bound(), prices: None, has_room: false };
    for line in 0..evaluator.lines() {
        let lambda = evaluator.rate_of_line(fabric, line);
        if lambda < best.lambda {
            let prices = Some(one_leaf(fabric, evaluator, line));
            best = RateBound { lambda, prices, has_room: false };
        }
    }
    if reached >= NEAR * best.lambda || fabric.leaves() > LEAVES_MAX {
        return best;
    }
    if let Some((lambda, prices)) =
        priced(fabric, evaluator).filter(|(bound, _)| *bound < best.lambda)
    {
        best = RateBound { lambda, prices: Some(prices), ..best };
    }
    RateBound { has_room: reached < NEAR * best.lambda, ..best }
}

fn unit(evaluator: &Evaluator) -> Option<f64> {
    let bits = (0..evaluator.lines()).flat_map(|line| evaluator.traffic(line));
    bits.map(|(_, bits)| *bits).reduce(f64::max)
}

fn flows_of(evaluator: &Evaluator, unit: f64) -> Vec<PricedFlow> {
    let mut flows = Vec::new();
    for from in 0..evaluator.lines() / 2 {
        for &(to, bits) in evaluator.traffic(2 * from) {
            flows.push(PricedFlow { from, to, traffic: bits / unit, paths: vec![] });
        }
    }
    flows
}

/// The core is the node after the leaves. Leaf i's uplinks to and from it are resources 2i and 2i+1. A receiving half
/// passes traffic to its sending half without a resource.
fn add_core(network: &mut Congestion, evaluator: &Evaluator, unit: f64) {
    let core = network.nodes() - 1;
    for leaf in 0..core {
        let rate = evaluator.electrical_rate_of(leaf);
        let (halved, sends) = (evaluator.has_halves, leaf < core / 2);
        if rate > 0.0 && (!halved || sends) {
            network.add(leaf, core, vec![(2 * leaf, unit / rate)]);
        }
        if rate > 0.0 && !(halved && sends) {
            network.add(core, leaf, vec![(2 * leaf + 1, unit / rate)]);
        }
        if halved && !sends {
            network.add(leaf, leaf - core / 2, Vec::new());
        }
    }
}

/// Traffic on a circuit uses fractions of a port at each end.
fn of_ports(fabric: &ReconfigurableFatTree, evaluator: &Evaluator, unit: f64) -> Congestion {
    let (leaves, reaches) = (fabric.leaves(), fabric.reaches());
    let mut network = Congestion::new(leaves + 1, (2 + reaches) * leaves);
    add_core(&mut network, evaluator, unit);
    for reach in 0..reaches {
        // The resource of each leaf's ports, and the seconds of one unit of traffic over all of them.
        let ports: Vec<(usize, f64)> = (0..leaves)
            .map(|leaf| {
                let ports = fabric.ports_within(reach, LeafId::from_index(leaf));
                let rate = f64::from(ports * fabric.units_within(reach)) * evaluator.circuit_rate();
                ((2 + reach) * leaves + leaf, unit / rate)
            })
            .collect();
        for a in 0..leaves {
            for b in a + 1..leaves {
                let pair = LeafPair { a: LeafId::from_index(a), b: LeafId::from_index(b) };
                let has_ports = ports[a].1.is_finite() && ports[b].1.is_finite();
                if has_ports && fabric.permits_within(reach, pair) {
                    match evaluator.has_halves {
                        true => drop(network.add(a, b, vec![ports[a], ports[b]])),
                        false => network.add_both_ways(a, b, &[ports[a], ports[b]]),
                    }
                }
            }
        }
    }
    network
}

fn priced(fabric: &ReconfigurableFatTree, evaluator: &Evaluator) -> Option<(f64, Prices)> {
    let unit = unit(evaluator)?;
    let network = of_ports(fabric, evaluator, unit);
    let Settled { least_seconds, proof, .. } =
        settle(network, flows_of(evaluator, unit), TOLERANCE, f64::INFINITY)?;
    Some((1.0 / least_seconds, prices_of(fabric, &proof)))
}

fn prices_of(fabric: &ReconfigurableFatTree, network: &Congestion) -> Prices {
    let leaves = fabric.leaves();
    let prices = network.prices();
    let ports = banks(fabric).flat_map(|(bank, reach)| {
        (0..leaves).filter_map(move |leaf| {
            let id = LeafId::from_index(leaf);
            let price =
                prices[(2 + reach) * leaves + leaf] / f64::from(fabric.ports_within(reach, id));
            price.is_finite().then_some(PortPrice { bank, leaf: id, price, sending: 0.5 })
        })
    });
    let core = (0..leaves).map(|leaf| {
        let (up, down) = (prices[2 * leaf], prices[2 * leaf + 1]);
        CorePrice { leaf: LeafId::from_index(leaf), up, down }
    });
    let banks: Vec<(u32, usize)> = banks(fabric).collect();
    let uneven = network.arcs.iter().enumerate().filter(|(at, arc)| {
        arc.back.is_some() && arc.from < arc.to && (network.share(*at) - 0.5).abs() > EVEN
    });
    let shares = uneven.flat_map(|(at, arc)| {
        let (share, own) = (network.share(at), arc.uses[0].0 / leaves - 2);
        let [from, to] = [arc.from, arc.to].map(LeafId::from_index);
        let banks = banks.iter().filter(move |(_, reach)| *reach == own);
        banks.map(move |(bank, _)| PairShare { bank: *bank, from, to, share })
    });
    Prices { ports: ports.collect(), core: core.collect(), shares: shares.collect() }
}

fn banks(fabric: &ReconfigurableFatTree) -> impl Iterator<Item = (u32, usize)> + '_ {
    let dark = fabric.banks_without_circuits();
    let banks = fabric.spec().banks.iter().enumerate();
    let mut first = 0;
    let with_first = banks.map(move |(bank, of)| {
        let own = first;
        first += of.switches;
        (bank, lightloom_units::id::OcsId(own))
    });
    let lit = with_first.filter(move |(bank, _)| !dark.contains(bank));
    lit.map(|(bank, ocs)| (u32::try_from(bank).unwrap_or(u32::MAX), fabric.reach_of(ocs)))
}

fn one_leaf(fabric: &ReconfigurableFatTree, evaluator: &Evaluator, line: usize) -> Prices {
    let (leaf, is_sent) = (LeafId::from_index(line / 2), line.is_multiple_of(2));
    let sending = if is_sent { 1.0 } else { 0.0 };
    let rate = evaluator.electrical_rate_of(line / 2) / evaluator.circuit_rate();
    let (up, down) = if is_sent { (rate, 0.0) } else { (0.0, rate) };
    let banks = banks(fabric).filter(|(_, reach)| fabric.ports_within(*reach, leaf) > 0);
    let ports = banks.map(|(bank, reach)| {
        let price = f64::from(fabric.units_within(reach));
        PortPrice { bank, leaf, price, sending }
    });
    Prices { ports: ports.collect(), core: vec![CorePrice { leaf, up, down }], shares: Vec::new() }
}

fn rate_of(
    evaluator: &Evaluator,
    topology: &Topology,
    flows: &[PricedFlow],
    network: &Congestion,
) -> RoutedRate {
    let core = topology.leaves();
    let mut load = vec![0.0; network.arcs.len()];
    let mut routes = Vec::new();
    let leaves = if evaluator.has_halves { core / 2 } else { core };
    for flow in flows {
        let paths = flow.paths.iter();
        let kept: Vec<&PricedPath> =
            paths.filter(|path| path.traffic >= LEAST_WEIGHT * flow.traffic).collect();
        let sum: f64 = kept.iter().map(|path| path.traffic).sum();
        for path in kept {
            let weight = path.traffic / sum;
            path.arcs.iter().for_each(|arc| load[*arc] += weight * flow.traffic);
            let hops = path.arcs.iter().map(|arc| &network.arcs[*arc]);
            let hops = hops.filter(|arc| !arc.uses.is_empty());
            let ends: Vec<usize> = hops.map(|arc| arc.to).collect();
            let core_hop = ends.iter().position(|node| *node == core);
            let via = ends[..ends.len() - 1].iter().filter(|node| **node != core);
            routes.push(RoutePlan {
                from: LeafId::from_index(flow.from),
                to: LeafId::from_index(flow.to % leaves),
                via: via.map(|end| LeafId::from_index(end % leaves)).collect(),
                core_hop: core_hop.and_then(|hop| u32::try_from(hop).ok()),
                weight,
            });
        }
    }
    routes.sort_by(|a, b| (a.from, a.to, &a.via).cmp(&(b.from, b.to, &b.via)));
    let seconds = network.arcs.iter().zip(load);
    let seconds = seconds.map(|(arc, load)| arc.uses.first().map_or(0.0, |of| of.1 * load));
    let lambda = 1.0 / seconds.fold(0.0, f64::max);
    RoutedRate { lambda: lambda.min(evaluator.host_bound()), routes }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::super::one_hop::{self, Effort};
    use super::super::testkit::{fabric, spec};
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::seed::Seed;
    use lightloom_units::{BitsPerSecond, Bytes};

    fn without_core(leaves: u32, ports: u32) -> ReconfigurableFatTree {
        let mut spec = spec(leaves, ports);
        spec.electrical.rate_per_leaf = BitsPerSecond::ZERO;
        ReconfigurableFatTree::new(spec).unwrap()
    }

    #[test]
    fn detour_carries_traffic_between_unconnected_leaves() {
        let fabric = without_core(3, 2);
        let mut topology = Topology::dark(3);
        topology.add(0, 1);
        topology.add(1, 2);
        let mut demand = Demand::none(3);
        demand.add(LeafId(0), LeafId(2), Bytes(50_000_000_000));
        let evaluator = Evaluator::new(&fabric, &demand);
        assert!(evaluator.lambda(&topology) <= 0.0);
        let routed = route(&evaluator, &topology, 0.0).unwrap();
        assert!((routed.lambda - 1.0).abs() < 1e-6, "400 Gb in one second: {}", routed.lambda);
        assert_eq!((routed.routes.len(), &routed.routes[0].via), (1, &vec![LeafId(1)]));
    }

    /// Two disjoint single-circuit paths and the core form the cut around leaf 0.
    #[test]
    fn flow_of_one_pair_equals_its_minimum_cut() {
        let fabric = fabric(4, 2);
        let mut topology = Topology::dark(4);
        for (a, b) in [(0, 1), (1, 3), (0, 2), (2, 3)] {
            topology.add(a, b);
        }
        let mut demand = Demand::none(4);
        demand.add(LeafId(0), LeafId(3), Bytes(110_000_000_000));
        let routed = route(&Evaluator::new(&fabric, &demand), &topology, 0.0).unwrap();
        assert!((routed.lambda - 1.0).abs() < 0.01, "880 Gb over 800 + 80: {}", routed.lambda);
    }

    #[test]
    fn all_to_all_rate_lies_between_the_mesh_and_its_bound() {
        let fabric = fabric(5, 8);
        let demand = shapes::dense(5, Seed(1));
        let evaluator = Evaluator::new(&fabric, &demand);
        let mesh = Topology::uniform_mesh(&fabric);
        let reached = evaluator.lambda(&mesh);
        let bound = bound(&fabric, &evaluator, 0.0).lambda;
        let rate = rate(&evaluator, &mesh, bound);
        assert!(rate.lambda >= reached && rate.lambda <= bound * (1.0 + 1e-9));
    }

    #[test]
    fn multi_hop_rate_lies_between_one_hop_and_the_bound() {
        for (leaves, shape) in
            [(8, shapes::dense as fn(usize, Seed) -> Demand), (8, shapes::weight_sync)]
        {
            let fabric = fabric(leaves, 4);
            let demand = shape(leaves as usize, Seed(2));
            let evaluator = Evaluator::new(&fabric, &demand);
            let one_hop = one_hop::plan(&fabric, &demand, Effort::default());
            let bound = bound(&fabric, &evaluator, 0.0).lambda;
            let routed = rate(&evaluator, &one_hop.topology, bound);
            assert!(routed.lambda >= one_hop.lambda && routed.lambda <= bound * (1.0 + 1e-9));
        }
    }

    #[test]
    fn bound_is_set_by_the_slowest_interfaces() {
        let mut spec = spec(4, 8);
        spec.gpus_per_leaf = 1;
        let fabric = ReconfigurableFatTree::new(spec).unwrap();
        let evaluator = Evaluator::new(&fabric, &shapes::dense(4, Seed(1)));
        let bound = bound(&fabric, &evaluator, 0.0);
        assert_eq!((bound.prices, bound.lambda), (None, evaluator.host_bound()));
    }

    #[test]
    fn large_network_uses_the_single_leaf_bound() {
        let fabric = fabric(80, 4);
        let mut demand = Demand::none(80);
        demand.add(LeafId(7), LeafId(9), Bytes(1_000_000_000));
        let bound = bound(&fabric, &Evaluator::new(&fabric, &demand), 0.0);
        assert!((bound.lambda - (4.0 * 400.0 + 160.0) / 8.0).abs() < 1e-6, "{}", bound.lambda);
        assert_eq!(bound.prices.unwrap().ports[0].leaf, LeafId(7));
    }
}
