// SPDX-License-Identifier: Apache-2.0
//! Switches with one FIFO queue per port, whose departures are known on arrival.

use lightloom_units::{BitsPerSecond, Bytes};

use super::choosing::{backlog, step};
use super::interfaces::put;
use super::{Exit, Probe, Scratch, Shard, Shared, SimSpan, Sink, send_through, touch};
use crate::engine::network::LinkId;
use crate::engine::packet::Packet;
use crate::engine::port::SendingPort;
use crate::engine::switching::Switching;

impl<P: Probe> Shard<P> {
    /// Store-and-forward and cut-through switches have separate loops, which saves a test per packet.
    pub(super) fn advance_switch<const CUTS_THROUGH: bool>(
        &mut self,
        shared: &Shared,
        index: usize,
        span: SimSpan,
    ) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let most = self.make_room(shared, vertex);
        let Scratch { arrivals, by_port, .. } = &mut self.scratch;
        let (mut due, length) = (u64::MAX, span.end - span.start);
        let mut count = 0;
        let mut by_port = by_port.adding();
        arrivals.resize(arrivals.len().max(most), Packet::default());
        for (number, wire) in (vertex.first_wire..).zip(&mut self.wires[vertex.wires()]) {
            if wire.queue.len() == 0 {
                continue;
            }
            let before = count;
            let next = wire.queue.take_due(span.start, length, |offset, packet| {
                let place = shared.routes.place(packet.cursor());
                by_port.push(place as usize, offset << 32 | count as u64);
                arrivals[count] = packet.advanced();
                count += 1;
            });
            due = due.min(next);
            if CUTS_THROUGH {
                // The key also contains the packet's time, so the time field can hold the ingress port.
                arrivals[before..count]
                    .iter_mut()
                    .for_each(|packet| *packet = packet.came_by(number));
            }
        }
        self.due.set(index, due);
        self.worked += count as u64;
        for (place, port) in vertex.ports().enumerate() {
            if !self.scratch.by_port.is_empty(place) {
                self.forward::<CUTS_THROUGH>(shared, port, place, span.start);
            }
        }
    }

    fn forward<const CUTS_THROUGH: bool>(
        &mut self,
        shared: &Shared,
        port: usize,
        place: usize,
        start: u64,
    ) {
        let Scratch { arrivals, by_port, .. } = &mut self.scratch;
        let keys = by_port.take_in_order(place);
        let link = self.port_links[port];
        let (port, count) = (&mut self.ports[port], &mut self.counts[port]);
        if !port.up {
            count.lost += keys.len() as u64;
            return;
        }
        let exit =
            Exit::of(port.far, self.index, &mut self.wires, &mut self.due, &mut self.outboxes);
        let sending = port.open(count);
        let (wire_rates, header) = (&self.wire_rates[..], Bytes(shared.header_bytes.into()));
        let list = List::<CUTS_THROUGH> { keys, arrivals, start, link, wire_rates, header };
        send_through!(exit, start, keys.len(), |sink| list.send(sending, sink, &mut self.probe));
    }

    /// Backlogs depend on earlier choices, so all arrivals are processed in chronological order.
    pub(super) fn advance_choosing(&mut self, shared: &Shared, index: usize, span: SimSpan) {
        let due = self.collect_all(index, span);
        self.due.set(index, due);
        let mut keys = std::mem::take(&mut self.scratch.all);
        keys.sort_unstable();
        for key in keys.drain(..) {
            let (packet, now) =
                (self.scratch.arrivals[key as u32 as usize], span.start + (key >> 32));
            let ports = &self.ports[self.vertices[index].ports()];
            let (place, packet) =
                step(&shared.routes, now, packet, |place| backlog(&ports[place as usize], now));
            let port = (self.vertices[index].first_port + place) as usize;
            let mut head_start = 0;
            if shared.switching == Switching::CutThrough {
                let rate = self.wire_rates[packet.ingress() as usize];
                let header = Bytes(shared.header_bytes.into());
                head_start = self.ports[port].head_start(&packet, rate, header);
            }
            self.transmit(port, now, head_start, packet);
        }
        self.scratch.all = keys;
    }

    fn transmit(&mut self, place: usize, now: u64, head_start: u64, packet: Packet) {
        let (port, count) = (&mut self.ports[place], &mut self.counts[place]);
        let link = self.port_links[place];
        let sent = put(port, count, link, now, head_start, packet, &mut self.probe);
        if let Some(packet) = sent {
            let arrival = port.arrival(port.free);
            Exit::of(port.far, self.index, &mut self.wires, &mut self.due, &mut self.outboxes)
                .send(packet, arrival);
        }
    }

    /// Arrivals store their wires in the time field. Returns when the first packet after the window arrives.
    fn collect_all(&mut self, index: usize, span: SimSpan) -> u64 {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let Scratch { arrivals, all: keys, .. } = &mut self.scratch;
        arrivals.clear();
        let (mut due, length) = (u64::MAX, span.end - span.start);
        for (number, wire) in (vertex.first_wire..).zip(&mut self.wires[vertex.wires()]) {
            let next = wire.queue.take_due(span.start, length, |offset, packet| {
                keys.push(offset << 32 | arrivals.len() as u64);
                arrivals.push(packet.came_by(number));
            });
            due = due.min(next);
        }
        self.worked += arrivals.len() as u64;
        due
    }
}

struct List<'s, const CUTS_THROUGH: bool> {
    keys: &'s [u64],
    arrivals: &'s [Packet],
    start: u64,
    link: LinkId,
    wire_rates: &'s [BitsPerSecond],
    header: Bytes,
}

impl<const CUTS_THROUGH: bool> List<'_, CUTS_THROUGH> {
    #[inline(always)]
    fn send<P: Probe>(&self, mut sending: SendingPort, sink: &mut impl Sink, probe: &mut P) {
        let mut queued = probe.queue_of(self.link);
        let timed = self
            .keys
            .iter()
            .map(|key| (self.arrivals[*key as u32 as usize], self.start + (key >> 32)));
        if !CUTS_THROUGH && sending.is_steady(self.start) {
            for (packet, now) in timed {
                let wait = sending.wait(now);
                if P::SEES_QUEUES {
                    queued(sending.sent_in(wait));
                }
                if let Some(sent) = sending.send_after(wait, now, packet) {
                    sink.take(sent);
                }
            }
            return sending.close();
        }
        for (packet, now) in timed {
            if P::SEES_QUEUES {
                queued(sending.backlog(now));
            }
            let mut head_start = 0;
            if CUTS_THROUGH {
                let rate = self.wire_rates[packet.ingress() as usize];
                head_start = sending.head_start(&packet, rate, self.header);
            }
            if let Some(sent) = sending.send(now, head_start, packet) {
                sink.take(sent);
            }
        }
        sending.close();
    }
}
