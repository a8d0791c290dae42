//! Hosts: flows begin and end here.

use std::cmp::Reverse;

use super::choosing::{backlog, step};
use super::{Completion, DELIVER, Exit, Probe, Scratch, Shard, Shared, Span, seen, touch};
use crate::engine::packet::{Contents, Packet, flag};

impl<P: Probe> Shard<P> {
    pub(super) fn advance_host(&mut self, shared: &Shared, index: usize, span: Span) {
        self.collect_in_order(shared, index, span);
        let mut next = 0;
        loop {
            let packet = self.scratch.arrivals.get(next).copied();
            let arrival = packet.map_or(u64::MAX, |packet| span.start + packet.after(span.start));
            let host = &self.hosts[index];
            let start = host.starts.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
            let now = arrival.min(start).min(host.timer_due).min(host.pull_due);
            if now >= span.end {
                break;
            }
            if start == now {
                self.start_flow(shared, index);
            } else if arrival == now {
                next += 1;
                packet.into_iter().for_each(|packet| self.arrive(shared, index, packet, now));
            } else if host.timer_due == now {
                self.time_out(shared, index, now);
            } else {
                self.pull(shared, index, now);
            }
        }
        self.set_host_due(index, span.start);
    }

    /// Lists the arrivals of the window in order.
    fn collect_in_order(&mut self, shared: &Shared, index: usize, span: Span) {
        let vertex = self.vertices[index];
        self.scratch.touched ^= touch(&self.wires[vertex.wires()]);
        let arrivals = &mut self.scratch.arrivals;
        let length = span.end - span.start;
        arrivals.clear();
        let mut sources = 0;
        for wire in &mut self.wires[vertex.wires()] {
            let before = arrivals.len();
            wire.queue.take_due((span.start, length), |offset, packet| {
                if !packet.is_pause_frame() {
                    let at = span.start + offset;
                    self.probe.arrived(seen(&packet, at, wire.link, shared.acknowledgement_bytes));
                }
                arrivals.push(packet);
            });
            sources += usize::from(arrivals.len() > before);
        }
        self.worked += arrivals.len() as u64;
        if sources > 1 {
            self.scratch.put_in_order(span.start);
        }
        if shared.host_delay > 0 {
            self.hold_back(shared, index, span);
        }
    }

    /// Puts what ends at this host aside for its delay, and lists what it acts on in this window instead.
    /// Its interface passes on what only comes through, and obeys pauses, at once.
    fn hold_back(&mut self, shared: &Shared, index: usize, span: Span) {
        let Scratch { arrivals, acted_on, .. } = &mut self.scratch;
        let inside = &mut self.hosts[index].inside;
        acted_on.clear();
        for packet in arrivals.iter() {
            let ends = |packet: &Packet| shared.routes[packet.cursor() as usize] & DELIVER != 0;
            if !packet.is_pause_frame() && ends(packet) {
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

    fn set_host_due(&mut self, index: usize, now: u64) {
        let vertex = self.vertices[index];
        let host = &self.hosts[index];
        let start = host.starts.peek().map_or(u64::MAX, |Reverse((time, ..))| *time);
        let mut due = start.min(host.timer_due).min(host.pull_due);
        due = host.inside.front().map_or(due, |packet| due.min(now + packet.after(now)));
        for wire in &self.wires[vertex.wires()] {
            due = wire.queue.front().map_or(due, |packet| due.min(now + packet.after(now)));
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

    fn arrive(&mut self, shared: &Shared, vertex: usize, packet: Packet, now: u64) {
        if packet.is_pause_frame() {
            self.ends.delivered += 1;
            if self.ports[packet.cursor() as usize].obey(&packet) {
                let host = &mut self.hosts[vertex];
                host.pull_due = host.pull_due.min(now);
            }
            return;
        }
        let next = shared.routes[packet.cursor() as usize];
        if next & DELIVER == 0 {
            let (port, packet) =
                step(&shared.routes, packet, |port| backlog(&self.ports[port as usize], now));
            return self.transmit(port, (now, 0), packet);
        }
        self.ends.delivered += 1;
        let end = next & !DELIVER;
        if !packet.is_acknowledgement() {
            return self.arrive_data(shared, vertex, (end, packet), now);
        }
        let sender = &mut self.senders[end as usize];
        sender.acknowledged(&packet, now);
        let host = &mut self.hosts[vertex];
        host.timer_due = host.timer_due.min(sender.deadline);
        if sender.is_done() {
            host.active.retain(|active| *active != end);
        } else {
            self.enlist(shared, vertex, end, now);
        }
    }

    fn arrive_data(
        &mut self,
        shared: &Shared,
        vertex: usize,
        (end, packet): (u32, Packet),
        now: u64,
    ) {
        let receiver = &mut self.receivers[end as usize];
        let was_done = receiver.is_done();
        let (acknowledgement, message_completed) = receiver.data(&packet);
        if receiver.is_done() && !was_done {
            self.completions.push(Completion { time: now, flow: receiver.flow });
        }
        self.ends.acknowledgements_sent += 1;
        let port = shared.routes[acknowledgement.cursor() as usize];
        self.transmit(port, (now, 0), acknowledgement.advanced());
        if message_completed {
            for index in 0..self.receivers[end as usize].dependents.len() {
                let sender = self.receivers[end as usize].dependents[index];
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
                cursor: outgoing.cursor + 1,
                sequence: outgoing.sequence,
                extra: outgoing.wire_bytes,
                flags: u16::from(sender.priority) << flag::PRIORITY_SHIFT
                    | if outgoing.resent { flag::RESENT } else { 0 },
            });
            let host = &mut self.hosts[vertex];
            host.timer_due = host.timer_due.min(sender.deadline);
            self.ends.data_sent += 1;
            return self.transmit(first_port, (now, 0), packet);
        }
    }

    /// A port of a vertex has come up: what waits for it may go.
    pub(crate) fn wake(&mut self, vertex: u32, now: u64) {
        let host = &mut self.hosts[vertex as usize];
        host.pull_due = host.pull_due.min(now);
        let due = &mut self.due[vertex as usize];
        *due = (*due).min(now);
    }

    /// A flow that waits for a port which is down waits for another one from now on.
    pub(crate) fn leave_dark_port(&mut self, vertex: u32, sender: u32, ports: [u32; 2], now: u64) {
        let [from, to] = ports.map(|port| port as usize);
        let waits = self.ready[from].iter().position(|waiting| *waiting == sender);
        if let Some(place) = waits.filter(|_| from != to && !self.ports[from].up) {
            self.ready[from].remove(place);
            self.ready[to].push_back(sender);
            self.wake(vertex, now);
        }
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

    /// Puts a packet that comes at `now`, and may have begun `head_start` before, into an output port.
    #[inline]
    pub(super) fn transmit(&mut self, port: u32, (now, head_start): (u64, u64), packet: Packet) {
        let place = port as usize;
        let (port, count) = (&mut self.ports[port as usize], &mut self.counts[port as usize]);
        if !port.up {
            count.lost += 1;
            return;
        }
        if P::SEES_QUEUES {
            self.probe.queued(self.port_links[place], port.backlog(now));
        }
        let mut sending = port.open(count);
        let sent = sending.send((now, head_start), packet);
        sending.close();
        if let Some(packet) = sent {
            let arrival = port.free + port.delay();
            Exit::of(port, self.index, &mut self.wires, &mut self.due, &mut self.outboxes)
                .send(packet, arrival);
        }
    }

    /// Stops a flow's sending end.
    pub(crate) fn cancel(&mut self, vertex: u32, sender: u32) {
        self.senders[sender as usize].cancel();
        self.hosts[vertex as usize].active.retain(|active| *active != sender);
    }
}
