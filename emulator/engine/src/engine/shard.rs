// SPDX-License-Identifier: Apache-2.0
//! A part of the network with all its state: the unit of parallel work.
//!
//! A shard owns its vertices, their output ports, the wires that end at them and the flow ends at
//! its hosts. Windows are no longer than the shortest delay, so nothing sent by a shard can return
//! to it within a window. It therefore advances independently, vertex by vertex:
//!
//! ```text
//!   wires in ──▶ arrivals of the window ──▶ one list per output port ──▶ sorted ──▶ ports ──▶ wires
//!                (host: one list, processed in order of time with its flow starts and timers)
//! ```
//! Events at a vertex are ordered by time. At one instant, flow starts come first, then arrivals,
//! timeouts and sending on free ports. Simultaneous arrivals are ordered by link id, starts and
//! timeouts by flow id. Packets for other shards wait in an outbox until the end of the window.
//!
//! A host's data waits in its memory, not in the port. When a port is free, its flows take turns
//! with one packet each. Acknowledgements take precedence and go directly to the port.

pub(crate) mod again;
mod agenda;
mod choosing;
mod credit;
mod fifo;
mod host;
mod interfaces;
mod pods;
mod queued;
mod stack;
mod striped;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use lightloom_units::{BitsPerSecond, SimTime};

use super::lists::Lists;
use super::network::LinkId;
use super::packet::{Packet, flag};
use super::port::{Port, PortCount, WireEnd};
use super::probe::{PacketArrival, Probe, Way};
use super::ring::PacketFifo;
use super::routes::{NextHop, Routes};
use super::sink::Sink;
use super::switch::SwitchQueues;
use super::switching::Switching;
use crate::transport::{PortLoad, Receiver, Sender};
use agenda::{Agenda, Due};
pub(crate) use pods::Pods;

/// Shared by all shards, and constant during a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) routes: Routes,
    pub(crate) acknowledgement_bytes: u16,
    pub(crate) header_bytes: u16,
    pub(crate) switching: Switching,
    pub(crate) gives_credit: bool,
    pub(crate) chooses: bool,
    pub(crate) reads_telemetry: bool,
    /// The ports of a switch with bounded queues are always processed together.
    pub(crate) is_joint: bool,
    /// One bit for each priority of a flow.
    pub(crate) priorities: u8,
    pub(crate) host_delay: u64,
}

impl Shared {
    /// Returns the list of a packet: its output port, or the paused port for a pause frame.
    #[inline(always)]
    fn place_of(&self, packet: Packet, first_port: u32) -> u32 {
        if packet.is_pause_frame() {
            return packet.cursor() - first_port;
        }
        match self.routes.next(packet.cursor()) {
            NextHop::Port(place) => place,
            // With choices, all ports are processed together, so the list does not matter.
            NextHop::Choice(_) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SimSpan {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Vertex {
    pub(crate) first_wire: u32,
    pub(crate) end_wire: u32,
    pub(crate) first_port: u32,
    pub(crate) end_port: u32,
    pub(crate) is_host: bool,
}

impl Vertex {
    fn wires(&self) -> Range<usize> {
        self.first_wire as usize..self.end_wire as usize
    }
    fn ports(&self) -> Range<usize> {
        self.first_port as usize..self.end_port as usize
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LinkWire {
    pub(crate) queue: PacketFifo,
    pub(crate) link: LinkId,
    pub(crate) vertex: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct HostState {
    active: Vec<u32>,
    timer_due: u64,
    pull_due: u64,
    credit_due: u64,
    pacer: credit::Pacer,
    /// Flow starts, and paced flows that wait to send: time, flow and sender.
    starts: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Arrived packets in the order in which the host processes them, with the processing times.
    inside: VecDeque<Packet>,
}

impl HostState {
    #[inline(always)]
    fn next_start(&self) -> u64 {
        self.starts.peek().map_or(u64::MAX, |Reverse((time, ..))| *time)
    }
}

impl Default for HostState {
    fn default() -> Self {
        let (active, starts, inside) = (Vec::new(), BinaryHeap::new(), VecDeque::new());
        let pacer = credit::Pacer::default();
        let (timer_due, pull_due, credit_due) = (u64::MAX, u64::MAX, u64::MAX);
        Self { active, timer_due, pull_due, credit_due, pacer, starts, inside }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Completion {
    pub(crate) time: u64,
    pub(crate) flow: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    packets: Vec<Packet>,
    runs: Vec<(u32, u32)>,
    earliest: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { packets: Vec::new(), runs: Vec::new(), earliest: u64::MAX }
    }
}

impl Outbox {
    /// Ends a run of packets for `wire`: those added beyond `before`, the first of which arrives at `time`.
    #[inline(always)]
    fn close(&mut self, before: usize, wire: u32, time: u64) {
        self.earliest = self.earliest.min(time);
        self.runs.push((wire, (self.packets.len() - before) as u32));
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndCount {
    pub(crate) data_sent: u64,
    pub(crate) acknowledgements_sent: u64,
    pub(crate) frames_sent: u64,
    pub(crate) delivered: u64,
}

/// Aligned to prevent false sharing of cache lines between shards.
#[derive(Clone, Debug, Default)]
#[repr(align(128))]
pub(crate) struct Shard<P> {
    pub(crate) index: u32,
    pub(crate) vertices: Vec<Vertex>,
    pub(crate) switches: Vec<Option<Box<SwitchQueues>>>,
    pub(crate) pods: Pods,
    pub(crate) due: Agenda,
    pub(crate) ports: Vec<Port>,
    pub(crate) port_links: Vec<LinkId>,
    pub(crate) counts: Vec<PortCount>,
    /// For each port of a host, the senders with data for it, in order of service.
    ready: Vec<VecDeque<u32>>,
    pub(crate) wires: Vec<LinkWire>,
    pub(crate) wire_rates: Vec<BitsPerSecond>,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) outboxes: Vec<Outbox>,
    pub(crate) inboxes: Vec<Outbox>,
    pub(crate) worked: u64,
    pub(crate) completions: Vec<Completion>,
    pub(crate) telemetry: Vec<PortLoad>,
    pub(crate) ends: EndCount,
    pub(crate) probe: P,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    arrivals: Vec<Packet>,
    /// Replaces `arrivals` at a host with a delay.
    acted_on: Vec<Packet>,
    sent: Vec<Vec<Packet>>,
    /// Upper bound on the bytes that have arrived over each port's cable.
    came: Vec<u64>,
    /// Each key is a time in the window and an index that grows with the link id, so sorting breaks ties by link.
    by_port: Lists,
    all: Vec<u64>,
    /// Keeps the reads of [`touch`] from being optimized away.
    touched: u64,
}

impl Scratch {
    fn put_in_order(&mut self, start: u64) {
        let Self { arrivals, acted_on, all: keys, .. } = self;
        let places = arrivals.iter().zip(0u64..);
        keys.extend(places.map(|(packet, place)| packet.after(start) << 32 | place));
        keys.sort_unstable();
        acted_on.clear();
        acted_on.extend(keys.drain(..).map(|key| arrivals[key as u32 as usize]));
        std::mem::swap(arrivals, acted_on);
    }
}

impl<P: Probe> Shard<P> {
    /// Makes room in the lists of a vertex's ports, and returns an upper bound on the packets that arrive now.
    #[inline(always)]
    fn make_room(&mut self, shared: &Shared, vertex: Vertex) -> usize {
        let most = self.wires[vertex.wires()].iter().map(|wire| wire.queue.len()).sum();
        if !self.scratch.by_port.has_room(most) {
            self.widen_lists(shared, vertex, most);
        }
        most
    }

    #[cold]
    #[inline(never)]
    fn widen_lists(&mut self, shared: &Shared, vertex: Vertex, most: usize) {
        let packets = self.wires[vertex.wires()].iter().flat_map(|wire| wire.queue.iter());
        let places = packets.map(|packet| shared.place_of(*packet, vertex.first_port) as usize);
        self.scratch.by_port.make_room(most, places);
    }

    pub(crate) fn new(index: u32, shards: usize, probe: P) -> Self {
        Self {
            index,
            outboxes: (0..shards).map(|_| Outbox::default()).collect(),
            inboxes: (0..shards).map(|_| Outbox::default()).collect(),
            probe,
            ..Self::default()
        }
    }

    pub(crate) fn settle(&mut self) {
        let widest = self.vertices.iter().map(|vertex| vertex.ports().len()).max().unwrap_or(0);
        self.scratch.by_port = Lists::new(widest);
        self.scratch.sent.resize(widest, Vec::new());
        self.due = Agenda::new(self.vertices.len());
        self.hosts.resize_with(self.vertices.len(), HostState::default);
        self.counts.resize(self.ports.len(), PortCount::default());
        self.ready.resize(self.ports.len(), VecDeque::new());
    }

    pub(crate) fn wait_anew(&mut self, vertex: u32, sender: u32, now: u64) {
        let ports = self.vertices[vertex as usize].ports();
        for ready in &mut self.ready[ports] {
            ready.retain(|waiting| *waiting != sender);
        }
        self.senders[sender as usize].enlisted = false;
        if self.senders[sender as usize].started {
            self.plan_start(vertex, sender, now);
        }
    }

    pub(crate) fn pace_credits(&mut self, bits: u64) {
        for (vertex, host) in self.vertices.iter().zip(&mut self.hosts) {
            host.pacer = credit::Pacer::new(bits, &self.wire_rates[vertex.wires()]);
        }
    }

    pub(crate) fn next_due(&self) -> u64 {
        let received = self.inboxes.iter().map(|inbox| inbox.earliest);
        received.fold(self.due.earliest(), u64::min)
    }

    pub(crate) fn receive(&mut self, now: u64) {
        for inbox in &mut self.inboxes {
            let mut packets = inbox.packets.drain(..);
            for (wire, count) in inbox.runs.drain(..) {
                let wire = &mut self.wires[wire as usize];
                let mut tail = wire.queue.tail(count as usize);
                packets.by_ref().take(count as usize).for_each(|packet| tail.push(packet));
                if let Some(first) = tail.close() {
                    self.due.of(wire.vertex as usize).no_later_than(now + first.after(now));
                }
            }
            drop(packets);
            inbox.earliest = u64::MAX;
        }
    }

    pub(crate) fn in_flight(&self) -> u64 {
        let wires = self.wires.iter().map(|wire| wire.queue.len());
        let inboxes = self.inboxes.iter().map(|inbox| inbox.packets.len());
        let inside = self.hosts.iter().map(|host| host.inside.len());
        let waiting = self.switches.iter().flatten().map(|switch| switch.waiting()).sum::<u64>();
        wires.chain(inboxes).chain(inside).sum::<usize>() as u64 + waiting
    }

    pub(crate) fn see_in_flight(&self, see: &mut impl FnMut(&Packet)) {
        self.wires.iter().for_each(|wire| wire.queue.iter().for_each(&mut *see));
        self.inboxes.iter().for_each(|inbox| inbox.packets.iter().for_each(&mut *see));
        self.hosts.iter().for_each(|host| host.inside.iter().for_each(&mut *see));
        self.switches.iter().flatten().for_each(|switch| switch.see_waiting(see));
    }

    /// No packet is in flight, and no flow that starts here has data left to send.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut hosts = self.hosts.iter();
        self.in_flight() == 0 && hosts.all(|host| host.active.is_empty() && host.starts.is_empty())
    }

    pub(crate) fn advance(&mut self, shared: &Shared, span: SimSpan) {
        self.receive(span.start);
        self.advance_part(shared, 0..self.vertices.len(), span);
    }

    pub(super) fn advance_part(&mut self, shared: &Shared, vertices: Range<usize>, span: SimSpan) {
        for block in Agenda::blocks(&vertices) {
            let due = self.due.vertices_before(&vertices, block, span.end);
            if due.is_empty() {
                continue;
            }
            for vertex in due {
                if self.due.is_before(vertex, span.end) {
                    self.advance_vertex(shared, vertex, span);
                }
            }
            self.due.settle(block);
        }
    }

    #[inline(always)]
    fn advance_vertex(&mut self, shared: &Shared, vertex: usize, span: SimSpan) {
        if !self.probe.may_leap() {
            self.show_arrivals(shared, vertex, span);
        }
        if self.vertices[vertex].is_host {
            self.advance_host(shared, vertex, span);
        } else if let Some(switch) = self.switches[vertex].take() {
            self.advance_queued(shared, vertex, span, switch);
        } else if shared.chooses {
            self.advance_choosing(shared, vertex, span);
        } else if shared.switching == Switching::CutThrough {
            self.advance_switch::<true>(shared, vertex, span);
        } else {
            self.advance_switch::<false>(shared, vertex, span);
        }
    }

    #[cold]
    fn show_arrivals(&mut self, shared: &Shared, vertex: usize, span: SimSpan) {
        for LinkWire { queue, link, .. } in &self.wires[self.vertices[vertex].wires()] {
            let due = queue.iter().map(|packet| (packet, span.start + packet.after(span.start)));
            for (packet, at) in due.take_while(|(_, at)| *at < span.end) {
                if !packet.is_pause_frame() {
                    self.probe.arrived(seen(packet, at, *link, shared.acknowledgement_bytes));
                }
            }
        }
    }

    pub(crate) fn put_on_wire(&mut self, wire: u32, queue: PacketFifo, now: u64) {
        let wire = &mut self.wires[wire as usize];
        if let Some(first) = queue.front() {
            self.due.of(wire.vertex as usize).no_later_than(now + first.after(now));
        }
        wire.queue = queue;
    }

    pub(crate) fn cut_wire(&mut self, wire: u32) -> u64 {
        let queue = &mut self.wires[wire as usize].queue;
        let lost = queue.len() as u64;
        queue.clear();
        lost
    }
}

/// A wire, with the event time of the vertex at its far end, or the outbox for another shard.
pub(crate) enum Exit<'s> {
    Wire(&'s mut PacketFifo, Due<'s>),
    Outbox(&'s mut Outbox, u32),
}

/// Wires and outboxes get separate code, so that the inner loop need not distinguish them.
macro_rules! send_through {
    ($exit:expr, $start:expr, $most:expr, |$sink:ident| $send:expr) => {
        match $exit {
            Exit::Wire(wire, mut due) => {
                let mut tail = wire.tail($most);
                {
                    let $sink = &mut tail;
                    $send
                }
                if let Some(first) = tail.close() {
                    due.no_later_than($start + first.after($start));
                }
            }
            Exit::Outbox(outbox, wire) => {
                let before = outbox.packets.len();
                {
                    let $sink = &mut outbox.packets;
                    $send
                }
                if let Some(first) = outbox.packets.get(before) {
                    outbox.close(before, wire, $start + first.after($start));
                }
            }
        }
    };
}
use send_through;

impl<'s> Exit<'s> {
    #[inline(always)]
    fn of(
        to: WireEnd,
        here: u32,
        wires: &'s mut [LinkWire],
        due: &'s mut Agenda,
        outboxes: &'s mut [Outbox],
    ) -> Self {
        if u32::from(to.shard) == here {
            Self::Wire(&mut wires[to.wire as usize].queue, due.of(to.vertex as usize))
        } else {
            Self::Outbox(&mut outboxes[usize::from(to.shard)], to.wire)
        }
    }

    #[inline(always)]
    pub(crate) fn send(&mut self, packet: Packet, time: u64) {
        match self {
            Self::Wire(wire, due) => {
                if wire.len() == 0 {
                    due.no_later_than(time);
                }
                wire.push(packet);
            }
            Self::Outbox(outbox, wire) => {
                outbox.packets.push(packet);
                outbox.close(outbox.packets.len() - 1, *wire, time);
            }
        }
    }
}

/// Prefetches the heads of all wires. These reads are independent, so memory serves them in parallel.
#[inline]
fn touch(wires: &[LinkWire]) -> u64 {
    const PACKETS_PER_LINE: usize = 64 / size_of::<Packet>();
    let mut touched = 0;
    for wire in wires {
        for place in (0..wire.queue.len().min(3 * PACKETS_PER_LINE)).step_by(PACKETS_PER_LINE) {
            touched ^= wire.queue.peek(place);
        }
    }
    touched
}

fn seen(packet: &Packet, at: u64, link: LinkId, acknowledgement_bytes: u16) -> PacketArrival {
    PacketArrival {
        at: SimTime(at),
        link,
        sequence: packet.sequence(),
        acknowledgement: packet.is_acknowledgement(),
        marked: packet.has(flag::MARKED),
        wire_bytes: if packet.is_acknowledgement() {
            acknowledgement_bytes
        } else {
            packet.extra()
        },
        way: Way(packet.cursor()),
    }
}
