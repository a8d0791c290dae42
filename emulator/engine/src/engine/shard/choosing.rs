// SPDX-License-Identifier: Apache-2.0
//! Adaptive routing: switches that choose the port with the least backlog.
//!
//! Backlogs depend on earlier choices, so all arrivals at a vertex are processed in chronological order.

use lightloom_units::Bytes;

use super::interfaces::put;
use super::{Exit, Probe, Scratch, Shard, Shared, SimSpan, touch};
use crate::engine::marking::mix;
use crate::engine::packet::Packet;
use crate::engine::port::Port;
use crate::engine::routes::{NextHop, Routes};
use crate::engine::switching::Switching;

/// Draws one of the ports whose `backlog` is close to the smallest. Ports that lead nowhere are the last resort.
#[inline]
pub(super) fn step(
    routes: &Routes,
    now: u64,
    packet: Packet,
    backlog: impl Fn(u32) -> Backlog,
) -> (u32, Packet) {
    let cursor = packet.cursor();
    let count = match routes.next(cursor) {
        NextHop::Port(place) => return (place, packet.advanced()),
        NextHop::Choice(count) => count,
    };
    let stands = |number: u32| match routes.leads_on(cursor, number) {
        true => backlog(routes.option(cursor, number).0),
        false => Backlog { time: DOWN, packet: 0 },
    };
    let least = (0..count).map(|number| stands(number).time).min().unwrap_or_default();
    let equal = || (0..count).filter(|number| stands(*number).is_about(least));
    let seed = u64::from(routes.salt(cursor)) << 32 | u64::from(packet.sequence());
    let drawn = u128::from(mix(seed.wrapping_add(now))) * equal().count() as u128;
    let number = equal().nth((drawn >> 64) as usize).expect("at least one option is available");
    let (place, rest) = routes.option(cursor, number);
    (place, packet.led_to(rest))
}

/// Queues that differ by at most this many packets are treated as equal, as with quantized queue
/// lengths. Otherwise a busy switch's periodic flows would keep choosing the same port.
const ABOUT: u64 = 8;
const DOWN: u64 = u64::MAX / 2;

#[derive(Clone, Copy)]
pub(super) struct Backlog {
    time: u64,
    packet: u64,
}

impl Backlog {
    #[inline(always)]
    pub(super) fn of(port: &Port, time: impl FnOnce() -> u64) -> Self {
        Self { time: if port.up { time() } else { DOWN }, packet: port.packet_time() }
    }

    #[inline(always)]
    fn is_about(self, least: u64) -> bool {
        self.time <= least + ABOUT * self.packet
    }
}

#[inline]
pub(super) fn backlog(port: &Port, now: u64) -> Backlog {
    Backlog::of(port, || port.free.saturating_sub(now))
}

impl<P: Probe> Shard<P> {
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
