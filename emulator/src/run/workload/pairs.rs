// SPDX-License-Identifier: Apache-2.0
//! One phase's bytes on their way: which flow of which pair of leaves takes which lane.
//!
//! A pair's bytes are divided as the planner divides them (`planner::rfabric::evaluate`): its circuits
//! carry what they can until the phase's planned end, the electrical core the rest. Whenever circuits
//! come or go, what is left is divided anew; a flow whose share hardly changes goes on undisturbed. A phase whose plan has
//! routes over several hops takes these, by their weights, while all their circuits have light, and else routes found anew.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{BatchId, EngineError, FlowId, FlowSpec, LinkId, Route};
use lightloom_fabric::fat_tree::{CrossConnect, LeafPair};
use lightloom_fabric::plan::RoutePlan;
use lightloom_planner::rfabric::concurrent;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::topology::Topology;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, SimTime};

use super::super::{Context, Owner};
use crate::substrate::{Lane, LaneHop, OpticalCircuits};

/// A pair's flows are left alone unless more than this share of its bytes belongs on another lane.
const WORTH_MOVING: f64 = 0.05;

/// What one leaf sends to another in a phase.
#[derive(Debug)]
struct Pair {
    from: usize,
    to: usize,
    /// Bytes that no flow carries: there is no way for them at the moment.
    held: u64,
    flows: Vec<(FlowId, Vec<LaneHop>)>,
    batch: Option<BatchId>,
    ended: Option<SimTime>,
    /// A link on the way of its flows went dark: what was on it is lost, and nothing says so.
    is_cut: bool,
}

/// The traffic of one phase.
#[derive(Debug)]
pub(super) struct PhaseTraffic {
    pairs: Vec<Pair>,
    /// Those of the plan. Empty where every pair takes one hop.
    routes: Vec<RoutePlan>,
    pair_of: BTreeMap<BatchId, usize>,
    open: usize,
    ended: SimTime,
    /// Data that flows which were stopped had sent and that had not arrived: others send it again.
    stopped: Bytes,
}

impl PhaseTraffic {
    /// Everything still to be sent, nothing under way.
    pub(super) fn waiting(demand: &Demand, routes: &[RoutePlan]) -> Self {
        let pairs: Vec<Pair> = demand
            .flows()
            .map(|(from, to, bytes)| Pair {
                from: from.index(),
                to: to.index(),
                held: bytes.0,
                flows: Vec::new(),
                batch: None,
                ended: None,
                is_cut: false,
            })
            .collect();
        let (open, pair_of) = (pairs.len(), BTreeMap::new());
        let routes = routes.to_vec();
        Self { open, pairs, routes, pair_of, ended: SimTime::START, stopped: Bytes::ZERO }
    }

    /// Whether every byte has arrived, and when the last one did.
    pub(super) fn end(&self) -> Option<SimTime> {
        (self.open == 0).then_some(self.ended)
    }

    /// Bytes that wait for a way.
    pub(super) fn held(&self) -> Bytes {
        Bytes(self.pairs.iter().map(|pair| pair.held).sum())
    }

    /// Data sent more than once: of flows that were stopped, and what was lost of the others.
    pub(super) fn sent_twice(&self, engine: &IslandEngine<Watch>) -> Bytes {
        let flows = self.pairs.iter().flat_map(|pair| &pair.flows);
        let again = flows.map(|(flow, _)| again(engine, *flow)).fold(Bytes::ZERO, |a, b| a + b);
        self.stopped + again
    }

    /// Leaves with a flow over one of these lanes.
    pub(super) fn leaves_on(&self, lanes: &BTreeSet<Lane>) -> BTreeSet<LeafId> {
        let on = self.pairs.iter().filter(|pair| {
            let mut hops = pair.flows.iter().flat_map(|(_, hops)| hops);
            pair.ended.is_none() && hops.any(|hop| lanes.contains(&hop.lane))
        });
        on.flat_map(|pair| [pair.from, pair.to]).map(LeafId::from_index).collect()
    }

    /// These links go dark: notes the pairs with a flow over one of them.
    pub(super) fn cut(&mut self, context: &Context<'_>, links: &[LinkId]) {
        let crosses = |link: &LinkId| links.contains(link) || links.contains(&link.reverse());
        let is_cut = |(flow, _): &(FlowId, Vec<LaneHop>)| {
            let is_open = context.engine.record(*flow).end.is_none();
            is_open && context.engine.path(*flow).iter().any(crosses)
        };
        for pair in self.pairs.iter_mut().filter(|pair| pair.ended.is_none()) {
            pair.is_cut |= pair.flows.iter().any(is_cut);
        }
    }

    /// Whether a pair has a flow over a link that went dark.
    pub(super) fn is_cut(&self) -> bool {
        self.pairs.iter().any(|pair| pair.is_cut)
    }

    /// All flows of a batch have arrived.
    pub(super) fn batch_done(&mut self, batch: BatchId, at: SimTime) {
        let Some(&index) = self.pair_of.get(&batch) else { return };
        let pair = &mut self.pairs[index];
        if pair.batch == Some(batch) && pair.held == 0 && pair.ended.is_none() {
            pair.ended = Some(at);
            self.open -= 1;
            self.ended = self.ended.max(at);
        }
    }

    /// Divides what is left of every pair over the lanes there are now.
    ///
    /// # Errors
    /// If the engine refuses a flow.
    pub(super) fn divide(
        &mut self,
        context: &mut Context<'_>,
        circuits: &OpticalCircuits,
        me: Owner,
    ) -> Result<(), EngineError> {
        let lanes = Lanes::now(circuits, &context.circuits_up);
        let left: Vec<u64> = self.pairs.iter().map(|pair| pair.left(&context.engine)).collect();
        let evaluator = self.evaluator(circuits, &lanes, &left);
        let lambda = evaluator.lambda(&lanes.topology);
        let routes = self.routes_now(&lanes, &evaluator);
        for (index, left) in left.into_iter().enumerate() {
            let pair = &self.pairs[index];
            if pair.ended.is_some() {
                continue;
            }
            let shares = match routes.is_empty() {
                true => lanes.shares(pair, left, lambda),
                false => lanes.over(pair, left, &routes),
            };
            let is_lit_again = pair.is_cut && pair.is_lit(context);
            if is_lit_again || !pair.is_well_divided(&context.engine, &shares, left) {
                self.send(context, circuits, (index, me), &shares, left)?;
            }
        }
        Ok(())
    }

    /// The routes of the plan while they have light; else such as serve what is left best. Empty where traffic takes one hop.
    fn routes_now(&self, lanes: &Lanes, evaluator: &Evaluator) -> Vec<RoutePlan> {
        let is_lit = |route: &RoutePlan| hops_of(route).all(|hop| !lanes.between(hop).is_empty());
        match self.routes.is_empty() || self.routes.iter().all(is_lit) {
            true => self.routes.clone(),
            false => {
                let found = concurrent::rate(evaluator, &lanes.topology, f64::INFINITY);
                found.routes
            }
        }
    }

    /// What is left, made ready for the lanes that there are.
    fn evaluator(&self, circuits: &OpticalCircuits, lanes: &Lanes, left: &[u64]) -> Evaluator {
        let mut demand = Demand::none(circuits.network().leaves());
        let is_routed = !self.routes.is_empty();
        for (pair, left) in self.pairs.iter().zip(left) {
            if is_routed || lanes.join(pair) {
                let [from, to] = [pair.from, pair.to].map(LeafId::from_index);
                demand.add(from, to, Bytes(*left));
            }
        }
        Evaluator::new(circuits.network(), &demand)
    }

    fn send(
        &mut self,
        context: &mut Context<'_>,
        circuits: &OpticalCircuits,
        (index, me): (usize, Owner),
        shares: &[(Vec<LaneHop>, u64)],
        left: u64,
    ) -> Result<(), EngineError> {
        let pair = &mut self.pairs[index];
        for (flow, _) in pair.flows.drain(..) {
            let record = context.engine.record(flow);
            let lost = Bytes(record.sent.0.saturating_sub(record.delivered.0));
            self.stopped = self.stopped + lost + again(&context.engine, flow);
            context.engine.cancel_flow(flow);
        }
        let sent: u64 = shares.iter().map(|(_, size)| size).sum();
        pair.held = left - sent;
        if shares.is_empty() {
            pair.is_cut = false;
            pair.batch = None;
            return Ok(());
        }
        let batch = context.engine.add_batch();
        context.own(batch, me);
        pair.batch = Some(batch);
        self.pair_of.insert(batch, index);
        let (from, to) = (circuits.host(pair.from), circuits.host(pair.to));
        for (hops, size) in shares {
            let way = Route::Links(circuits.path(hops));
            let flow = FlowSpec::new(from, to, Bytes(*size)).over(way).in_batch(batch);
            pair.flows.push((context.engine.add_flow(flow)?, hops.clone()));
        }
        pair.is_cut = !pair.is_lit(context);
        Ok(())
    }
}

/// What a flow sent again by itself.
fn again(engine: &IslandEngine<Watch>, flow: FlowId) -> Bytes {
    engine.transport().payload * u64::from(engine.record(flow).retransmitted)
}

impl Pair {
    /// Bytes that have not arrived.
    fn left(&self, engine: &IslandEngine<Watch>) -> u64 {
        if self.ended.is_some() {
            return 0;
        }
        let under_way = self.flows.iter().map(|(flow, _)| {
            let record = engine.record(*flow);
            record.size.0 - record.delivered.0
        });
        self.held + under_way.sum::<u64>()
    }

    /// Whether every link that its flows go over carries packets.
    fn is_lit(&self, context: &Context<'_>) -> bool {
        let ways = self.flows.iter().flat_map(|(flow, _)| context.engine.path(*flow));
        ways.into_iter().all(|link| context.carries(*link) && context.carries(link.reverse()))
    }

    fn is_well_divided(
        &self,
        engine: &IslandEngine<Watch>,
        shares: &[(Vec<LaneHop>, u64)],
        left: u64,
    ) -> bool {
        let mut there = BTreeMap::<&[LaneHop], u64>::new();
        for (flow, hops) in &self.flows {
            let record = engine.record(*flow);
            *there.entry(hops.as_slice()).or_default() += record.size.0 - record.delivered.0;
        }
        there.retain(|_, size| *size > 0);
        let wanted: BTreeMap<&[LaneHop], u64> =
            shares.iter().map(|(hops, size)| (hops.as_slice(), *size)).collect();
        let is_core = |hops: &[LaneHop]| hops.iter().any(|hop| hop.lane == Lane::Core);
        let circuits = |ways: &BTreeMap<&[LaneHop], u64>| {
            let ways = ways.keys().filter(|hops| !is_core(hops));
            ways.map(|hops| hops.to_vec()).collect::<Vec<_>>()
        };
        let core = |ways: &BTreeMap<&[LaneHop], u64>| -> u64 {
            ways.iter().filter(|(hops, _)| is_core(hops)).map(|(_, size)| size).sum()
        };
        let moved = core(&wanted).abs_diff(core(&there));
        self.held == 0
            && circuits(&wanted) == circuits(&there)
            && moved as f64 <= WORTH_MOVING * left as f64
    }
}

/// From, to, and whether it goes over the core, by hop.
pub(super) fn hops_of(route: &RoutePlan) -> impl Iterator<Item = (usize, usize, bool)> + '_ {
    let starts = std::iter::once(&route.from).chain(&route.via);
    let ends = route.via.iter().chain([&route.to]);
    let is_core = |number| route.core_hop == Some(number);
    (0..).zip(starts.zip(ends)).map(move |(at, (a, b))| (a.index(), b.index(), is_core(at)))
}

/// The lanes there are at some moment.
struct Lanes {
    topology: Topology,
    circuits: BTreeMap<LeafPair, Vec<Lane>>,
    has_core: bool,
    /// Bytes per second of one circuit.
    circuit_bytes: f64,
}

impl Lanes {
    fn now(optical: &OpticalCircuits, up: &[CrossConnect]) -> Self {
        let mut topology = Topology::dark(optical.network().leaves());
        let mut circuits = BTreeMap::<LeafPair, Vec<Lane>>::new();
        for circuit in up {
            topology.add(circuit.a.index(), circuit.b.index());
            let pair = LeafPair { a: circuit.a, b: circuit.b };
            circuits.entry(pair).or_default().push(Lane::Circuit(*circuit));
        }
        let circuit_bytes = optical.network().spec().circuit_rate.bytes_per_second();
        Self { topology, circuits, has_core: optical.has_core(), circuit_bytes }
    }

    fn circuits(&self, pair: &Pair) -> &[Lane] {
        self.between((pair.from, pair.to, false))
    }

    /// The lanes of one hop.
    fn between(&self, (from, to, is_core): (usize, usize, bool)) -> &[Lane] {
        const CORE: &[Lane] = &[Lane::Core];
        if is_core {
            return if self.has_core { CORE } else { &[] };
        }
        LeafPair::new(LeafId::from_index(from), LeafId::from_index(to))
            .and_then(|pair| self.circuits.get(&pair))
            .map_or(&[], Vec::as_slice)
    }

    /// Bytes by way, over these routes: by their weights, over the circuits of each hop in turn.
    fn over(&self, pair: &Pair, left: u64, routes: &[RoutePlan]) -> Vec<(Vec<LaneHop>, u64)> {
        let is_own =
            |route: &&RoutePlan| (route.from.index(), route.to.index()) == (pair.from, pair.to);
        let mut shares: Vec<(Vec<LaneHop>, u64)> = Vec::new();
        for route in routes.iter().filter(is_own) {
            let hops: Vec<(usize, usize, bool)> = hops_of(route).collect();
            let width = hops.iter().map(|hop| self.between(*hop).len()).max().unwrap_or(1);
            let size = (left as f64 * route.weight / width as f64) as u64;
            for number in 0..width {
                let hop = |of: &(usize, usize, bool)| {
                    let lanes = self.between(*of);
                    LaneHop { from: of.0, to: of.1, lane: lanes[number % lanes.len()] }
                };
                shares.push((hops.iter().map(hop).collect(), size));
            }
        }
        // What rounding leaves over goes with the first.
        let sent: u64 = shares.iter().map(|(_, size)| size).sum();
        if let Some((_, first)) = shares.first_mut() {
            *first += left - sent.min(left);
        }
        shares.retain(|(_, size)| *size > 0);
        shares
    }

    fn join(&self, pair: &Pair) -> bool {
        self.has_core || !self.circuits(pair).is_empty()
    }

    /// Bytes by lane. What circuits carry until the planned end stays on them.
    fn shares(&self, pair: &Pair, left: u64, lambda: f64) -> Vec<(Vec<LaneHop>, u64)> {
        let circuits = self.circuits(pair);
        let carried = circuits.len() as f64 * self.circuit_bytes / lambda;
        let over_circuits = match (circuits.is_empty(), self.has_core) {
            (true, true) => 0,
            (true, false) => return Vec::new(),
            (false, false) => left,
            (false, true) => (carried.ceil() as u64).min(left),
        };
        let count = circuits.len() as u64;
        let mut shares: Vec<(Lane, u64)> = (0..count)
            .map(|at| over_circuits / count + u64::from(at < over_circuits % count))
            .zip(circuits)
            .map(|(size, lane)| (*lane, size))
            .collect();
        shares.push((Lane::Core, left - over_circuits));
        shares.retain(|(_, size)| *size > 0);
        let hop = |lane| LaneHop { from: pair.from, to: pair.to, lane };
        shares.into_iter().map(|(lane, size)| (vec![hop(lane)], size)).collect()
    }
}
