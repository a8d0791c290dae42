// SPDX-License-Identifier: Apache-2.0
//! Splits the bytes of a phase over lanes, separately for each pair of leaves.
//!
//! As in the planner (`planner::rfabric::evaluate`), circuits carry as much as they can until the planned end of
//! the phase, and the electrical core carries the rest. Circuit changes redistribute the unsent bytes, except for
//! flows whose share hardly changes. Planned multi-hop routes are used in proportion to their weights while all
//! their lanes have light; otherwise new routes are computed. Senders pace each route, so that small flows take
//! no more of a circuit than planned. Over packet switches, each pair has a single flow.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{IslandEngine, Stage};
use lightloom_engine::transport::Balance;
use lightloom_engine::{BatchId, EngineError, FlowId, FlowSpec, LinkId, Paths};
use lightloom_fabric::plan::RoutePlan;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};

use super::super::{Context, Owner};
use super::lanes::{End, LaneShare, LaneShares, Lanes, Leaves, Left};
use crate::substrate::{Lane, LaneHop};

/// A pair is redistributed only if more than this share of its bytes has to move.
const WORTH_MOVING: f64 = 0.05;

#[derive(Debug)]
struct Pair {
    ends: [End; 2],
    held: u64,
    flows: Vec<(FlowId, Vec<LaneHop>)>,
    batch: Option<BatchId>,
    ended: Option<SimTime>,
    is_cut: bool,
}

/// How a pair sends its remaining bytes.
struct PairDivision<'a> {
    shares: &'a [LaneShare],
    /// Size of a flow.
    unit: f64,
    /// Duration of paced flows.
    seconds: Option<f64>,
    left: u64,
}

#[derive(Debug)]
pub(super) struct PhaseTraffic {
    pairs: Vec<Pair>,
    routes: Vec<RoutePlan>,
    pair_of: BTreeMap<BatchId, usize>,
    open: usize,
    ended: SimTime,
    /// Seconds of traffic on each link of a packet network, for the actual paths.
    loads: BTreeMap<LinkId, f64>,
    /// When flows over planned routes end.
    paced_until: Option<SimTime>,
    /// Bytes sent but not delivered by stopped flows. Other flows resend them.
    stopped: Bytes,
}

impl PhaseTraffic {
    pub(super) fn waiting(leaves: &Leaves<'_>, demand: &Demand, routes: &[RoutePlan]) -> Self {
        let of_gpus = demand.exchanges().and_then(|all| {
            all.map(|((from, to), bytes)| Some(([leaves.gpu(from)?, leaves.gpu(to)?], bytes)))
                .collect::<Option<Vec<_>>>()
        });
        let ends = of_gpus.unwrap_or_else(|| {
            let of_leaves = demand.flows().filter_map(|(from, to, bytes)| {
                Some(([leaves.joint(from.index())?, leaves.joint(to.index())?], bytes))
            });
            of_leaves.collect()
        });
        let pairs: Vec<Pair> =
            ends.into_iter().map(|(ends, bytes)| Pair::waiting(ends, bytes)).collect();
        let (open, pair_of) = (pairs.len(), BTreeMap::new());
        let (routes, loads) = (routes.to_vec(), BTreeMap::new());
        let (ended, stopped) = (SimTime::START, Bytes::ZERO);
        Self { open, pairs, routes, pair_of, ended, loads, paced_until: None, stopped }
    }

    pub(super) fn end(&self) -> Option<SimTime> {
        (self.open == 0).then_some(self.ended)
    }

    /// Returns `None` unless a packet network uses fixed paths.
    pub(super) fn fullest(&self) -> Option<Picoseconds> {
        let most = self.loads.values().copied().reduce(f64::max)?;
        Some(Picoseconds::from_secs_f64(most))
    }

    pub(super) fn held(&self) -> Bytes {
        Bytes(self.pairs.iter().map(|pair| pair.held).sum())
    }

    pub(super) fn sent_twice(&self, engine: &IslandEngine<Watch>) -> Bytes {
        let flows = self.pairs.iter().flat_map(|pair| &pair.flows);
        let again = flows.map(|(flow, _)| again(engine, *flow)).fold(Bytes::ZERO, |a, b| a + b);
        self.stopped + again
    }

    pub(super) fn leaves_on(&self, lanes: &BTreeSet<Lane>) -> BTreeSet<LeafId> {
        let on = self.pairs.iter().filter(|pair| {
            let mut hops = pair.flows.iter().flat_map(|(_, hops)| hops);
            pair.ended.is_none() && hops.any(|hop| lanes.contains(&hop.lane))
        });
        on.flat_map(Pair::leaves).map(LeafId::from_index).collect()
    }

    pub(super) fn cut(&mut self, context: &Context<'_>, links: &[LinkId]) {
        // Switches reroute their own flows, or the transport resends the packets.
        for pair in self.pairs.iter_mut().filter(|pair| pair.ended.is_none()) {
            pair.is_cut |= pair.flows.iter().any(|(flow, hops)| {
                let is_open = context.engine.record(*flow).end.is_none();
                let mut path = context.engine.path(*flow).iter();
                is_open
                    && !hops.is_empty()
                    && path.any(|link| links.contains(link) || links.contains(&link.reverse()))
            });
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.pairs.iter().any(|pair| pair.is_cut)
    }

    pub(super) fn batch_done(&mut self, batch: BatchId, at: SimTime) {
        let Some(&index) = self.pair_of.get(&batch) else { return };
        let pair = &mut self.pairs[index];
        if pair.batch == Some(batch) && pair.held == 0 && pair.ended.is_none() {
            pair.ended = Some(at);
            self.open -= 1;
            self.ended = self.ended.max(at);
        }
    }

    pub(super) fn divide(
        &mut self,
        context: &mut Context<'_>,
        leaves: &Leaves<'_>,
        me: Owner,
    ) -> Result<(), EngineError> {
        let lanes = Lanes::now(leaves, context);
        let left: Vec<u64> = self.pairs.iter().map(|pair| pair.left(&context.engine)).collect();
        let mut of_leaves = BTreeMap::<[usize; 2], u64>::new();
        for (pair, left) in self.pairs.iter().zip(&left) {
            *of_leaves.entry(pair.leaves()).or_default() += left;
        }
        let division = lanes.division(leaves, &of_leaves, &self.routes);
        let shares = self.pairs.iter().zip(&left).map(|(pair, own)| {
            let [from, to] = pair.leaves();
            let left = Left { from, to, own: *own, of_leaves: of_leaves[&[from, to]] };
            if pair.ended.is_some() { Vec::new() } else { lanes.divide(left, &division) }
        });
        let shares: Vec<LaneShares> = shares.collect();
        let least = context.engine.transport().payload.0 * PACKETS;
        let seconds = division.seconds(leaves, shares.iter().flatten());
        let is_faster = self.pace_until(context.now(), seconds);
        let unit = match seconds {
            Some(_) => f64::INFINITY,
            None => unit(least as f64, shares.iter().flatten().map(|(_, size)| *size)),
        };
        for (index, (own, shares)) in left.into_iter().zip(&shares).enumerate() {
            let pair = &self.pairs[index];
            if pair.ended.is_some() {
                continue;
            }
            let is_lit_again = pair.is_cut && pair.is_lit(context);
            if is_lit_again || is_faster || !pair.is_well_divided(&context.engine, shares, own) {
                let division = PairDivision { shares, unit, seconds, left: own };
                self.send(context, leaves, index, me, &division)?;
            }
        }
        Ok(())
    }

    /// Sets the end of paced flows, and returns whether it is much earlier than before.
    fn pace_until(&mut self, now: SimTime, seconds: Option<f64>) -> bool {
        let [until, late] = [1.0, 1.0 + WORTH_MOVING]
            .map(|times| seconds.map(|s| now + Picoseconds((times * s * 1e12) as u64)));
        let before = std::mem::replace(&mut self.paced_until, until);
        before.zip(late).is_some_and(|(before, late)| late < before)
    }

    fn send(
        &mut self,
        context: &mut Context<'_>,
        leaves: &Leaves<'_>,
        index: usize,
        me: Owner,
        division: &PairDivision<'_>,
    ) -> Result<(), EngineError> {
        let PairDivision { shares, unit, seconds, left } = *division;
        let pair = &mut self.pairs[index];
        let transport = *context.engine.transport();
        let is_hashed = pair.flows.is_empty() && transport.balance != Balance::Adaptive;
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
        let [from, to] = pair.ends.map(|end| end.host);
        for (hops, size) in shares {
            let way = leaves.way(context.substrate, pair.ends, hops);
            let count = flows_of(*size, unit);
            for at in 0..count {
                let size = Bytes(size / count + u64::from(at < size % count));
                let bits = transport.wire_bytes(size).0 as f64 * 8.0;
                let seconds = seconds.filter(|_| !hops.is_empty());
                let pace = seconds.map(|seconds| BitsPerSecond((bits / seconds).ceil() as u64));
                let flow = FlowSpec::new(from, to, size).over(way.clone()).in_batch(batch);
                let flow = FlowSpec { pace, ..flow };
                let flow = context.engine.add_flow(flow)?;
                if hops.is_empty() {
                    context.note_flows(flow.0..flow.0 + 1);
                    let paths =
                        if is_hashed { context.engine.paths(flow) } else { Paths::default() };
                    let bytes = transport.wire_bytes(size).0 as f64 / paths.len() as f64;
                    for link in paths.links() {
                        let rate = context.substrate.network.link(*link).spec.rate;
                        *self.loads.entry(*link).or_default() += bytes / rate.bytes_per_second();
                    }
                }
                pair.flows.push((flow, hops.clone()));
            }
        }
        pair.is_cut = !pair.is_lit(context);
        Ok(())
    }
}

const FLOWS: u32 = 8;

const PACKETS: u64 = 64;

const UNEVEN: f64 = 0.1;

/// Links are shared evenly per flow, so larger transfers get more flows.
fn unit(least: f64, sizes: impl Iterator<Item = u64> + Clone) -> f64 {
    let longest = sizes.clone().max().unwrap_or(1).max(1) as f64;
    let all: f64 = sizes.clone().map(|size| size as f64).sum();
    let smallest = (longest / f64::from(FLOWS)).max(least).min(longest);
    let units = (1..=FLOWS).map(|flows| longest / f64::from(flows));
    let mut units = units.take_while(|unit| *unit >= smallest);
    let even = units.find(|unit| {
        let apart = sizes.clone().map(|size| flows_of(size, *unit) as f64 * unit - size as f64);
        apart.map(f64::abs).sum::<f64>() <= UNEVEN * all
    });
    even.unwrap_or(smallest)
}

fn flows_of(size: u64, unit: f64) -> u64 {
    ((size as f64 / unit).round() as u64).clamp(1, size.max(1))
}

fn again(engine: &IslandEngine<Watch>, flow: FlowId) -> Bytes {
    engine.transport().payload * u64::from(engine.record(flow).retransmitted)
}

impl Pair {
    fn leaves(&self) -> [usize; 2] {
        self.ends.map(|end| end.leaf)
    }

    fn waiting(ends: [End; 2], bytes: Bytes) -> Self {
        let (flows, batch, ended) = (Vec::new(), None, None);
        Self { ends, held: bytes.0, flows, batch, ended, is_cut: false }
    }

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

    fn is_lit(&self, context: &Context<'_>) -> bool {
        let ways = self.flows.iter().flat_map(|(flow, _)| context.engine.path(*flow));
        ways.into_iter().all(|link| context.carries(*link) && context.carries(link.reverse()))
    }

    fn is_well_divided(
        &self,
        engine: &IslandEngine<Watch>,
        shares: &[LaneShare],
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
        let [(wanted_circuits, wanted_core), (circuits, core)] = [&wanted, &there].map(by_lane);
        self.held == 0
            && wanted_circuits == circuits
            && wanted_core.abs_diff(core) as f64 <= WORTH_MOVING * left as f64
    }
}

/// Returns the routes over circuits, and the bytes over the core.
fn by_lane<'h>(ways: &BTreeMap<&'h [LaneHop], u64>) -> (Vec<&'h [LaneHop]>, u64) {
    let mut circuits = Vec::new();
    let mut core = 0;
    for (hops, size) in ways {
        match hops.iter().any(|hop| hop.lane == Lane::Core) {
            true => core += size,
            false => circuits.push(*hops),
        }
    }
    (circuits, core)
}
