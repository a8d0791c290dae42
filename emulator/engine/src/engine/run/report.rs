// SPDX-License-Identifier: Apache-2.0
//! Reads the state of flows, ports and packets.

use lightloom_units::{BitsPerSecond, Bytes, SimTime};

use super::Engine;
use super::flows::FlowState;
use crate::engine::deadlock::deadlock;
use crate::engine::flow::{FlowId, FlowRecord};
use crate::engine::layout::Place;
use crate::engine::network::LinkId;
use crate::engine::port::PortCount;
use crate::engine::probe::Probe;
use crate::engine::queueing::PRIORITIES;
use crate::engine::route::{Choice, Paths};
use crate::transport::Sender;

/// Packet counts. Results leave out those that only the engine needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PacketCount {
    /// Data packets and acknowledgements sent.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets dropped because of a full queue.
    pub dropped: u64,
    /// Packets lost on a dark link.
    pub lost: u64,
    /// Packets in flight at the end of the run: `sent = delivered + dropped + lost + in_flight`.
    pub in_flight: u64,
    /// ECN marks set by queues.
    pub marked: u64,
    /// Retransmitted data packets.
    pub retransmitted: u64,
    /// Duplicate data packets, caused by spurious retransmissions.
    pub duplicates: u64,
    /// Data packets trimmed to headers.
    pub trimmed: u64,
    /// PFC pauses requested by switches.
    pub pauses: u64,
    #[serde(skip)]
    pub data_sent: u64,
    /// Packets put on a wire: the unit of the engine's speed.
    #[serde(skip)]
    pub hops: u64,
}

impl PacketCount {
    pub(crate) fn add_times(&mut self, one: Self, times: u64) {
        macro_rules! add_all {
            ($($count:ident)*) => {
                let Self { $($count),* } = one;
                $(self.$count += $count * times;)*
            };
        }
        add_all!(sent data_sent delivered dropped trimmed pauses lost in_flight marked retransmitted duplicates hops);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowWait {
    Start,
    Dark(LinkId),
    Messages(FlowId),
    Paused(LinkId),
    Turn(LinkId),
    Acknowledgements,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingEnd {
    pub acknowledged: u32,
    /// Packets sent and not yet acknowledged or known to be lost, including retransmissions.
    pub in_flight: u32,
    pub window: u32,
    /// Rate last set by congestion control. `None` if it only sets a window.
    pub pace: Option<BitsPerSecond>,
    pub resent: u32,
}

impl<P: Probe> Engine<P> {
    /// Includes an ongoing pause and the bytes already sent of a packet in transmission.
    pub fn port_count(&self, link: LinkId) -> PortCount {
        let Place { shard, index } = self.layout.ports[link.index()];
        let shard = &self.shards[shard as usize];
        let (mut count, is_paused) =
            (shard.counts[index as usize], shard.ports[index as usize].paused != 0);
        count.note_paused(u8::from(is_paused), 0, self.now.0);
        let port = &shard.ports[index as usize];
        let unsent = port.backlog_until(self.sends_until(link), self.now.0);
        count.bytes = count.bytes.saturating_sub(unsent.0);
        count
    }

    pub(super) fn sends_until(&self, link: LinkId) -> u64 {
        let Place { shard, index } = self.layout.ports[link.index()];
        let shard = &self.shards[shard as usize];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index as usize;
        match &shard.switches[vertex] {
            Some(switch) => switch.stands_before(index - shard.vertices[vertex].first_port).1,
            None => shard.ports[index as usize].free,
        }
    }

    /// When the last bit sent so far arrives, including bits of lost packets.
    pub fn last_arrival(&self) -> SimTime {
        let links = (0..self.network.links().len()).map(LinkId::from_index);
        let arrivals = links.map(|link| self.port(link).last_arrival(self.sends_until(link)));
        SimTime(arrivals.max().unwrap_or_default())
    }

    pub fn packets(&self) -> PacketCount {
        let mut total = PacketCount::default();
        for shard in &self.shards {
            total.data_sent += shard.ends.data_sent;
            total.sent += shard.ends.data_sent + shard.ends.acknowledgements_sent;
            total.sent += shard.ends.frames_sent;
            total.delivered += shard.ends.delivered;
            total.in_flight += shard.in_flight();
            total.retransmitted +=
                shard.senders.iter().map(|sender| u64::from(sender.resent)).sum::<u64>();
            total.duplicates +=
                shard.receivers.iter().map(|end| u64::from(end.duplicates())).sum::<u64>();
            for count in &shard.counts {
                total.dropped += count.dropped;
                total.lost += count.lost;
                total.trimmed += count.trimmed;
                total.pauses += count.pauses;
                total.marked += count.marked;
                total.hops += count.packets;
            }
        }
        total
    }

    /// The last entry includes acknowledgements and trimmed packets. All are zero without bounded queues.
    pub fn dropped_by_priority(&self) -> [u64; PRIORITIES] {
        let mut total = [0; PRIORITIES];
        let switches = self.shards.iter().flat_map(|shard| shard.switches.iter().flatten());
        for (class, dropped) in switches.flat_map(|switch| switch.dropped().iter().enumerate()) {
            total[class] += dropped;
        }
        total
    }

    pub fn hops(&self) -> u64 {
        self.shards.iter().flat_map(|shard| &shard.counts).map(|count| count.packets).sum()
    }

    /// What a flow waits for, and when its last acknowledgement arrived (`None` if nothing is in flight).
    pub fn awaits(&self, flow: FlowId) -> (FlowWait, Option<SimTime>) {
        let state = &self.flows[flow.index()];
        let Place { shard, index } = state.sender;
        let shard = &self.shards[shard as usize];
        let sender = &shard.senders[index as usize];
        let since = sender.silent_since().map(SimTime);
        let first = state.ways[0][0];
        let mut links = self.links_of(state);
        let dark = links.find(|link| !self.is_up(*link) || !self.is_up(link.reverse()));
        let awaited =
            sender.waits.gates.iter().map(|(receiver, _)| &shard.receivers[*receiver as usize]);
        let what = if !sender.started {
            FlowWait::Start
        } else if let Some(dark) = dark {
            FlowWait::Dark(dark)
        } else if since.is_some() {
            FlowWait::Acknowledgements
        } else if let Some(late) = awaited.filter(|_| !sender.enlisted).find(|end| !end.is_done()) {
            FlowWait::Messages(FlowId(late.flow))
        } else if self.port(first).paused & (1 << sender.priority) != 0 {
            FlowWait::Paused(first)
        } else {
            FlowWait::Turn(first)
        };
        (what, since)
    }

    pub fn backlog(&self, link: LinkId) -> Bytes {
        let Place { shard, index } = self.layout.ports[link.index()];
        let shard = &self.shards[shard as usize];
        let vertex = self.layout.vertices[self.network.link(link).from.index()].index as usize;
        let port = &shard.ports[index as usize];
        let Some(switch) = &shard.switches[vertex] else { return port.backlog(self.now.0) };
        let (waiting, end) = switch.stands_before(index - shard.vertices[vertex].first_port);
        Bytes(waiting) + port.backlog_until(end, self.now.0)
    }

    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// `None` before the flow starts and after its last packet has arrived.
    pub fn sending_end(&self, flow: FlowId) -> Option<SendingEnd> {
        let state = &self.flows[flow.index()];
        if state.end.is_some() || state.cancelled {
            return None;
        }
        let Place { shard, index } = state.sender;
        let sender = &self.shards[shard as usize].senders[index as usize];
        sender.started.then(|| sender.into())
    }

    pub fn flows_on_dark_links(&self) -> Vec<FlowId> {
        let mut hit = Vec::new();
        for (index, state) in self.flows.iter().enumerate().filter(|(_, state)| state.is_open()) {
            let chosen = state.choices.iter().flatten().flatten().flat_map(|choice| &choice.links);
            let mut links = self.links_of(state).chain(chosen.copied());
            if links.any(|link| !self.is_up(link) || !self.is_up(link.reverse())) {
                hit.push(FlowId::from_index(index));
            }
        }
        hit
    }

    pub fn path(&self, flow: FlowId) -> &[LinkId] {
        &self.flows[flow.index()].ways[0]
    }

    pub fn ways(&self, flow: FlowId) -> Vec<&[LinkId]> {
        self.flows[flow.index()].ways.iter().collect()
    }

    pub(crate) fn takes_one_path(&self, flow: FlowId) -> bool {
        let state = &self.flows[flow.index()];
        state.choices.is_empty() && self.sender_of(state).cursors().nth(1).is_none()
    }

    /// Reads all paths from the route table. With adaptive routing, returns one for each interface.
    pub fn paths(&self, flow: FlowId) -> Paths {
        let state = &self.flows[flow.index()];
        if !state.choices.is_empty() {
            return state.ways.clone();
        }
        let mut paths = Paths::default();
        for cursor in self.sender_of(state).cursors() {
            paths.push(&self.walk(state, cursor).collect::<Vec<LinkId>>());
        }
        paths
    }

    fn sender_of(&self, state: &FlowState) -> &Sender {
        &self.shards[state.sender.shard as usize].senders[state.sender.index as usize]
    }

    fn links_of<'a>(&'a self, state: &'a FlowState) -> impl Iterator<Item = LinkId> + 'a {
        let is_fixed = state.choices.is_empty();
        let sender = is_fixed.then(|| self.sender_of(state));
        let ways = if is_fixed { &[] } else { state.ways.links() };
        let cursors = sender.into_iter().flat_map(Sender::cursors);
        let links = cursors.flat_map(|cursor| self.walk(state, cursor));
        links.chain(ways.iter().copied())
    }

    fn walk(&self, state: &FlowState, mut cursor: u32) -> impl Iterator<Item = LinkId> {
        let (routes, mut at) = (&self.shared.routes, state.source());
        std::iter::from_fn(move || {
            routes.end(cursor).is_none().then(|| {
                let link = self.network.outgoing(at)[routes.place(cursor) as usize];
                (at, cursor) = (self.network.link(link).to, cursor + 1);
                link
            })
        })
    }

    /// Returns the choices per interface, for data and acknowledgements, in breadth-first order. Empty except with
    /// `Balance::Adaptive`.
    pub fn choices(&self, flow: FlowId) -> &[[Vec<Choice>; 2]] {
        &self.flows[flow.index()].choices
    }

    pub fn record(&self, flow: FlowId) -> FlowRecord {
        let state = &self.flows[flow.index()];
        let Place { shard, index } = state.sender;
        let receivers = &self.shards[state.receiver.shard as usize].receivers;
        let receiver = &receivers[state.receiver.index as usize];
        let packets = receiver.packets_in_order();
        let bytes = |packets: u32| {
            let bytes = self.settings.transport.payload * u64::from(packets);
            bytes.min(state.size)
        };
        let sender = &self.shards[shard as usize].senders[index as usize];
        FlowRecord {
            source: state.source(),
            destination: state.destination(),
            size: state.size,
            sent: if state.end.is_some() { state.size } else { bytes(sender.packets_sent()) },
            delivered: if state.end.is_some() { state.size } else { bytes(packets) },
            start: state.start,
            end: state.end,
            acknowledged: sender.finished(),
            retransmitted: sender.resent,
            duplicates: receiver.duplicates(),
            cancelled: state.cancelled,
        }
    }

    pub fn records(&self) -> impl Iterator<Item = FlowRecord> {
        (0..self.flows.len()).map(|index| self.record(FlowId::from_index(index)))
    }

    /// Returns links whose ports wait for each other in a cycle, each for the next. The deadlock is
    /// permanent unless a link changes or packets are dropped.
    pub fn deadlock(&self) -> Option<Vec<LinkId>> {
        deadlock(self)
    }
}
