//! Switches with one first-in first-out queue a port: departures are known on arrival.

use lightloom_fabric::units::Bytes;

use super::{Exit, Probe, Scratch, Shard, Shared, Span, seen, touch};

impl<P: Probe> Shard<P> {
    /// Advances a switch that stores packets before it sends them, or one that cuts through: two loops, so that
    /// the first does not ask.
    pub(super) fn advance_switch<const CUTS_THROUGH: bool>(
        &mut self,
        shared: &Shared,
        index: usize,
        span: Span,
    ) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let Scratch { arrivals, by_port, .. } = &mut self.scratch;
        arrivals.clear();
        let mut due = u64::MAX;
        for (number, wire) in vertex.wires().zip(&mut self.wires[vertex.wires()]) {
            let (mut taken, before) = (0, arrivals.len());
            while taken < wire.queue.len() {
                let packet = *wire.queue.at(taken);
                if packet.time >= span.end {
                    due = due.min(packet.time);
                    break;
                }
                self.probe.arrived(seen(&packet, wire.link, shared.acknowledgement_bytes));
                let port = shared.routes[packet.cursor() as usize] - vertex.first_port;
                let key = (packet.time - span.start) << 32 | arrivals.len() as u64;
                by_port[port as usize].push(key);
                arrivals.push(packet.advanced());
                taken += 1;
            }
            wire.queue.forget(taken);
            if CUTS_THROUGH {
                // A packet's time stands in its key as well: its place is free.
                let rate = self.wire_rates[number];
                arrivals[before..].iter_mut().for_each(|packet| *packet = packet.at(rate.0));
            }
        }
        self.due[index] = due;
        self.worked += arrivals.len() as u64;
        for (place, port) in vertex.ports().enumerate() {
            if !self.scratch.by_port[place].is_empty() {
                self.forward::<CUTS_THROUGH>(shared, port, place, span.start);
            }
        }
    }

    /// Sends the arrivals listed for one output port, in order.
    fn forward<const CUTS_THROUGH: bool>(
        &mut self,
        shared: &Shared,
        port: usize,
        place: usize,
        start: u64,
    ) {
        let header = Bytes(shared.header_bytes.into());
        let Scratch { arrivals, by_port, .. } = &mut self.scratch;
        let keys = &mut by_port[place];
        let link = self.port_links[port];
        let (port, count) = (&mut self.ports[port], &mut self.counts[port]);
        if !port.up {
            count.lost += keys.len() as u64;
            keys.clear();
            return;
        }
        keys.sort_unstable();
        let mut exit =
            Exit::of(port, self.index, &mut self.wires, &mut self.due, &mut self.outboxes);
        for &key in keys.iter() {
            let (packet, now) = (arrivals[key as u32 as usize], start + (key >> 32));
            if P::SEES_QUEUES {
                self.probe.queued(link, port.backlog(now));
            }
            let head_start = if CUTS_THROUGH { port.head_start(&packet, header) } else { 0 };
            let Some(sent) = port.admit((now, head_start), packet, count) else { continue };
            if port.corrupts(&sent, count.packets) {
                count.lost += 1;
                continue;
            }
            exit.send(sent);
        }
        keys.clear();
    }
}
