// SPDX-License-Identifier: Apache-2.0
//! Hosts, where flows start and end.

use std::cmp::Reverse;

use super::interfaces::Many;
use super::stack::Stack;
use super::{Exit, Probe, Scratch, Shard, Shared, SimSpan, Sink, send_through, touch};
use crate::engine::packet::Packet;

impl<P: Probe> Shard<P> {
    // Inlined into the loop over vertices, hosts and switches would share too few registers.
    #[inline(never)]
    pub(super) fn advance_host(&mut self, shared: &Shared, index: usize, span: SimSpan) {
        let vertex = self.vertices[index];
        let ports = vertex.ports();
        let straight = self.comes_straight(shared, index);
        if straight.is_none() {
            self.collect_in_order(shared, index, span);
        }
        let Scratch { arrivals, sent, .. } = &mut self.scratch;
        let arrivals = match straight {
            Some(wire) => self.wires[wire].queue.stretches(),
            None => [&arrivals[..], &[]],
        };
        let many = Many {
            first_port: vertex.first_port,
            ports: &mut self.ports[ports.clone()],
            counts: &mut self.counts[ports.clone()],
            links: &self.port_links[ports.clone()],
            ready: &mut self.ready[ports.clone()],
            sent: &mut sent[..ports.len()],
        };
        let stack = Stack {
            shared,
            host: &mut self.hosts[index],
            interfaces: (),
            senders: &mut self.senders,
            receivers: &mut self.receivers,
            completions: &mut self.completions,
            ends: &mut self.ends,
            probe: &mut self.probe,
        };
        let taken = match many.into_one() {
            Ok(one) => stack.over(one).work_off(arrivals, span),
            Err(many) => stack.over(many).work_off(arrivals, span),
        };
        self.worked += taken as u64;
        if let Some(wire) = straight {
            self.wires[wire].queue.forget(taken);
        }
        self.set_host_due(index, span.start);
        for (port, sent) in self.ports[ports].iter().zip(&mut self.scratch.sent) {
            if !sent.is_empty() {
                let exit = Exit::of(
                    port.far,
                    self.index,
                    &mut self.wires,
                    &mut self.due,
                    &mut self.outboxes,
                );
                send_through!(exit, span.start, sent.len(), |sink| sent
                    .drain(..)
                    .for_each(|packet| sink.take(packet)));
            }
        }
    }

    /// Returns the host's only wire if its packets can be processed directly, without host delay.
    fn comes_straight(&mut self, shared: &Shared, index: usize) -> Option<usize> {
        let wires = self.vertices[index].wires();
        if wires.len() != 1 || shared.host_delay > 0 {
            return None;
        }
        self.scratch.touched ^= touch(&self.wires[wires.clone()]);
        Some(wires.start)
    }

    fn collect_in_order(&mut self, shared: &Shared, index: usize, span: SimSpan) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let arrivals = &mut self.scratch.arrivals;
        let length = span.end - span.start;
        arrivals.clear();
        let mut sources = 0;
        for wire in &mut self.wires[vertex.wires()] {
            let before = arrivals.len();
            wire.queue.take_due(span.start, length, |_, packet| arrivals.push(packet));
            sources += usize::from(arrivals.len() > before);
        }
        if sources > 1 {
            self.scratch.put_in_order(span.start);
        }
        if shared.host_delay > 0 {
            self.hold_back(shared, index, span);
        }
    }

    /// When a host processes the `nth` data packet (from 1) for a receiver. `None` if that is not in `span`.
    pub(crate) fn nth_arrival(
        &self,
        shared: &Shared,
        span: SimSpan,
        vertex: u32,
        end: u32,
        nth: usize,
    ) -> Option<u64> {
        let wires = &self.wires[self.vertices[vertex as usize].wires()];
        let inside = &self.hosts[vertex as usize].inside;
        let on_wires: usize = wires.iter().map(|wire| wire.queue.len()).sum();
        if on_wires + inside.len() < nth {
            return None;
        }
        let is_for_it = |packet: &&Packet| {
            !packet.is_pause_frame()
                && !packet.is_acknowledgement()
                && shared.routes.end(packet.cursor()) == Some(end)
        };
        let at = |packet: &Packet| span.start + packet.after(span.start);
        let waiting = inside.iter().filter(is_for_it).map(at);
        let coming = wires.iter().flat_map(|wire| {
            let queue = wire.queue.iter().take_while(|packet| at(packet) < span.end);
            queue.filter(is_for_it).map(|packet| at(packet) + shared.host_delay)
        });
        let mut times: Vec<u64> = waiting.chain(coming).filter(|at| *at < span.end).collect();
        if times.len() < nth {
            return None;
        }
        let (_, time, _) = times.select_nth_unstable(nth.max(1) - 1);
        Some(*time)
    }

    /// Collects packets whose host delay ends in this window. Transit packets and pause frames are not delayed.
    fn hold_back(&mut self, shared: &Shared, index: usize, span: SimSpan) {
        let Scratch { arrivals, acted_on, .. } = &mut self.scratch;
        let inside = &mut self.hosts[index].inside;
        acted_on.clear();
        for packet in arrivals.iter() {
            if !packet.is_pause_frame() && shared.routes.end(packet.cursor()).is_some() {
                let at = span.start + packet.after(span.start);
                inside.push_back(packet.at(at + shared.host_delay));
            } else {
                acted_on.push(*packet);
            }
        }
        let length = span.end - span.start;
        let due = inside.partition_point(|packet| packet.after(span.start) < length);
        acted_on.extend(inside.drain(..due));
        std::mem::swap(arrivals, acted_on);
        self.scratch.put_in_order(span.start);
    }

    pub(super) fn set_host_due(&mut self, index: usize, now: u64) {
        let vertex = self.vertices[index];
        let host = &self.hosts[index];
        let mut due = host.next_start().min(host.timer_due).min(host.pull_due);
        due = due.min(host.credit_due);
        due = host.inside.front().map_or(due, |packet| due.min(now + packet.after(now)));
        for wire in &self.wires[vertex.wires()] {
            due = wire.queue.front().map_or(due, |packet| due.min(now + packet.after(now)));
        }
        self.due.set(index, due);
    }

    pub(crate) fn plan_start(&mut self, vertex: u32, sender: u32, time: u64) {
        let state = &mut self.senders[sender as usize];
        state.plans_wake(time);
        self.hosts[vertex as usize].starts.push(Reverse((time, state.flow, sender)));
        self.due.of(vertex as usize).no_later_than(time);
    }

    pub(crate) fn wake(&mut self, vertex: u32, now: u64) {
        let host = &mut self.hosts[vertex as usize];
        host.pull_due = host.pull_due.min(now);
        self.due.of(vertex as usize).no_later_than(now);
    }

    pub(crate) fn leave_dark_port(&mut self, vertex: u32, sender: u32, ports: [u32; 2], now: u64) {
        let [from, to] = ports.map(|port| port as usize);
        let waits = self.ready[from].iter().position(|waiting| *waiting == sender);
        if let Some(place) = waits.filter(|_| from != to && !self.ports[from].up) {
            self.ready[from].remove(place);
            self.ready[to].push_back(sender);
            self.wake(vertex, now);
        }
    }

    pub(crate) fn leave_cut_port(&mut self, shared: &Shared, vertex: u32, port: u32, now: u64) {
        if self.ready[port as usize].is_empty() {
            return;
        }
        for sender in std::mem::take(&mut self.ready[port as usize]) {
            if self.senders[sender as usize].is_striped() {
                // A striped flow continues on its other interfaces, and waits for this interface to come up again.
                self.ready[port as usize].push_back(sender);
                continue;
            }
            let place = shared.routes.place(self.senders[sender as usize].cursor);
            let first = self.vertices[vertex as usize].first_port;
            self.ready[(first + place) as usize].push_back(sender);
        }
        self.wake(vertex, now);
    }

    pub(crate) fn cancel(&mut self, vertex: u32, sender: u32) {
        self.senders[sender as usize].cancel();
        self.hosts[vertex as usize].active.retain(|active| *active != sender);
    }
}
