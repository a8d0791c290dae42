// SPDX-License-Identifier: Apache-2.0
//! Switches with bounded queues. Each port is processed separately unless shared state can matter;
//! then all arrivals and departures are processed in chronological order.

use lightloom_units::{BitsPerSecond, Bytes};

use super::agenda::Agenda;
use super::choosing::{Backlog, step};
use super::{
    EndCount, Exit, LinkWire, Outbox, Probe, Scratch, Shard, Shared, SimSpan, send_through, touch,
};
use crate::engine::network::LinkId;
use crate::engine::one_port::CutThrough;
use crate::engine::packet::{Packet, flag};
use crate::engine::port::{Port, PortCount, WireEnd};
use crate::engine::switch::{Outlet, SwitchQueues};
use crate::engine::switching::Switching;
use crate::transport::PortLoad;

impl<P: Probe> Shard<P> {
    pub(super) fn advance_queued(
        &mut self,
        shared: &Shared,
        index: usize,
        span: SimSpan,
        mut switch: Box<SwitchQueues>,
    ) {
        let (mut due, has_frames) = self.sort_out(shared, index, span);
        // A port with pause frames is not plain.
        let priorities = if has_frames { 0 } else { shared.priorities };
        let ports = self.vertices[index].ports();
        if !shared.is_joint && switch.ports_are_apart(span.start, &mut self.scratch.came) {
            for (place, port) in (0..).zip(ports) {
                let is_listed = !self.scratch.by_port.is_empty(place as usize);
                if !is_listed && !switch.waits(place) {
                    continue;
                }
                if is_listed || switch.begins_before(place, span.end) {
                    self.advance_port(shared, index, place, priorities, span, &mut switch);
                }
                due = due.min(switch.due_at(place, self.ports[port].paused));
            }
        } else {
            match shared.reads_telemetry {
                true => self.advance_reporting(shared, index, span, &mut switch),
                false => self.advance_together::<false>(shared, index, span, &mut switch),
            }
            due = due.min(switch.next_due(&self.ports[ports], span.end));
        }
        self.due.set(index, due);
        self.switches[index] = Some(switch);
    }

    /// Returns the time of the first arrival after the window, and whether a pause frame arrives in it.
    fn sort_out(&mut self, shared: &Shared, index: usize, span: SimSpan) -> (u64, bool) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let most = self.make_room(shared, vertex);
        let Scratch { arrivals, came, by_port, .. } = &mut self.scratch;
        came.clear();
        let (mut due, length) = (u64::MAX, span.end - span.start);
        let (short, mut count) = (shared.acknowledgement_bytes, 0);
        let delivered = self.ends.delivered;
        came.resize(vertex.wires().len(), 0);
        let mut by_port = by_port.adding();
        arrivals.resize(arrivals.len().max(most), Packet::default());
        for (ingress, wire) in (0..).zip(&mut self.wires[vertex.wires()]) {
            if wire.queue.len() == 0 {
                continue;
            }
            let (before, mut bytes) = (count, 0);
            let next = wire.queue.take_due(span.start, length, |offset, packet| {
                if packet.is_pause_frame() {
                    frame_delivered(&mut self.ends);
                }
                let place = shared.place_of(packet, vertex.first_port);
                by_port.push(place as usize, offset << 32 | count as u64);
                arrivals[count] = packet.advanced().came_by(ingress);
                bytes += u64::from(packet.extra());
                count += 1;
            });
            due = due.min(next);
            // The size field of an acknowledgement has another meaning, so the sum is slightly too high.
            came[ingress as usize] = bytes + (count - before) as u64 * u64::from(short);
        }
        self.worked += count as u64;
        (due, self.ends.delivered > delivered)
    }

    fn advance_port(
        &mut self,
        shared: &Shared,
        index: usize,
        place: u32,
        priorities: u8,
        span: SimSpan,
        switch: &mut SwitchQueues,
    ) {
        let vertex = self.vertices[index];
        let port = (vertex.first_port + place) as usize;
        let (link, probe) = (self.port_links[port], &mut self.probe);
        let Scratch { arrivals, by_port, .. } = &mut self.scratch;
        let (port, count) = (&mut self.ports[port], &mut self.counts[port]);
        let keys = by_port.take_in_order(place as usize);
        let most = keys.len() + switch.waiting_at(place);
        let exit =
            Exit::of(port.far, self.index, &mut self.wires, &mut self.due, &mut self.outboxes);
        let cut_through = cut_through(shared, &self.wire_rates[vertex.wires()]);
        let mut one = switch.one_port(place, shared.header_bytes, cut_through, port, count);
        let queued = probe.queue_of(link);
        if let Some(class) = one.plain_class(priorities, keys.len()) {
            send_through!(exit, span.start, most, |sink| {
                one.advance_plainly(class, keys, arrivals, span, sink, queued);
            });
        } else {
            let arrivals =
                keys.iter().map(|key| (span.start + (key >> 32), arrivals[*key as u32 as usize]));
            send_through!(exit, span.start, most, |sink| {
                one.advance(arrivals, span.end, sink, queued);
            });
        }
        one.close();
        switch.note_waiting(place);
    }

    /// A separate function, so that inlining in the loop without telemetry does not change.
    #[cold]
    #[inline(never)]
    fn advance_reporting(
        &mut self,
        shared: &Shared,
        index: usize,
        span: SimSpan,
        switch: &mut SwitchQueues,
    ) {
        self.advance_together::<true>(shared, index, span, switch);
    }

    fn advance_together<const REPORTS: bool>(
        &mut self,
        shared: &Shared,
        index: usize,
        span: SimSpan,
        switch: &mut SwitchQueues,
    ) {
        let mut keys = std::mem::take(&mut self.scratch.all);
        self.scratch.by_port.take_all_in_order(&mut keys);
        let packets = std::mem::take(&mut self.scratch.arrivals);
        let first = self.vertices[index].first_port;
        let mut outlet = self.outlet::<REPORTS>(shared, index);
        switch.begin_together(span);
        for key in keys.drain(..) {
            let now = span.start + (key >> 32);
            switch.end_until(key >> 32, &mut outlet);
            let packet = packets[key as u32 as usize];
            if packet.is_pause_frame() {
                let place = packet.cursor() - 1 - first;
                let (port, count) = outlet.port(place);
                if port.obey(&packet, count, now) {
                    switch.send_next(place, now, &mut outlet);
                }
            } else {
                let (mut place, mut packet) = (shared.routes.place(packet.cursor() - 1), packet);
                if shared.chooses {
                    let unmoved = packet.led_to(packet.cursor() - 1);
                    (place, packet) = step(&shared.routes, now, unmoved, |place| {
                        let at = &outlet.ports[place as usize];
                        Backlog::of(at, || at.time_for(switch.holds(place)))
                    });
                }
                switch.enqueue(place, now, packet, &mut outlet);
            }
        }
        switch.end_until(span.end - span.start - 1, &mut outlet);
        switch.end_together();
        self.scratch.all = keys;
        self.scratch.arrivals = packets;
    }

    fn outlet<const REPORTS: bool>(
        &mut self,
        shared: &Shared,
        index: usize,
    ) -> VertexOutlet<'_, P, REPORTS> {
        let (ports, wires) = (self.vertices[index].ports(), self.vertices[index].wires());
        VertexOutlet {
            probe: &mut self.probe,
            links: &self.port_links[ports.clone()],
            shard: self.index,
            header_bytes: shared.header_bytes,
            ports: &mut self.ports[ports.clone()],
            counts: &mut self.counts[ports],
            wires: &mut self.wires,
            due: &mut self.due,
            outboxes: &mut self.outboxes,
            ends: &mut self.ends,
            telemetry: &mut self.telemetry,
            cut_through: cut_through(shared, &self.wire_rates[wires]),
        }
    }

    pub(crate) fn cut_port(&mut self, shared: &Shared, vertex: u32, port: u32, now: u64) {
        let Some(mut switch) = self.switches[vertex as usize].take() else { return };
        let place = port - self.vertices[vertex as usize].first_port;
        switch.begin_together(SimSpan { start: now, end: now });
        let lost = switch.cut(place, now, &mut self.outlet::<false>(shared, vertex as usize));
        self.counts[port as usize].lost += lost;
        self.keep(vertex, switch, now);
    }

    pub(crate) fn forget_pauses(&mut self, shared: &Shared, vertex: u32, port: u32, now: u64) {
        let before = std::mem::take(&mut self.ports[port as usize].paused);
        self.counts[port as usize].note_paused(before, 0, now);
        let Some(mut switch) = self.switches[vertex as usize].take() else {
            return self.wake(vertex, now);
        };
        let place = port - self.vertices[vertex as usize].first_port;
        switch.begin_together(SimSpan { start: now, end: now });
        switch.send_next(place, now, &mut self.outlet::<false>(shared, vertex as usize));
        self.keep(vertex, switch, now);
    }

    fn keep(&mut self, vertex: u32, mut switch: Box<SwitchQueues>, now: u64) {
        switch.end_together();
        let ports = self.vertices[vertex as usize].ports();
        self.due.of(vertex as usize).no_later_than(switch.next_due(&self.ports[ports], now));
        self.switches[vertex as usize] = Some(switch);
    }
}

/// Pause frames are rare, so this is kept out of the packet loop.
#[cold]
fn frame_delivered(ends: &mut EndCount) {
    ends.delivered += 1;
}

fn cut_through<'s>(shared: &Shared, rates: &'s [BitsPerSecond]) -> Option<CutThrough<'s>> {
    let cuts = shared.switching == Switching::CutThrough;
    cuts.then(|| CutThrough { rates, header: Bytes(shared.header_bytes.into()) })
}

struct VertexOutlet<'s, P, const REPORTS: bool> {
    probe: &'s mut P,
    links: &'s [LinkId],
    shard: u32,
    header_bytes: u16,
    ports: &'s mut [Port],
    counts: &'s mut [PortCount],
    wires: &'s mut [LinkWire],
    due: &'s mut Agenda,
    outboxes: &'s mut [Outbox],
    ends: &'s mut EndCount,
    telemetry: &'s mut Vec<PortLoad>,
    cut_through: Option<CutThrough<'s>>,
}

impl<P: Probe, const REPORTS: bool> Outlet for VertexOutlet<'_, P, REPORTS> {
    const SEES_QUEUES: bool = P::SEES_QUEUES;
    const REPORTS: bool = REPORTS;

    #[inline(always)]
    fn port(&mut self, place: u32) -> (&mut Port, &mut PortCount) {
        (&mut self.ports[place as usize], &mut self.counts[place as usize])
    }
    #[inline(always)]
    fn launch(&mut self, to: WireEnd, packet: Packet, arrival: u64) {
        Exit::of(to, self.shard, self.wires, self.due, self.outboxes).send(packet, arrival);
    }
    #[inline(always)]
    fn watched_port(&mut self, place: u32) -> (&mut Port, &mut PortCount, impl FnMut(Bytes)) {
        let queued = self.probe.queue_of(self.links[place as usize]);
        (&mut self.ports[place as usize], &mut self.counts[place as usize], queued)
    }
    fn report(&mut self, place: u32, packet: &Packet, until: u64, queue: u64) {
        let silent = flag::ACKNOWLEDGEMENT | flag::TRIMMED | flag::RESENT;
        if packet.has(silent) || packet.is_pause_frame() {
            return;
        }
        let rate = self.ports[place as usize].rate();
        let (link, sent) = (self.links[place as usize].0, self.counts[place as usize].bytes);
        let (cursor, sequence) = (packet.cursor(), packet.sequence());
        self.telemetry.push(PortLoad { cursor, sequence, link, at: until, sent, queue, rate });
    }
    fn frame_made(&mut self) {
        self.ends.frames_sent += 1;
    }
    fn head_start(&self, place: u32, packet: &Packet) -> u64 {
        self.cut_through.map_or(0, |CutThrough { rates, header }| {
            let rate = rates[packet.ingress() as usize];
            self.ports[place as usize].head_start(packet, rate, header)
        })
    }
    fn header_bytes(&self) -> u16 {
        self.header_bytes
    }
}
