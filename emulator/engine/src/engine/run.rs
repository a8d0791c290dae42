// SPDX-License-Identifier: Apache-2.0
//! The engine, which owns the shards, advances windows and keeps records.

mod batches;
mod counts;
mod flows;
mod lay;
mod links;
mod seen;
mod trains;
mod waits;

use std::collections::VecDeque;

use lightloom_units::SimTime;
use rayon::prelude::*;

use self::batches::FlowBatch;
pub use self::counts::PacketCount;
use self::flows::FlowState;
use self::lay::SpareRegions;
pub use self::seen::SendingEnd;
use self::trains::Trains;
pub use self::waits::FlowWait;
use super::control::{Act, ControlQueue, Event};
use super::flow::{BatchId, FlowId};
use super::layout::{Layout, Place};
use super::network::{LinkId, Network};
use super::port::{Port, wire_bytes};
use super::probe::{NoProbe, PacketArrival, Probe};
use super::route::Router;
use super::settings::{EngineError, EngineSettings};
use super::shard::{Outbox, Shard, Shared, SimSpan};
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
    /// Starts of the route table's regions, in ascending order, with their flows.
    ways: Vec<(u32, FlowId)>,
    spare: SpareRegions,
    router: Router,
    control: ControlQueue,
    flows: Vec<FlowState>,
    batches: Vec<FlowBatch>,
    open_batches: Vec<BatchId>,
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
        let acknowledgement_bytes = wire_bytes(transport.acknowledgement);
        let header_bytes = wire_bytes(transport.header).max(1);
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
                acknowledgement_bytes,
                header_bytes,
                gives_credit,
                switching: settings.switching,
                host_delay: settings.host_delay.get(),
                ..Shared::default()
            },
            ways: Vec::new(),
            spare: SpareRegions::default(),
            router,
            control: ControlQueue::default(),
            flows: Vec::new(),
            batches: Vec::new(),
            open_batches: Vec::new(),
            now: SimTime::START,
            window,
            windows: 0,
            is_worth_sharing: false,
            spares,
            trains: None,
        })
    }

    #[must_use]
    pub fn network(&self) -> &Network {
        &self.network
    }
    #[must_use]
    pub fn transport(&self) -> &Transport {
        &self.settings.transport
    }
    #[must_use]
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
    #[must_use]
    pub fn now(&self) -> SimTime {
        self.now
    }
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Schedules an [`Event::Timer`]. A time in the past means now.
    pub fn set_timer(&mut self, at: SimTime, token: u64) {
        self.control.plan(at.max(self.now), Act::Timer(token));
    }

    #[must_use]
    pub fn next_due(&self) -> Option<SimTime> {
        let packets = self.shards.iter().map(Shard::next_due).min().unwrap_or(u64::MAX);
        let next = packets.min(self.control.next_due());
        (next != u64::MAX).then(|| SimTime(next).max(self.now))
    }

    pub(crate) fn control_due(&self) -> Option<SimTime> {
        let due = self.control.next_due();
        (due != u64::MAX).then_some(SimTime(due))
    }

    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.control.next_due() == u64::MAX && self.shards.iter().all(Shard::is_quiet)
    }

    #[must_use]
    pub fn flow_of(&self, arrival: &PacketArrival) -> FlowId {
        let after = self.ways.partition_point(|(begin, _)| *begin <= arrival.way.0);
        self.ways[after - 1].1
    }

    pub fn probes(&self) -> impl Iterator<Item = &P> {
        self.shards.iter().map(|shard| &shard.probe)
    }

    pub fn run(&mut self, limit: SimTime) {
        while self.next_event(limit).is_some() {}
    }

    /// Returns the next event at or before `limit`. If there is none, everything up to `limit` has been processed.
    pub fn next_event(&mut self, limit: SimTime) -> Option<Event> {
        self.look_away();
        loop {
            let packets = self.shards.iter().map(Shard::next_due).min().unwrap_or(u64::MAX);
            let control = self.control.next_due();
            let next = packets.min(control);
            let look = self.look_due();
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
                    return rayon::scope(|_| self.next_event(limit));
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
            self.shards[0].advance_by_pods(shared, span, middle);
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
        self.settle_completions();
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
}
