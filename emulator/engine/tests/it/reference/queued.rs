// SPDX-License-Identifier: Apache-2.0
//! Switches with bounded queues, modelled plainly: every query adds up its counts again.

use std::collections::{BTreeSet, VecDeque};

use lightloom_engine::{LinkId, PAUSE_FRAME, Pause, Schedule, VertexId};
use lightloom_units::Bytes;

use super::{Packet, Reference, What};

#[derive(Default)]
pub(super) struct Queues {
    frames: VecDeque<Packet>,
    waiting: [VecDeque<(Packet, LinkId)>; 8],
    sending: Option<Option<(u8, u64, LinkId)>>,
    paused: BTreeSet<u8>,
    asked: BTreeSet<u8>,
    turn: u8,
    in_turn: bool,
    credit: [u64; 8],
}

impl Reference<'_> {
    pub(super) fn has_queues(&self, link: LinkId) -> bool {
        let from = self.network.link(link).from;
        self.queueing.is_some() && !self.network.role(from).is_host()
    }

    fn pause(&self, priority: u8) -> Option<Pause> {
        let pause = self.queueing.and_then(|queueing| queueing.pause);
        pause.filter(|pause| priority < 7 && pause.priorities >> priority & 1 == 1)
    }

    /// Bytes received over `ingress` with `priority` that are still at `vertex`.
    fn came(&self, vertex: VertexId, ingress: LinkId, priority: u8) -> u64 {
        let out = self.network.outgoing(vertex).iter().map(|link| &self.queues[link.index()]);
        out.map(|port| {
            let waiting = port.waiting[usize::from(priority)].iter();
            let waiting: u64 =
                waiting.filter(|(_, by)| *by == ingress).map(|(packet, _)| packet.wire_bytes).sum();
            let sending =
                port.sending.flatten().filter(|(p, _, by)| (*p, *by) == (priority, ingress));
            waiting + sending.map_or(0, |(_, size, _)| size)
        })
        .sum()
    }

    fn used(&self, vertex: VertexId) -> u64 {
        let out = self.network.outgoing(vertex).iter().map(|link| &self.queues[link.index()]);
        out.map(|port| {
            let waiting: u64 =
                port.waiting.iter().flatten().map(|(packet, _)| packet.wire_bytes).sum();
            waiting + port.sending.flatten().map_or(0, |(_, size, _)| size)
        })
        .sum()
    }

    pub(super) fn held(&self, link: LinkId) -> u64 {
        let port = &self.queues[link.index()];
        let waiting: u64 = port.waiting.iter().flatten().map(|(packet, _)| packet.wire_bytes).sum();
        waiting + port.sending.flatten().map_or(0, |(_, size, _)| size)
    }

    fn queued(&self, link: LinkId, priority: u8) -> u64 {
        let queue = &self.queues[link.index()].waiting[usize::from(priority)];
        queue.iter().map(|(packet, _)| packet.wire_bytes).sum()
    }

    fn has_room(&self, link: LinkId, ingress: LinkId, priority: u8, size: u64) -> bool {
        let at = self.network.link(link);
        let queueing = self.queueing.expect("a switch with queues");
        let free = queueing.buffer.map(|buffer| buffer.size.0.saturating_sub(self.used(at.from)));
        if free.is_some_and(|free| size > free) {
            return false;
        }
        let queue = self.queued(link, priority) + size;
        if let Some(pause) = self.pause(priority) {
            return self.came(at.from, ingress, priority) + size
                <= pause.pause_above.0 + pause.headroom.0;
        }
        let within = |bound: Option<Bytes>| bound.is_none_or(|bound| queue <= bound.0);
        let share = |(buffer, free): (lightloom_engine::Buffer, u64)| {
            queue <= free * u64::from(buffer.alpha_percent) / 100
        };
        within(at.spec.queue) && queueing.buffer.zip(free).is_none_or(share)
    }

    pub(super) fn queue_up(&mut self, link: LinkId, mut packet: Packet, ingress: LinkId) {
        if self.ports[link.index()].down {
            self.totals.lost += 1;
            return;
        }
        let queueing = self.queueing.expect("a switch with queues");
        if !self.has_room(link, ingress, packet.priority, packet.wire_bytes) {
            let header = self.transport.header.0;
            if !queueing.trim || packet.priority == 7 || !self.has_room(link, ingress, 7, header) {
                self.totals.dropped += 1;
                return;
            }
            self.totals.trimmed += 1;
            (packet.priority, packet.wire_bytes, packet.trimmed) = (7, header, true);
        }
        let backlog = self.queued(link, packet.priority);
        let long = self.is_marked(link, backlog, |size| size.0);
        self.ports[link.index()].let_in += 1;
        if packet.priority < 7 && long {
            packet.marked = true;
            self.totals.marked += 1;
        }
        let (priority, wire_bytes) = (packet.priority, packet.wire_bytes);
        self.queues[link.index()].waiting[usize::from(priority)].push_back((packet, ingress));
        let vertex = self.network.link(link).from;
        let back = ingress.reverse();
        if let Some(pause) = self.pause(priority)
            && self.came(vertex, ingress, priority) > pause.pause_above.0
            && self.queues[back.index()].asked.insert(priority)
        {
            self.totals.pauses += u64::from(!self.ports[back.index()].down);
            self.make_frame(back, priority, true);
        }
        let head = self.head_in(ingress, link, wire_bytes);
        self.send_from_queues(link, head);
    }

    fn make_frame(&mut self, link: LinkId, priority: u8, pauses: bool) {
        self.totals.sent += 1;
        if self.ports[link.index()].down {
            self.totals.lost += 1;
            return;
        }
        let frame = Packet {
            flow: 0,
            acknowledgement: false,
            sequence: 0,
            beyond_gap: None,
            echo: None,
            answers: 0,
            wire_bytes: PAUSE_FRAME.0,
            marked: false,
            priority,
            trimmed: false,
            frame: Some(pauses),
            wrong: false,
            path: 0,
            probe: false,
            way: VecDeque::new(),
        };
        self.queues[link.index()].frames.push_back(frame);
        self.send_from_queues(link, self.now);
    }

    fn send_from_queues(&mut self, link: LinkId, head: u64) {
        if self.queues[link.index()].sending.is_some() || self.ports[link.index()].down {
            return;
        }
        let (mut packet, sending) = match self.queues[link.index()].frames.pop_front() {
            Some(frame) => (frame, None),
            None => {
                let Some(priority) = self.next_priority(link) else { return };
                let queue = &mut self.queues[link.index()].waiting[usize::from(priority)];
                let (packet, ingress) = queue.pop_front().expect("the one chosen");
                let sending = (priority, packet.wire_bytes, ingress);
                (packet, Some(sending))
            }
        };
        let occupies = self.time_for(link, Bytes(packet.wire_bytes));
        self.ports[link.index()].begun += 1;
        let number = self.ports[link.index()].begun;
        packet.wrong = sending.is_some() && self.is_wrong(link, number, packet.wire_bytes);
        self.queues[link.index()].sending = Some(sending);
        let until = self.ports[link.index()].idle_since.max(head) + occupies;
        self.ports[link.index()].sending = Some((packet, until));
        let generation = self.ports[link.index()].generation;
        self.plan(until, 1, link.index(), generation, What::Sent);
    }

    fn next_priority(&mut self, link: LinkId) -> Option<u8> {
        let schedule = self.queueing.expect("a switch with queues").schedule;
        let port = &mut self.queues[link.index()];
        if !port.waiting[7].is_empty() {
            return Some(7);
        }
        let ready: BTreeSet<u8> = (0..7)
            .filter(|p| !port.waiting[usize::from(*p)].is_empty() && !port.paused.contains(p))
            .collect();
        let Schedule::Weighted(weights) = schedule else { return ready.last().copied() };
        if ready.is_empty() {
            return None;
        }
        loop {
            let place = usize::from(port.turn);
            if port.waiting[place].is_empty() {
                port.credit[place] = 0;
            }
            if ready.contains(&port.turn) {
                if !std::mem::replace(&mut port.in_turn, true) {
                    port.credit[place] += u64::from(weights[place].max(1));
                }
                let size = port.waiting[place][0].0.wire_bytes;
                if let Some(rest) = port.credit[place].checked_sub(size) {
                    port.credit[place] = rest;
                    return Some(port.turn);
                }
            }
            port.turn = (port.turn + 1) % 7;
            port.in_turn = false;
        }
    }

    pub(super) fn sent_from_queue(&mut self, link: usize) {
        let (packet, _) = self.ports[link].sending.take().expect("something was being sent");
        let generation = self.ports[link].generation;
        let at = *self.network.link(LinkId(link as u32));
        let arrival = self.now + at.spec.delay.0 + self.late(link);
        if packet.wrong {
            self.totals.lost += 1;
        } else {
            self.plan(arrival, 3, link, generation, What::Arrive(packet));
        }
        let room = self.queues[link].sending.take().expect("something was being sent");
        if let Some((priority, _, ingress)) = room {
            self.resume_if_low(at.from, ingress, priority);
        }
        self.ports[link].idle_since = self.now;
        self.send_from_queues(LinkId(link as u32), self.now);
    }

    fn resume_if_low(&mut self, vertex: VertexId, ingress: LinkId, priority: u8) {
        let Some(pause) = self.pause(priority) else { return };
        let back = ingress.reverse();
        if self.came(vertex, ingress, priority) <= pause.resume_at.0
            && self.queues[back.index()].asked.remove(&priority)
        {
            self.make_frame(back, priority, false);
        }
    }

    pub(super) fn obey(&mut self, link: LinkId, frame: &Packet) {
        self.totals.delivered += 1;
        let port = link.reverse();
        if frame.frame == Some(true) {
            self.queues[port.index()].paused.insert(frame.priority);
            return;
        }
        self.queues[port.index()].paused.remove(&frame.priority);
        self.go_on(port);
    }

    fn go_on(&mut self, port: LinkId) {
        if self.has_queues(port) {
            self.send_from_queues(port, self.now);
        } else {
            self.plan(self.now, 6, port.index(), 0, What::Turn);
        }
    }

    pub(super) fn next_waiting(&mut self, link: usize) -> Option<usize> {
        let paused = &self.queues[link].paused;
        let flows = &self.flows;
        let line = &mut self.ports[link].waiting;
        let place = line.iter().position(|flow| !paused.contains(&flows[*flow].spec.priority))?;
        line.remove(place)
    }

    /// A link goes down or comes up: waiting packets are lost, and pauses requested over it are void.
    pub(super) fn change_queues(&mut self, link: usize, down: bool) {
        let id = LinkId(link as u32);
        self.ports[link].down = down;
        self.queues[link].asked.clear();
        if self.has_queues(id) {
            let port = &mut self.queues[link];
            self.totals.lost += port.frames.len() as u64;
            port.frames.clear();
            let mut freed: Vec<(u8, LinkId)> = Vec::new();
            freed.extend(port.sending.take().flatten().map(|(priority, _, by)| (priority, by)));
            for (priority, queue) in (0u8..).zip(&mut port.waiting) {
                self.totals.lost += queue.len() as u64;
                freed.extend(queue.drain(..).map(|(_, by)| (priority, by)));
            }
            (port.turn, port.in_turn, port.credit) = (0, false, [0; 8]);
            let vertex = self.network.link(id).from;
            for (priority, by) in freed {
                self.resume_if_low(vertex, by, priority);
            }
        }
        let back = id.reverse();
        self.queues[back.index()].paused.clear();
        self.go_on(back);
    }

    pub(super) fn answer_trimmed(&mut self, packet: &Packet) {
        let flow = &self.flows[packet.flow];
        let keeps = flow.arrived.contains(&packet.sequence);
        let missing = packet.sequence >= flow.expected;
        self.acknowledge(packet, missing.then_some(packet.sequence), missing && !keeps);
    }
}
