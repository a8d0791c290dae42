// SPDX-License-Identifier: Apache-2.0
//! A part of the network with everything that happens in it: the unit of parallel work.
//!
//! A shard owns its vertices, their output ports, the wires that end at them and the ends of flows
//! at its hosts. In a window no longer than the shortest delay nothing it sends can come back, so
//! it advances on its own, vertex by vertex:
//!
//! ```text
//!   wires in ──▶ arrivals of the window ──▶ one list per output port ──▶ sorted ──▶ ports ──▶ wires
//!                (host: one list, worked off in order of time with its flow starts and timers)
//! ```
//! Order at a vertex: time, then flow starts, arrivals, timeouts, data put on free ports; arrivals at
//! one instant by number of their link, starts and timeouts by number of their flow. Packets for
//! another shard wait in an outbox until the window ends.
//!
//! A host's data waits in its memory, not in the port: whenever a port is free, the flows that want
//! to use it take turns, a packet each. Acknowledgements go before them, straight into the port.

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
use super::port::{Port, PortCount};
use super::probe::{PacketArrival, Probe, Way};
use super::ring::PacketFifo;
use super::routes::Routes;
use super::sink::Sink;
use super::switch::SwitchQueues;
use super::switching::Switching;
use crate::transport::{Receiver, Sender};
use agenda::{Agenda, Due};
pub(crate) use pods::Pods;

/// What all shards read and none writes while a window runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) routes: Routes,
    pub(crate) acknowledgement_bytes: u16,
    pub(crate) header_bytes: u16,
    pub(crate) switching: Switching,
    /// Receiving hosts give credit.
    pub(crate) gives_credit: bool,
    /// Switches may have to choose.
    pub(crate) chooses: bool,
    /// Between the arrival of a packet at a host and what it does because of it, in picoseconds.
    pub(crate) host_delay: u64,
}

/// A stretch of simulated time, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimSpan {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// A vertex: where its wires and ports lie in the shard.
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

/// Packets under way on one link, first to arrive first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkWire {
    pub(crate) queue: PacketFifo,
    pub(crate) link: LinkId,
    /// The vertex it ends at, in this shard.
    pub(crate) vertex: u32,
}

/// Things that happen at a host besides arrivals.
#[derive(Clone, Debug)]
pub(crate) struct HostState {
    /// Sending ends that have not finished.
    active: Vec<u32>,
    /// No timeout is due before this.
    timer_due: u64,
    /// No port takes data before this.
    pull_due: u64,
    /// No credit is given before this; `u64::MAX`: none waits.
    credit_due: u64,
    pacer: credit::Pacer,
    /// Flow starts to come, and flows whose rate lets them send again: time, flow, sending end.
    starts: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Packets that have come in and that the host acts on at the time they bear, in order.
    inside: VecDeque<Packet>,
}

impl HostState {
    /// When the next flow starts, or may send again.
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

/// A flow whose last byte arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Completion {
    pub(crate) time: u64,
    pub(crate) flow: u32,
}

/// Packets for another shard.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    packets: Vec<Packet>,
    /// The wires they are on, each with how many of them in a row.
    runs: Vec<(u32, u32)>,
    earliest: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { packets: Vec::new(), runs: Vec::new(), earliest: u64::MAX }
    }
}

impl Outbox {
    /// What has been added since it held `before` packets goes on `wire`, the first of it arriving at `time`.
    #[inline(always)]
    fn close(&mut self, before: usize, wire: u32, time: u64) {
        self.earliest = self.earliest.min(time);
        self.runs.push((wire, (self.packets.len() - before) as u32));
    }
}

/// Packets made and used up, for the book-keeping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndCount {
    pub(crate) data_sent: u64,
    pub(crate) acknowledgements_sent: u64,
    pub(crate) frames_sent: u64,
    pub(crate) delivered: u64,
}

/// A part of the network. Shards stand side by side: none writes to a line of the cache that another reads.
#[derive(Clone, Debug)]
#[repr(align(128))]
pub(crate) struct Shard<P> {
    pub(crate) index: u32,
    pub(crate) vertices: Vec<Vertex>,
    /// By vertex: the queues of a switch that has real ones.
    pub(crate) switches: Vec<Option<Box<SwitchQueues>>>,
    pub(crate) pods: Pods,
    /// Nothing happens at a vertex before this.
    pub(crate) due: Agenda,
    pub(crate) ports: Vec<Port>,
    /// By port: its link.
    pub(crate) port_links: Vec<LinkId>,
    pub(crate) counts: Vec<PortCount>,
    /// By port of a host: sending ends that have data for it, the next one first.
    ready: Vec<VecDeque<u32>>,
    pub(crate) wires: Vec<LinkWire>,
    /// By wire: how fast packets come in.
    pub(crate) wire_rates: Vec<BitsPerSecond>,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) outboxes: Vec<Outbox>,
    /// By shard: what it has sent in the window before.
    pub(crate) inboxes: Vec<Outbox>,
    /// Arrivals handled since the load was last read.
    pub(crate) worked: u64,
    pub(crate) completions: Vec<Completion>,
    pub(crate) ends: EndCount,
    pub(crate) probe: P,
    scratch: Scratch,
}

/// Arrivals of one vertex in one window; kept to reuse the memory.
#[derive(Clone, Debug)]
struct Scratch {
    arrivals: Vec<Packet>,
    /// What takes their place at a host with a delay.
    acted_on: Vec<Packet>,
    /// By place: what a host has sent.
    sent: Vec<Vec<Packet>>,
    /// By place: bytes that came in by its wire, or somewhat more.
    came: Vec<u64>,
    /// Arrivals by output port, as time in the window and index. The index grows with the number of the link,
    /// so sorting breaks ties by link. Switches with real queues have two lists a port, control packets on the
    /// second.
    by_port: Lists,
    /// All of them.
    all: Vec<u64>,
    /// What [`touch`] read, kept so that it is read.
    touched: u64,
}

impl Scratch {
    fn new() -> Self {
        let (arrivals, acted_on, sent, came, all) = Default::default();
        let by_port = Lists::new(0);
        Self { arrivals, acted_on, sent, came, by_port, all, touched: 0 }
    }

    /// Puts the arrivals in order of time; those of one instant stay as they are.
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
    pub(crate) fn new(index: u32, shards: usize, probe: P) -> Self {
        Self {
            index,
            vertices: Vec::new(),
            switches: Vec::new(),
            pods: Pods::default(),
            due: Agenda::default(),
            ports: Vec::new(),
            port_links: Vec::new(),
            counts: Vec::new(),
            ready: Vec::new(),
            wires: Vec::new(),
            wire_rates: Vec::new(),
            hosts: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            outboxes: (0..shards).map(|_| Outbox::default()).collect(),
            inboxes: (0..shards).map(|_| Outbox::default()).collect(),
            worked: 0,
            completions: Vec::new(),
            ends: EndCount::default(),
            probe,
            scratch: Scratch::new(),
        }
    }

    /// Makes room for what the vertices need, once all are there.
    pub(crate) fn settle(&mut self) {
        let widest = self.vertices.iter().map(|vertex| vertex.ports().len()).max().unwrap_or(0);
        self.scratch.by_port = Lists::new(2 * widest);
        self.scratch.sent.resize(widest, Vec::new());
        self.due = Agenda::new(self.vertices.len());
        self.hosts.resize_with(self.vertices.len(), HostState::default);
        self.counts.resize(self.ports.len(), PortCount::default());
        self.ready.resize(self.ports.len(), VecDeque::new());
    }

    /// When the next thing happens; `u64::MAX`: never.
    pub(crate) fn next_due(&self) -> u64 {
        let received = self.inboxes.iter().map(|inbox| inbox.earliest);
        received.fold(self.due.earliest(), u64::min)
    }

    /// Takes in what other shards have sent, none of which arrives before `now`.
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

    /// Packets on their way here, and those that a host has not acted on yet.
    pub(crate) fn in_flight(&self) -> u64 {
        let wires = self.wires.iter().map(|wire| wire.queue.len());
        let inboxes = self.inboxes.iter().map(|inbox| inbox.packets.len());
        let inside = self.hosts.iter().map(|host| host.inside.len());
        let waiting = self.switches.iter().flatten().map(|switch| switch.waiting()).sum::<u64>();
        wires.chain(inboxes).chain(inside).sum::<usize>() as u64 + waiting
    }

    /// Shows every packet on its way here, and those that a host has not acted on yet.
    pub(crate) fn see_in_flight(&self, see: &mut impl FnMut(&Packet)) {
        self.wires.iter().for_each(|wire| wire.queue.iter().for_each(&mut *see));
        self.inboxes.iter().for_each(|inbox| inbox.packets.iter().for_each(&mut *see));
        self.hosts.iter().for_each(|host| host.inside.iter().for_each(&mut *see));
        self.switches.iter().flatten().for_each(|switch| switch.see_waiting(see));
    }

    /// Whether nothing is on its way here, and no flow that begins here has anything to send any more.
    pub(crate) fn is_quiet(&self) -> bool {
        let idle = |host: &HostState| host.active.is_empty() && host.starts.is_empty();
        self.in_flight() == 0 && self.hosts.iter().all(idle)
    }

    /// Does everything that happens in `span`.
    pub(crate) fn advance(&mut self, shared: &Shared, span: SimSpan) {
        self.receive(span.start);
        self.advance_part(shared, 0..self.vertices.len(), span);
    }

    /// Does everything that happens at `vertices` in `span`.
    pub(super) fn advance_part(&mut self, shared: &Shared, vertices: Range<usize>, span: SimSpan) {
        for block in Agenda::blocks(&vertices) {
            let due = self.due.vertices_before(&vertices, (block, span.end));
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

    /// Puts these packets on a wire, in place of what is on it; none arrives before `now`.
    pub(crate) fn put_on_wire(&mut self, wire: u32, queue: PacketFifo, now: u64) {
        let wire = &mut self.wires[wire as usize];
        if let Some(first) = queue.front() {
            self.due.of(wire.vertex as usize).no_later_than(now + first.after(now));
        }
        wire.queue = queue;
    }

    /// Loses everything on a wire. Returns how many packets that were.
    pub(crate) fn cut_wire(&mut self, wire: u32) -> u64 {
        let queue = &mut self.wires[wire as usize].queue;
        let lost = queue.len() as u64;
        queue.clear();
        lost
    }
}

/// What lies behind a port: its wire, with the time when something next happens at the far end, or the
/// outbox for the shard where the wire is. What comes behind something else on a wire changes nothing about that time.
pub(crate) enum Exit<'s> {
    Wire(&'s mut PacketFifo, Due<'s>),
    Outbox(&'s mut Outbox, u32),
}

/// Sends through an exit what a closure makes of its sink, at most `$most` packets, in a window that begins at
/// `$start`. The closure runs over a wire or over an outbox: two loops, so that none asks.
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
        port: &Port,
        here: u32,
        wires: &'s mut [LinkWire],
        due: &'s mut Agenda,
        outboxes: &'s mut [Outbox],
    ) -> Self {
        if u32::from(port.shard) == here {
            Self::Wire(&mut wires[port.wire as usize].queue, due.of(port.vertex as usize))
        } else {
            Self::Outbox(&mut outboxes[port.shard as usize], port.wire)
        }
    }

    /// Sends `packet`, which arrives at `time`.
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

/// Reads a little of what lies at the head of every wire. These reads do not depend on each other,
/// so the memory serves them together; the loops that follow would wait for each in turn.
#[inline]
fn touch(wires: &[LinkWire]) -> u64 {
    const PACKETS_PER_LINE: usize = 64 / size_of::<Packet>();
    let mut touched = 0;
    for wire in wires.iter().filter(|wire| wire.queue.len() > 0) {
        for line in 0..3 {
            touched ^= wire.queue.peek(line * PACKETS_PER_LINE);
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
