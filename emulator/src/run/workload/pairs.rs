// SPDX-License-Identifier: Apache-2.0
//! One phase's bytes on their way: which flow of which pair of leaves takes which lane.
//!
//! A pair's bytes are divided as the planner divides them (`planner::rfabric::evaluate`): its circuits
//! carry what they can until the phase's planned end, the electrical core the rest. Whenever circuits
//! come or go, what is left is divided anew; a flow whose share hardly changes goes on undisturbed.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::{BatchId, EngineError, FlowId, FlowSpec, LinkId, Route};
use lightloom_fabric::fat_tree::{CrossConnect, LeafPair};
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::topology::Topology;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, SimTime};

use super::super::{Context, Owner};
use crate::substrate::{Lane, OpticalCircuits};

/// A pair's flows are left alone unless more than this share of its bytes belongs on another lane.
const WORTH_MOVING: f64 = 0.05;

/// What one leaf sends to another in a phase.
#[derive(Debug)]
struct Pair {
    from: usize,
    to: usize,
    /// Bytes that no flow carries: there is no way for them at the moment.
    held: u64,
    flows: Vec<(FlowId, Lane)>,
    batch: Option<BatchId>,
    ended: Option<SimTime>,
    /// A link on the way of its flows went dark: what was on it is lost, and nothing says so.
    is_cut: bool,
}

/// The traffic of one phase.
#[derive(Debug)]
pub(super) struct PhaseTraffic {
    pairs: Vec<Pair>,
    pair_of: BTreeMap<BatchId, usize>,
    open: usize,
    ended: SimTime,
    /// Data that flows which were stopped had sent and that had not arrived: others send it again.
    stopped: Bytes,
}

impl PhaseTraffic {
    /// Everything still to be sent, nothing under way.
    pub(super) fn waiting(demand: &Demand) -> Self {
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
        Self { open, pairs, pair_of, ended: SimTime::START, stopped: Bytes::ZERO }
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
            pair.ended.is_none() && pair.flows.iter().any(|(_, lane)| lanes.contains(lane))
        });
        on.flat_map(|pair| [pair.from, pair.to]).map(LeafId::from_index).collect()
    }

    /// These links go dark: notes the pairs with a flow over one of them.
    pub(super) fn cut(&mut self, context: &Context<'_>, links: &[LinkId]) {
        let crosses = |link: &LinkId| links.contains(link) || links.contains(&link.reverse());
        let is_cut = |(flow, _): &(FlowId, Lane)| {
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
        let lambda = self.planned_rate(circuits, &lanes, &left);
        for (index, left) in left.into_iter().enumerate() {
            let pair = &self.pairs[index];
            if pair.ended.is_some() {
                continue;
            }
            let shares = lanes.shares(pair, left, lambda);
            let is_lit_again = pair.is_cut && pair.is_lit(context);
            if is_lit_again || !pair.is_well_divided(&context.engine, &shares, left) {
                self.send(context, circuits, (index, me), &shares, left)?;
            }
        }
        Ok(())
    }

    /// How often per second what is left could be served, in closed form.
    fn planned_rate(&self, circuits: &OpticalCircuits, lanes: &Lanes, left: &[u64]) -> f64 {
        let mut demand = Demand::none(circuits.network().leaves());
        for (pair, left) in self.pairs.iter().zip(left) {
            if lanes.join(pair) {
                let [from, to] = [pair.from, pair.to].map(LeafId::from_index);
                demand.add(from, to, Bytes(*left));
            }
        }
        Evaluator::new(circuits.network(), &demand).lambda(&lanes.topology)
    }

    fn send(
        &mut self,
        context: &mut Context<'_>,
        circuits: &OpticalCircuits,
        (index, me): (usize, Owner),
        shares: &[(Lane, u64)],
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
        for &(lane, size) in shares {
            let way = Route::Links(circuits.path(pair.from, pair.to, lane));
            let flow = FlowSpec::new(from, to, Bytes(size)).over(way).in_batch(batch);
            pair.flows.push((context.engine.add_flow(flow)?, lane));
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
        shares: &[(Lane, u64)],
        left: u64,
    ) -> bool {
        let mut there = BTreeMap::<Lane, u64>::new();
        for (flow, lane) in &self.flows {
            let record = engine.record(*flow);
            *there.entry(*lane).or_default() += record.size.0 - record.delivered.0;
        }
        there.retain(|_, size| *size > 0);
        let wanted: BTreeMap<Lane, u64> = shares.iter().copied().collect();
        let circuits = |lanes: &BTreeMap<Lane, u64>| {
            lanes.keys().filter(|lane| **lane != Lane::Core).copied().collect::<Vec<_>>()
        };
        let core = |lanes: &BTreeMap<Lane, u64>| lanes.get(&Lane::Core).copied().unwrap_or(0);
        let moved = core(&wanted).abs_diff(core(&there));
        self.held == 0
            && circuits(&wanted) == circuits(&there)
            && moved as f64 <= WORTH_MOVING * left as f64
    }
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
        LeafPair::new(LeafId::from_index(pair.from), LeafId::from_index(pair.to))
            .and_then(|pair| self.circuits.get(&pair))
            .map_or(&[], Vec::as_slice)
    }

    fn join(&self, pair: &Pair) -> bool {
        self.has_core || !self.circuits(pair).is_empty()
    }

    /// Bytes by lane. What circuits carry until the planned end stays on them.
    fn shares(&self, pair: &Pair, left: u64, lambda: f64) -> Vec<(Lane, u64)> {
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
        shares
    }
}
