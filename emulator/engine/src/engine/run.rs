// SPDX-License-Identifier: Apache-2.0
//! The engine, which owns the shards, advances windows and keeps records.

mod batches;
mod flows;
mod lay;
mod report;
mod trains;

use std::collections::VecDeque;

use lightloom_units::{BitsPerSecond, Picoseconds, SimTime};
use rand::Rng;
use rayon::prelude::*;

use self::batches::FlowBatches;
use self::flows::FlowState;
use self::lay::Regions;
pub use self::report::{FlowWait, PacketCount, SendingEnd};
use self::trains::Trains;
use super::control::{Act, Chance, ControlQueue, Event, LinkChange};
use super::flow::{BatchId, FlowId};
use super::layout::{Layout, Place};
use super::network::{LinkId, Network};
use super::port::{Port, wire_bytes};
use super::probe::{NoProbe, PacketArrival, Probe};
use super::queueing::CONTROL_PRIORITY;
use super::route::Router;
use super::settings::{EngineError, EngineSettings};
use super::shard::{Outbox, Pods, Shard, Shared, SimSpan};
use crate::transport::{CongestionControl, Transport};

/// Times in a window are 32-bit picoseconds, so a window spans at most 4 ms.
const LONGEST_WINDOW_PS: u64 = 4_000_000_000;
/// With fewer arrivals per window, waking another thread does not pay off.
const WORTH_SHARING_ARRIVALS: u64 = 2_000;
/// Empty outboxes per pair of shards. A freshly read outbox is still in another processor's cache.
const SPARES: usize = 16;

/// The caller adds flows and timers, then repeatedly calls [`next_event`](Self::next_event).
/// Simulated time stops at each event, so that the caller can add flows, timers and link changes.
#[derive(Clone, Debug)]
pub struct Engine<P = NoProbe> {
    network: Network,
    settings: EngineSettings,
    layout: Layout,
    shards: Vec<Shard<P>>,
    shared: Shared,
    regions: Regions,
    router: Router,
    control: ControlQueue,
    flows: Vec<FlowState>,
    batches: FlowBatches,
    now: SimTime,
    window: u64,
    windows: u64,
    is_worth_sharing: bool,
    spares: VecDeque<Outbox>,
    trains: Option<Box<Trains<P>>>,
}

impl Engine<NoProbe> {
    pub fn new(network: Network, settings: EngineSettings) -> Result<Self, EngineError> {
        Self::with_probe(network, settings, NoProbe)
    }
}

impl<P: Probe> Engine<P> {
    /// Each shard gets a copy of `probe`. Fails if packet sizes or delays cannot be emulated.
    pub fn with_probe(
        network: Network,
        settings: EngineSettings,
        probe: P,
    ) -> Result<Self, EngineError> {
        settings.check(&network)?;
        let transport = &settings.transport;
        let (layout, mut shards) = Layout::new(&network, &settings, &probe);
        let gives_credit = transport.congestion == CongestionControl::ReceiverCredit;
        if gives_credit {
            let bits = transport.packet().0 * 8;
            shards.iter_mut().for_each(|shard| shard.pace_credits(bits));
        }
        let reads_telemetry = transport.congestion.reads_telemetry();
        let router = Router::new(settings.seed, network.links().len());
        let pairs = shards.len() * (shards.len() - 1);
        let spares = std::iter::repeat_with(Outbox::default).take(pairs * SPARES).collect();
        let window = network.shortest_delay().get().min(LONGEST_WINDOW_PS);
        Ok(Self {
            network,
            settings,
            layout,
            shards,
            shared: Shared {
                acknowledgement_bytes: wire_bytes(transport.acknowledgement),
                header_bytes: wire_bytes(transport.header).max(1),
                gives_credit,
                reads_telemetry,
                is_joint: reads_telemetry,
                switching: settings.switching,
                host_delay: settings.host_delay.get(),
                ..Shared::default()
            },
            regions: Regions::default(),
            router,
            control: ControlQueue::default(),
            flows: Vec::new(),
            batches: FlowBatches::default(),
            now: SimTime::START,
            window,
            windows: 0,
            is_worth_sharing: false,
            spares,
            trains: None,
        })
    }

    pub fn network(&self) -> &Network {
        &self.network
    }
    pub fn transport(&self) -> &Transport {
        &self.settings.transport
    }
    pub fn settings(&self) -> &EngineSettings {
        &self.settings
    }
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }
    pub(super) fn shards(&self) -> &[Shard<P>] {
        &self.shards
    }
    pub(super) fn port(&self, link: LinkId) -> &Port {
        let Place { shard, index } = self.layout.ports[link.index()];
        &self.shards[shard as usize].ports[index as usize]
    }
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// Schedules an [`Event::Timer`]. A time in the past means now.
    pub fn set_timer(&mut self, at: SimTime, token: u64) {
        self.control.plan(at.max(self.now), Act::Timer(token));
    }

    pub fn next_due(&self) -> Option<SimTime> {
        let packets = self.shards.iter().map(Shard::next_due).min().unwrap_or(u64::MAX);
        let next = packets.min(self.control.next_due());
        (next != u64::MAX).then(|| SimTime(next).max(self.now))
    }

    pub(crate) fn control_due(&self) -> Option<SimTime> {
        let due = self.control.next_due();
        (due != u64::MAX).then_some(SimTime(due))
    }

    pub fn is_quiet(&self) -> bool {
        self.control.next_due() == u64::MAX && self.shards.iter().all(Shard::is_quiet)
    }

    pub fn flow_of(&self, arrival: &PacketArrival) -> FlowId {
        self.regions.flow_of(arrival.way.0)
    }

    pub fn probes(&self) -> impl Iterator<Item = &P> {
        self.shards.iter().map(|shard| &shard.probe)
    }

    pub fn run(&mut self, limit: SimTime) {
        while self.next_event(limit).is_some() {}
    }

    /// Returns the next event at or before `limit`. If there is none, everything up to `limit` has been processed.
    pub fn next_event(&mut self, limit: SimTime) -> Option<Event> {
        P::next_event(self, limit)
    }

    /// Does the work of [`next_event`](Self::next_event).
    pub fn advance_to_event(&mut self, limit: SimTime) -> Option<Event> {
        self.look_away();
        loop {
            let packets = self.shards.iter().map(Shard::next_due).min().unwrap_or(u64::MAX);
            let control = self.control.next_due();
            let next = packets.min(control);
            let look = self.trains.as_ref().map_or(u64::MAX, |trains| trains.look_due());
            if look <= next && look != u64::MAX {
                self.look(look, control.min(limit.0));
                continue;
            }
            if next == u64::MAX || next > limit.0 {
                self.now = if next == u64::MAX { self.now } else { limit.max(self.now) };
                return None;
            }
            self.now = self.now.max(SimTime(next));
            if control > packets {
                if self.is_worth_sharing && rayon::current_thread_index().is_none() {
                    // Running inside the pool avoids waking its threads for every window.
                    return rayon::scope(|_| self.advance_to_event(limit));
                }
                let end =
                    (packets + self.next_length()).min(control).min(limit.0.saturating_add(1));
                let end = self.until_prompt_end(SimSpan { start: packets, end: end.min(look) });
                self.run_window(SimSpan { start: packets, end });
                if look == u64::MAX {
                    self.look(end, control.min(limit.0));
                }
            } else if let Some((at, act)) = self.control.take() {
                self.look_away();
                if let Some(event) = self.perform(at, act) {
                    return Some(event);
                }
            }
        }
    }

    fn run_window(&mut self, span: SimSpan) {
        let (shared, middle) = (&self.shared, span.start + self.window);
        if span.end > middle {
            Pods::advance(&mut self.shards[0], shared, span, middle);
            self.windows += 1;
        } else if self.is_worth_sharing {
            self.shards.par_iter_mut().for_each(|shard| shard.advance(shared, span));
        } else {
            self.shards.iter_mut().for_each(|shard| shard.advance(shared, span));
        }
        let worked: u64 =
            self.shards.iter_mut().map(|shard| std::mem::take(&mut shard.worked)).sum();
        self.is_worth_sharing = self.shards.len() > 1 && worked >= WORTH_SHARING_ARRIVALS;
        self.exchange();
        self.windows += 1;
        if self.shared.reads_telemetry {
            self.deliver_telemetry();
        }
        self.settle_completions();
    }

    /// Acknowledgements take longer than a window, so telemetry reaches the sender before them.
    fn deliver_telemetry(&mut self) {
        let mut all: Vec<_> =
            self.shards.iter_mut().flat_map(|shard| shard.telemetry.drain(..)).collect();
        all.sort_unstable_by_key(|load| (load.at, load.link));
        for load in all {
            let flow = self.regions.flow_of(load.cursor);
            let Place { shard, index } = self.flows[flow.index()].sender;
            self.shards[shard as usize].senders[index as usize].met(load);
        }
    }

    fn exchange(&mut self) {
        for from in 0..self.shards.len() {
            for to in (0..self.shards.len()).filter(|to| *to != from) {
                let empty = self.spares.pop_front().unwrap_or_default();
                let full = std::mem::replace(&mut self.shards[from].outboxes[to], empty);
                let read = std::mem::replace(&mut self.shards[to].inboxes[from], full);
                self.spares.push_back(read);
            }
        }
    }

    fn settle_completions(&mut self) {
        let mut completions: Vec<_> =
            self.shards.iter_mut().flat_map(|shard| shard.completions.drain(..)).collect();
        completions.sort_unstable();
        for completion in completions {
            let state = &mut self.flows[completion.flow as usize];
            if state.cancelled {
                continue;
            }
            state.end = Some(SimTime(completion.time));
            let batch = state.batch;
            self.leave_batch(batch, SimTime(completion.time));
        }
    }

    pub fn add_batch(&mut self) -> BatchId {
        self.batches.add(false)
    }

    /// The end of a prompt batch is reported when the last byte arrives rather than after the
    /// shortest link delay, so windows are shorter. Panics with more than one shard, because a
    /// shard does not know the packets in flight in others.
    pub fn add_prompt_batch(&mut self) -> BatchId {
        assert!(self.shards.len() == 1, "prompt batches require a single thread");
        self.batches.add(true)
    }

    fn leave_batch(&mut self, batch: Option<BatchId>, at: SimTime) {
        let Some(id) = batch else { return };
        let delay = self.network.shortest_delay();
        if let Some((reported, done)) = self.batches.leave(id, at, self.now, delay) {
            self.control.plan(reported, done);
        }
    }

    fn until_prompt_end(&self, span: SimSpan) -> u64 {
        let flows = self.batches.prompt_flows();
        let ends = flows.filter_map(|flow| self.soonest_end(&self.flows[flow.index()], span));
        ends.min().map_or(span.end, |end| span.end.min(end + 1))
    }

    /// When a flow ends, or earlier if packets are duplicated. `None` if it does not end in `span`.
    fn soonest_end(&self, flow: &FlowState, span: SimSpan) -> Option<u64> {
        let [shard] = &self.shards[..] else { return None };
        if flow.end.is_some() || !shard.senders[flow.sender.index as usize].has_sent_all() {
            return None;
        }
        let missing = shard.receivers[flow.receiver.index as usize].packets_missing() as usize;
        let vertex = self.layout.vertices[flow.name.ends.to.index()].index;
        shard.nth_arrival(&self.shared, span, vertex, flow.receiver.index, missing)
    }

    fn next_length(&mut self) -> u64 {
        let [shard] = &self.shards[..] else { return self.window };
        let by_pods = !shard.pods.is_empty() && shard.probe.may_leap() && self.trains.is_none();
        let flows = &self.flows;
        let twice = by_pods
            && self.batches.all_send(|id| {
                let flow = &flows[id.index()];
                flow.ways[0].len() > 1 && !shard.senders[flow.sender.index as usize].has_sent_all()
            });
        if twice { 2 * self.window } else { self.window }
    }

    pub(crate) fn form_trains(&mut self) {
        self.trains = Some(Box::new(Trains::new()));
    }

    pub(crate) fn leapt(&self) -> u64 {
        self.trains.as_ref().map_or(0, |trains| trains.leapt())
    }

    pub(crate) fn foretold_wrongly(&self) -> bool {
        self.trains.as_ref().is_some_and(|trains| trains.is_wrong())
    }

    fn look_away(&mut self) {
        if let Some(trains) = &mut self.trains {
            trains.look_away(self.windows);
        }
    }

    fn look(&mut self, now: u64, until: u64) {
        if let ([shard], Some(trains)) = (&mut self.shards[..], &mut self.trains) {
            trains.look(shard, self.windows, now, until);
        }
    }

    /// Changes take effect before all packets at that instant. A time in the past means now.
    pub fn change_link(&mut self, at: SimTime, link: LinkId, change: LinkChange) {
        self.control.plan(at.max(self.now), Act::Link(link, change));
    }

    pub fn is_up(&self, link: LinkId) -> bool {
        self.router.is_up(link)
    }

    fn perform(&mut self, at: SimTime, act: Act) -> Option<Event> {
        match act {
            Act::Timer(token) => return Some(Event::Timer { at, token }),
            Act::BatchDone(batch, at) => return Some(Event::BatchDone { batch, at }),
            Act::Link(link, change) => self.change(link, change),
            Act::LinkNews => self.hear_news(),
        }
        None
    }

    fn change(&mut self, link: LinkId, change: LinkChange) {
        match change {
            LinkChange::Down => self.set_link(link, false),
            LinkChange::Up => self.set_link(link, true),
            LinkChange::Rate(rate) => self.set_rate(link, rate),
            LinkChange::BitErrors(errors) => self.set_errors(link, errors),
            LinkChange::PacketLoss(loss) => self.set_loss(link, loss),
            LinkChange::Jitter(most) => self.set_jitter(link, most),
            LinkChange::Paused(priorities) => self.set_paused(link, priorities),
            LinkChange::Healthy => {
                self.set_rate(link, self.network.link(link).spec.rate);
                self.set_errors(link, Chance(0));
                self.set_loss(link, Chance(0));
                self.set_jitter(link, Picoseconds::ZERO);
            }
        }
    }

    fn port_of(&mut self, link: LinkId) -> &mut Port {
        let Place { shard, index } = self.layout.ports[link.index()];
        &mut self.shards[shard as usize].ports[index as usize]
    }

    fn set_rate(&mut self, link: LinkId, rate: BitsPerSecond) {
        let mut wanted = *self.network.link(link);
        wanted.spec.rate = rate;
        let (role, settings) = (self.network.role(wanted.from), self.settings);
        self.receive();
        let now = self.now.0;
        let change = self.port_of(link).take_rate(link, &wanted, role, &settings, now);
        let (port, wire) = (self.layout.ports[link.index()], self.layout.wires[link.index()]);
        self.shards[wire.shard as usize].wire_rates[wire.index as usize] = rate;
        let vertex = self.layout.vertices[wanted.from.index()].index;
        if self.shards[port.shard as usize].switches[vertex as usize].is_some() {
            let until = self.sends_until(link);
            return change.settle_queued(self.port_of(link), until);
        }
        let far = &mut self.shards[wire.shard as usize];
        let mut on_wire = std::mem::take(&mut far.wires[wire.index as usize].queue);
        let dropped = change.settle(self.port_of(link), &mut on_wire);
        self.shards[wire.shard as usize].put_on_wire(wire.index, on_wire, now);
        let shard = &mut self.shards[port.shard as usize];
        shard.counts[port.index as usize].dropped += dropped;
        shard.wake(vertex, now);
    }

    fn set_paused(&mut self, link: LinkId, priorities: u8) {
        if priorities != 0 {
            let Place { shard, index } = self.layout.ports[link.index()];
            let (now, shard) = (self.now.0, &mut self.shards[shard as usize]);
            let paused = &mut shard.ports[index as usize].paused;
            let before = *paused;
            *paused |= priorities & !(1 << CONTROL_PRIORITY);
            shard.counts[index as usize].note_paused(before, *paused, now);
            return;
        }
        let Place { shard, index } = self.layout.ports[link.index()];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index;
        self.receive();
        let shard = &mut self.shards[shard as usize];
        shard.forget_pauses(&self.shared, vertex, index, self.now.0);
        self.exchange();
    }

    fn receive(&mut self) {
        let now = self.now.0;
        self.shards.iter_mut().for_each(|shard| shard.receive(now));
    }

    fn set_errors(&mut self, link: LinkId, errors: Chance) {
        let salt = self.salt("bit errors", link);
        self.port_of(link).take_errors(errors.0, salt);
    }

    fn set_loss(&mut self, link: LinkId, loss: Chance) {
        let salt = self.salt("bit errors", link);
        self.port_of(link).take_loss(loss.0, salt);
    }

    fn set_jitter(&mut self, link: LinkId, most: Picoseconds) {
        let (salt, now) = (self.salt("jitter", link), self.now.0);
        self.port_of(link).take_jitter(most.get(), salt, now);
    }

    fn salt(&self, what: &str, link: LinkId) -> u64 {
        self.settings.seed.stream(what, u64::from(link.0)).next_u64()
    }

    fn set_link(&mut self, link: LinkId, up: bool) {
        if self.router.is_up(link) == up {
            return;
        }
        self.router.set_up(link, up);
        self.plan_news();
        self.receive();
        let (port, wire) = (self.layout.ports[link.index()], self.layout.wires[link.index()]);
        let lost = if up { 0 } else { self.shards[wire.shard as usize].cut_wire(wire.index) };
        let far = self.layout.vertices[self.network.link(link).to.index()];
        let shard = &mut self.shards[port.shard as usize];
        shard.ports[port.index as usize].restart(up, self.now.0);
        shard.counts[port.index as usize].lost += lost;
        let from = self.layout.vertices[self.network.link(link).from.index()];
        shard.cut_port(&self.shared, from.index, port.index, self.now.0);
        let back = self.layout.ports[link.reverse().index()];
        self.shards[far.shard as usize].forget_pauses(
            &self.shared,
            far.index,
            back.index,
            self.now.0,
        );
        let shard = &mut self.shards[port.shard as usize];
        if up {
            shard.wake(from.index, self.now.0);
        } else {
            shard.leave_cut_port(&self.shared, from.index, port.index, self.now.0);
        }
        self.exchange();
    }
}
