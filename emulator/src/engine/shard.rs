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

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

use lightloom_fabric::units::SimTime;

use super::network::LinkId;
use super::packet::{Contents, Packet, flag};
use super::port::{Port, PortCount};
use super::probe::{Arrival, Probe, Way};
use super::queued::{Outlet, Switch};
use crate::transport::{Receiver, Sender};

/// Ends a route: the packet is delivered.
pub(crate) const DELIVER: u32 = u32::MAX;

/// What all shards read and none writes while a window runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    /// Output ports, as indices in the shard that owns them, of all ways one after another, each
    /// way ended by [`DELIVER`].
    pub(crate) routes: Vec<u32>,
    pub(crate) acknowledgement_bytes: u16,
    pub(crate) header_bytes: u16,
}

/// A stretch of simulated time, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
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
pub(crate) struct Wire {
    pub(crate) queue: VecDeque<Packet>,
    pub(crate) link: LinkId,
    /// The vertex it ends at, in this shard.
    pub(crate) vertex: u32,
}

/// Things that happen at a host besides arrivals.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Sending ends that have not finished.
    active: Vec<u32>,
    /// No timeout is due before this.
    timer_due: u64,
    /// No port takes data before this.
    pull_due: u64,
    /// Flow starts to come, and flows whose rate lets them send again: time, flow, sending end.
    starts: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl Default for Host {
    fn default() -> Self {
        let (active, starts) = (Vec::new(), BinaryHeap::new());
        Self { active, timer_due: u64::MAX, pull_due: u64::MAX, starts }
    }
}

/// A flow whose last byte arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Completion {
    pub(crate) time: u64,
    pub(crate) flow: u32,
}

/// Packets for another shard, with the wire they are on.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    packets: Vec<(u32, Packet)>,
    earliest: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { packets: Vec::new(), earliest: u64::MAX }
    }
}

impl Outbox {
    #[inline]
    fn push(&mut self, wire: u32, packet: Packet) {
        self.earliest = self.earliest.min(packet.time);
        self.packets.push((wire, packet));
    }
}

/// Packets made and used up, for the book-keeping.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndCount {
    pub(crate) data_sent: u64,
    pub(crate) acknowledgements_sent: u64,
    pub(crate) frames_sent: u64,
    pub(crate) delivered: u64,
}

/// A part of the network.
#[derive(Clone, Debug)]
pub(crate) struct Shard<P> {
    pub(crate) index: u32,
    pub(crate) vertices: Vec<Vertex>,
    /// By vertex: the queues of a switch that has real ones.
    pub(crate) switches: Vec<Option<Box<Switch>>>,
    /// Nothing happens at a vertex before this.
    pub(crate) due: Vec<u64>,
    pub(crate) ports: Vec<Port>,
    /// By port: its link.
    pub(crate) port_links: Vec<LinkId>,
    pub(crate) counts: Vec<PortCount>,
    /// By port of a host: sending ends that have data for it, the next one first.
    ready: Vec<VecDeque<u32>>,
    pub(crate) wires: Vec<Wire>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) receivers: Vec<Receiver>,
    pub(crate) outboxes: Vec<Outbox>,
    /// By shard: what it has sent in the window before.
    pub(crate) inboxes: Vec<Outbox>,
    /// Arrivals handled since somebody last looked: how much there is to do.
    pub(crate) worked: u64,
    pub(crate) completions: Vec<Completion>,
    pub(crate) ends: EndCount,
    pub(crate) probe: P,
    scratch: Scratch,
}

/// Arrivals of one vertex in one window; kept to reuse the memory.
#[derive(Clone, Debug, Default)]
struct Scratch {
    arrivals: Vec<Packet>,
    /// By arrival: the place of its wire at the vertex.
    ingress: Vec<u32>,
    /// Arrivals by output port, as time in the window (upper half) and index (lower half). The index
    /// grows with the number of the link, so sorting breaks ties by link.
    by_port: Vec<Vec<u64>>,
    /// What one port sends in the window.
    departures: Vec<Packet>,
    /// What [`touch`] read, kept so that it is read.
    touched: u64,
}

impl<P: Probe> Shard<P> {
    pub(crate) fn new(index: u32, shards: usize, probe: P) -> Self {
        Self {
            index,
            vertices: Vec::new(),
            switches: Vec::new(),
            due: Vec::new(),
            ports: Vec::new(),
            port_links: Vec::new(),
            counts: Vec::new(),
            ready: Vec::new(),
            wires: Vec::new(),
            hosts: Vec::new(),
            senders: Vec::new(),
            receivers: Vec::new(),
            outboxes: (0..shards).map(|_| Outbox::default()).collect(),
            inboxes: (0..shards).map(|_| Outbox::default()).collect(),
            worked: 0,
            completions: Vec::new(),
            ends: EndCount::default(),
            probe,
            scratch: Scratch::default(),
        }
    }

    /// Makes room for what the vertices need, once all are there.
    pub(crate) fn settle(&mut self) {
        let widest = self.vertices.iter().map(|vertex| vertex.ports().len()).max().unwrap_or(0);
        self.scratch.by_port.resize(widest.max(1), Vec::new());
        self.due = vec![u64::MAX; self.vertices.len()];
        self.hosts.resize_with(self.vertices.len(), Host::default);
        self.counts.resize(self.ports.len(), PortCount::default());
        self.ready.resize(self.ports.len(), VecDeque::new());
    }

    /// When the next thing happens; `u64::MAX`: never.
    pub(crate) fn next_due(&self) -> u64 {
        let received = self.inboxes.iter().map(|inbox| inbox.earliest);
        self.due.iter().copied().chain(received).min().unwrap_or(u64::MAX)
    }

    /// Takes in what other shards have sent.
    pub(crate) fn receive(&mut self) {
        for inbox in &mut self.inboxes {
            for (wire, packet) in inbox.packets.drain(..) {
                let wire = &mut self.wires[wire as usize];
                let due = &mut self.due[wire.vertex as usize];
                *due = (*due).min(packet.time);
                wire.queue.push_back(packet);
            }
            inbox.earliest = u64::MAX;
        }
    }

    /// Packets on their way here.
    pub(crate) fn in_flight(&self) -> u64 {
        let wires = self.wires.iter().map(|wire| wire.queue.len());
        let inboxes = self.inboxes.iter().map(|inbox| inbox.packets.len());
        let waiting = self.switches.iter().flatten().map(|switch| switch.waiting()).sum::<u64>();
        wires.chain(inboxes).sum::<usize>() as u64 + waiting
    }

    /// Whether nothing is on its way here, and no flow that begins here has anything to send any more.
    pub(crate) fn is_quiet(&self) -> bool {
        let idle = |host: &Host| host.active.is_empty() && host.starts.is_empty();
        self.in_flight() == 0 && self.hosts.iter().all(idle)
    }

    /// Does everything that happens in `span`.
    pub(crate) fn advance(&mut self, shared: &Shared, span: Span) {
        self.receive();
        for vertex in 0..self.vertices.len() {
            if self.due[vertex] < span.end {
                if self.vertices[vertex].is_host {
                    self.advance_host(shared, vertex, span);
                } else if let Some(switch) = self.switches[vertex].take() {
                    self.advance_queued(shared, vertex, span, switch);
                } else {
                    self.advance_switch(shared, vertex, span);
                }
            }
        }
    }

    fn advance_switch(&mut self, shared: &Shared, index: usize, span: Span) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let Scratch { arrivals, by_port, .. } = &mut self.scratch;
        arrivals.clear();
        let mut due = u64::MAX;
        for wire in &mut self.wires[vertex.wires()] {
            let mut taken = 0;
            let (head, tail) = wire.queue.as_slices();
            'wire: for part in [head, tail] {
                for &packet in part {
                    if packet.time >= span.end {
                        due = due.min(packet.time);
                        break 'wire;
                    }
                    self.probe.arrived(seen(&packet, wire.link, shared.acknowledgement_bytes));
                    let port = shared.routes[packet.cursor() as usize] - vertex.first_port;
                    let key = (packet.time - span.start) << 32 | arrivals.len() as u64;
                    by_port[port as usize].push(key);
                    arrivals.push(packet.advanced());
                    taken += 1;
                }
            }
            wire.queue.drain(..taken);
        }
        self.due[index] = due;
        self.worked += arrivals.len() as u64;
        for (place, port) in vertex.ports().enumerate() {
            if !self.scratch.by_port[place].is_empty() {
                self.forward(port, place, span.start);
            }
        }
    }

    /// Sends the arrivals listed for one output port, in order.
    fn forward(&mut self, port: usize, place: usize, start: u64) {
        let Scratch { arrivals, by_port, departures, .. } = &mut self.scratch;
        let keys = &mut by_port[place];
        let link = self.port_links[port];
        let (port, count) = (&mut self.ports[port], &mut self.counts[port]);
        if !port.up {
            count.lost += keys.len() as u64;
            keys.clear();
            return;
        }
        keys.sort_unstable();
        // Worked on as copies, which the compiler keeps in registers.
        let (mut state, mut tally) = (port.clone(), PortCount::default());
        let sent_before = count.packets;
        let probe = &mut self.probe;
        let admitted = keys.drain(..).filter_map(|key| {
            let (packet, now) = (arrivals[key as u32 as usize], start + (key >> 32));
            if P::SEES_QUEUES {
                probe.queued(link, state.backlog(now));
            }
            let sent = state.admit(now, packet, &mut tally)?;
            if state.corrupts(&sent, sent_before + tally.packets) {
                tally.lost += 1;
                return None;
            }
            Some(sent)
        });
        if port.shard == self.index {
            departures.clear();
            departures.extend(admitted);
            let due = &mut self.due[port.vertex as usize];
            *due = departures.first().map_or(*due, |packet| packet.time.min(*due));
            self.wires[port.wire as usize].queue.extend(&*departures);
        } else {
            let outbox = &mut self.outboxes[port.shard as usize];
            admitted.for_each(|packet| outbox.push(port.wire, packet));
        }
        port.free = state.free;
        count.add(tally);
    }

    /// A switch with real queues: works off arrivals and ends of transmissions in order of time.
    fn advance_queued(
        &mut self,
        shared: &Shared,
        index: usize,
        span: Span,
        mut switch: Box<Switch>,
    ) {
        self.collect_in_order(shared, index, span);
        let vertex = self.vertices[index];
        let keys = std::mem::take(&mut self.scratch.by_port[0]);
        let mut next = 0;
        loop {
            let arrival = keys.get(next).map_or(u64::MAX, |key| span.start + (key >> 32));
            let end = switch.next_end();
            if end.min(arrival) >= span.end {
                break;
            }
            if end <= arrival {
                switch.end_transmission(&mut self.outlet(shared, index));
                continue;
            }
            let place = keys[next] as u32 as usize;
            let (packet, ingress) = (self.scratch.arrivals[place], self.scratch.ingress[place]);
            next += 1;
            if packet.is_pause_frame() {
                self.ends.delivered += 1;
                if self.ports[packet.endpoint() as usize].obey(&packet) {
                    let port = packet.endpoint() - vertex.first_port;
                    switch.send_next(port, packet.time, &mut self.outlet(shared, index));
                }
            } else {
                let port = shared.routes[packet.cursor() as usize] - vertex.first_port;
                let out = &mut self.outlet(shared, index);
                switch.enqueue((ingress, port), packet.advanced(), out);
            }
        }
        self.scratch.by_port[0] = keys;
        self.scratch.by_port[0].clear();
        let arrivals = self.wires[vertex.wires()].iter().filter_map(|wire| wire.queue.front());
        let due = arrivals.map(|packet| packet.time).min().unwrap_or(u64::MAX);
        self.due[index] = due.min(switch.next_end());
        self.switches[index] = Some(switch);
    }

    /// The ports of a vertex, for its queues.
    fn outlet(&mut self, shared: &Shared, index: usize) -> VertexOutlet<'_> {
        let ports = self.vertices[index].ports();
        VertexOutlet {
            shard: self.index,
            header_bytes: shared.header_bytes,
            ports: &mut self.ports[ports.clone()],
            counts: &mut self.counts[ports],
            wires: &mut self.wires,
            due: &mut self.due,
            outboxes: &mut self.outboxes,
            ends: &mut self.ends,
        }
    }

    /// The link behind a port has changed: what waits in its queues is lost, and what it has asked of
    /// the far end is void.
    pub(crate) fn cut_port(&mut self, shared: &Shared, vertex: u32, port: u32, now: u64) {
        let Some(mut switch) = self.switches[vertex as usize].take() else { return };
        let place = port - self.vertices[vertex as usize].first_port;
        let out = &mut self.outlet(shared, vertex as usize);
        let lost = switch.cut(place, now, out);
        self.counts[port as usize].lost += lost;
        self.keep(vertex, switch);
    }

    /// The link that comes in beside a port has changed: the pauses it has carried here are void.
    pub(crate) fn forget_pauses(&mut self, shared: &Shared, vertex: u32, port: u32, now: u64) {
        self.ports[port as usize].paused = 0;
        let Some(mut switch) = self.switches[vertex as usize].take() else {
            return self.wake(vertex, now);
        };
        let place = port - self.vertices[vertex as usize].first_port;
        switch.send_next(place, now, &mut self.outlet(shared, vertex as usize));
        self.keep(vertex, switch);
    }

    fn keep(&mut self, vertex: u32, switch: Box<Switch>) {
        let due = &mut self.due[vertex as usize];
        *due = (*due).min(switch.next_end());
        self.switches[vertex as usize] = Some(switch);
    }

    fn advance_host(&mut self, shared: &Shared, index: usize, span: Span) {
        self.collect_in_order(shared, index, span);
        let keys = std::mem::take(&mut self.scratch.by_port[0]);
        let mut next = 0;
        loop {
            let arrival = keys.get(next).map_or(u64::MAX, |key| span.start + (key >> 32));
            let host = &self.hosts[index];
            let start = host.starts.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
            let now = arrival.min(start).min(host.timer_due).min(host.pull_due);
            if now >= span.end {
                break;
            }
            if start == now {
                self.start_flow(shared, index);
            } else if arrival == now {
                let packet = self.scratch.arrivals[keys[next] as u32 as usize];
                next += 1;
                self.arrive(shared, index, packet);
            } else if host.timer_due == now {
                self.time_out(shared, index, now);
            } else {
                self.pull(shared, index, now);
            }
        }
        self.scratch.by_port[0] = keys;
        self.scratch.by_port[0].clear();
        self.set_host_due(index);
    }

    /// Lists the arrivals of the window in order.
    fn collect_in_order(&mut self, shared: &Shared, index: usize, span: Span) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let Scratch { arrivals, ingress, by_port, .. } = &mut self.scratch;
        let keys = &mut by_port[0];
        arrivals.clear();
        ingress.clear();
        let mut sources = 0;
        for (place, wire) in self.wires[vertex.wires()].iter_mut().enumerate() {
            let before = arrivals.len();
            while let Some(&packet) = wire.queue.front() {
                if packet.time >= span.end {
                    break;
                }
                wire.queue.pop_front();
                if !packet.is_pause_frame() {
                    self.probe.arrived(seen(&packet, wire.link, shared.acknowledgement_bytes));
                }
                keys.push((packet.time - span.start) << 32 | arrivals.len() as u64);
                arrivals.push(packet);
                ingress.push(place as u32);
            }
            sources += usize::from(arrivals.len() > before);
        }
        self.worked += arrivals.len() as u64;
        if sources > 1 {
            keys.sort_unstable();
        }
    }

    fn set_host_due(&mut self, index: usize) {
        let vertex = self.vertices[index];
        let host = &self.hosts[index];
        let start = host.starts.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
        let mut due = start.min(host.timer_due).min(host.pull_due);
        for wire in &self.wires[vertex.wires()] {
            due = wire.queue.front().map_or(due, |packet| due.min(packet.time));
        }
        self.due[index] = due;
    }

    /// Plans the start of the flow of `sender` at its host.
    pub(crate) fn plan_start(&mut self, vertex: u32, sender: u32, time: u64) {
        let flow = self.senders[sender as usize].flow;
        self.hosts[vertex as usize].starts.push(Reverse((time, flow, sender)));
        let due = &mut self.due[vertex as usize];
        *due = (*due).min(time);
    }

    fn start_flow(&mut self, shared: &Shared, vertex: usize) {
        let host = &mut self.hosts[vertex];
        let Some(Reverse((now, _, sender))) = host.starts.pop() else { return };
        let end = &mut self.senders[sender as usize];
        if end.started {
            // It has waited for its rate to let it send again.
            end.enlisted = false;
            return self.enlist(shared, vertex, sender, now);
        }
        if end.is_done() {
            return;
        }
        end.started = true;
        host.active.push(sender);
        self.release(sender);
        self.enlist(shared, vertex, sender, now);
    }

    /// Lets go the messages whose gates are open.
    fn release(&mut self, sender: u32) {
        let sender = &mut self.senders[sender as usize];
        let receivers = &self.receivers;
        let opened = sender.gates.iter().map(|&(receiver, ahead)| {
            let receiver = &receivers[receiver as usize];
            let counted = receiver.delivered().saturating_add_signed(ahead);
            if receiver.is_done() { u32::MAX } else { counted }
        });
        let messages = opened.min().unwrap_or(u32::MAX);
        sender.release(messages);
    }

    fn arrive(&mut self, shared: &Shared, vertex: usize, packet: Packet) {
        if packet.is_pause_frame() {
            self.ends.delivered += 1;
            if self.ports[packet.endpoint() as usize].obey(&packet) {
                let host = &mut self.hosts[vertex];
                host.pull_due = host.pull_due.min(packet.time);
            }
            return;
        }
        let port = shared.routes[packet.cursor() as usize];
        if port != DELIVER {
            return self.transmit(port, packet.time, packet.advanced());
        }
        self.ends.delivered += 1;
        if packet.is_acknowledgement() {
            let sender = &mut self.senders[packet.endpoint() as usize];
            sender.acknowledged(&packet, packet.time);
            let host = &mut self.hosts[vertex];
            host.timer_due = host.timer_due.min(sender.deadline);
            if sender.is_done() {
                host.active.retain(|active| *active != packet.endpoint());
            } else {
                self.enlist(shared, vertex, packet.endpoint(), packet.time);
            }
        } else {
            self.arrive_data(shared, vertex, &packet);
        }
    }

    fn arrive_data(&mut self, shared: &Shared, vertex: usize, packet: &Packet) {
        let now = packet.time;
        let receiver = &mut self.receivers[packet.endpoint() as usize];
        let was_done = receiver.is_done();
        let (acknowledgement, message_completed) = receiver.data(packet);
        if receiver.is_done() && !was_done {
            self.completions.push(Completion { time: now, flow: receiver.flow });
        }
        self.ends.acknowledgements_sent += 1;
        let port = shared.routes[acknowledgement.cursor() as usize];
        self.transmit(port, now, acknowledgement.advanced());
        if message_completed {
            for index in 0..self.receivers[packet.endpoint() as usize].dependents.len() {
                let sender = self.receivers[packet.endpoint() as usize].dependents[index];
                self.release(sender);
                // A flow that has not started yet looks at its gates when it does.
                if self.senders[sender as usize].started {
                    self.enlist(shared, vertex, sender, now);
                }
            }
        }
    }

    /// Lets the flow of `index` take its turns at its port, if it has something to send.
    #[inline]
    fn enlist(&mut self, shared: &Shared, vertex: usize, index: u32, now: u64) {
        let sender = &mut self.senders[index as usize];
        if !sender.enlisted && sender.wants_to_send() {
            sender.enlisted = true;
            if sender.next_send() > now {
                let wake = (sender.next_send(), sender.flow, index);
                self.hosts[vertex].starts.push(Reverse(wake));
                return;
            }
            let port = shared.routes[sender.cursor as usize] as usize;
            self.ready[port].push_back(index);
            let host = &mut self.hosts[vertex];
            host.pull_due = host.pull_due.min(self.ports[port].free.max(now));
        }
    }

    /// Puts a packet of data on each port of a host that is free at `now`.
    fn pull(&mut self, shared: &Shared, vertex: usize, now: u64) {
        let mut due = u64::MAX;
        for port in self.vertices[vertex].ports() {
            if !self.has_ready(port) || !self.ports[port].up {
                continue;
            }
            if self.ports[port].free <= now {
                self.pull_one(shared, vertex, port, now);
            }
            if self.has_ready(port) {
                due = due.min(self.ports[port].free.max(now));
            }
        }
        self.hosts[vertex].pull_due = due;
    }

    /// Whether a flow whose priority is not paused waits for a port.
    #[inline]
    fn has_ready(&self, port: usize) -> bool {
        let (ready, paused) = (&self.ready[port], self.ports[port].paused);
        let may = |sender: &u32| paused & (1 << self.senders[*sender as usize].priority) == 0;
        if paused == 0 { !ready.is_empty() } else { ready.iter().any(may) }
    }

    /// Takes the flow whose turn it is among those whose priority is not paused.
    #[inline]
    fn next_ready(&mut self, port: usize) -> Option<u32> {
        let (ready, paused) = (&mut self.ready[port], self.ports[port].paused);
        if paused == 0 {
            return ready.pop_front();
        }
        let may = |sender: &u32| paused & (1 << self.senders[*sender as usize].priority) == 0;
        let place = ready.iter().position(may)?;
        ready.remove(place)
    }

    /// Sends the next packet of the flow whose turn it is at a port.
    fn pull_one(&mut self, shared: &Shared, vertex: usize, port: usize, now: u64) {
        while let Some(index) = self.next_ready(port) {
            let sender = &mut self.senders[index as usize];
            let first_port = shared.routes[sender.cursor as usize];
            sender.enlisted = false;
            if first_port as usize != port {
                // The flow has been given another path while it waited.
                self.enlist(shared, vertex, index, now);
                continue;
            }
            let Some(outgoing) = sender.poll(now) else { continue };
            if sender.wants_to_send() {
                sender.enlisted = true;
                if sender.next_send() > now {
                    let wake = (sender.next_send(), sender.flow, index);
                    self.hosts[vertex].starts.push(Reverse(wake));
                } else {
                    self.ready[port].push_back(index);
                }
            }
            let packet = Packet::new(Contents {
                endpoint: sender.peer,
                cursor: outgoing.cursor + 1,
                sequence: outgoing.sequence,
                extra: outgoing.wire_bytes,
                flags: u16::from(sender.priority) << flag::PRIORITY_SHIFT
                    | if outgoing.resent { flag::RESENT } else { 0 },
            });
            let host = &mut self.hosts[vertex];
            host.timer_due = host.timer_due.min(sender.deadline);
            self.ends.data_sent += 1;
            return self.transmit(first_port, now, packet);
        }
    }

    /// A port of a vertex has come up: what waits for it may go.
    pub(crate) fn wake(&mut self, vertex: u32, now: u64) {
        let host = &mut self.hosts[vertex as usize];
        host.pull_due = host.pull_due.min(now);
        let due = &mut self.due[vertex as usize];
        *due = (*due).min(now);
    }

    /// Lets the flow with the earliest deadline before or at `now` time out, if there is one.
    #[cold]
    fn time_out(&mut self, shared: &Shared, vertex: usize, now: u64) {
        let senders = &self.senders;
        let deadline = |sender: &u32| {
            let end = &senders[*sender as usize];
            (end.deadline, end.flow, *sender)
        };
        let earliest = self.hosts[vertex].active.iter().map(deadline).min();
        let Some((deadline, _, sender)) = earliest else {
            self.hosts[vertex].timer_due = u64::MAX;
            return;
        };
        self.hosts[vertex].timer_due = deadline;
        if deadline <= now {
            self.senders[sender as usize].timed_out(now);
            self.enlist(shared, vertex, sender, now);
        }
    }

    /// Puts a packet into an output port of a host at `now`.
    #[inline]
    fn transmit(&mut self, port: u32, now: u64, packet: Packet) {
        let place = port as usize;
        let (port, count) = (&mut self.ports[port as usize], &mut self.counts[port as usize]);
        if !port.up {
            count.lost += 1;
            return;
        }
        if P::SEES_QUEUES {
            self.probe.queued(self.port_links[place], port.backlog(now));
        }
        let Some(packet) = port.admit(now, packet, count) else { return };
        if port.corrupts(&packet, count.packets) {
            count.lost += 1;
            return;
        }
        if port.shard == self.index {
            self.wires[port.wire as usize].queue.push_back(packet);
            let due = &mut self.due[port.vertex as usize];
            *due = (*due).min(packet.time);
        } else {
            self.outboxes[port.shard as usize].push(port.wire, packet);
        }
    }

    /// Stops a flow's sending end.
    pub(crate) fn cancel(&mut self, vertex: u32, sender: u32) {
        self.senders[sender as usize].cancel();
        self.hosts[vertex as usize].active.retain(|active| *active != sender);
    }

    /// Loses everything on a wire. Returns how many packets that were.
    pub(crate) fn cut_wire(&mut self, wire: u32) -> u64 {
        let queue = &mut self.wires[wire as usize].queue;
        let lost = queue.len() as u64;
        queue.clear();
        lost
    }
}

/// The ports of one vertex and the wires behind them.
struct VertexOutlet<'s> {
    shard: u32,
    header_bytes: u16,
    ports: &'s mut [Port],
    counts: &'s mut [PortCount],
    wires: &'s mut [Wire],
    due: &'s mut [u64],
    outboxes: &'s mut [Outbox],
    ends: &'s mut EndCount,
}

impl Outlet for VertexOutlet<'_> {
    fn port(&mut self, place: u32) -> (&mut Port, &mut PortCount) {
        (&mut self.ports[place as usize], &mut self.counts[place as usize])
    }
    fn launch(&mut self, place: u32, packet: Packet) {
        let port = &self.ports[place as usize];
        if port.shard == self.shard {
            self.wires[port.wire as usize].queue.push_back(packet);
            let due = &mut self.due[port.vertex as usize];
            *due = (*due).min(packet.time);
        } else {
            self.outboxes[port.shard as usize].push(port.wire, packet);
        }
    }
    fn frame_made(&mut self) {
        self.ends.frames_sent += 1;
    }
    fn header_bytes(&self) -> u16 {
        self.header_bytes
    }
}

/// Reads a little of what lies at the head of every wire. These reads do not depend on each other,
/// so the memory serves them together; the loops that follow would wait for each in turn.
#[inline]
fn touch(wires: &[Wire]) -> u64 {
    const PACKETS_PER_LINE: usize = 64 / size_of::<Packet>() + 1;
    let mut touched = 0;
    for wire in wires {
        for line in 0..4 {
            touched ^= wire.queue.get(line * PACKETS_PER_LINE).map_or(0, |packet| packet.time);
        }
    }
    touched
}

fn seen(packet: &Packet, link: LinkId, acknowledgement_bytes: u16) -> Arrival {
    Arrival {
        at: SimTime(packet.time),
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
