// SPDX-License-Identifier: Apache-2.0

use std::collections::VecDeque;

use lightloom_engine::LinkId;
use lightloom_engine::transport::{Balance, LossRecovery};
use lightloom_units::{Picoseconds, SimTime};

use super::{Flow, Packet, Reason, Reference, What};

const SPRAY_PROBE: Picoseconds = Picoseconds::from_micros(50);

impl Reference<'_> {
    pub(super) fn take_in(&mut self, packet: &Packet) {
        self.totals.delivered += 1;
        if packet.acknowledgement {
            self.acknowledged(packet);
        } else {
            self.data(packet);
        }
    }

    pub(super) fn data(&mut self, packet: &Packet) {
        if packet.probe {
            return self.acknowledge(packet, None, false);
        }
        if packet.trimmed {
            return self.answer_trimmed(packet);
        }
        let go_back = self.transport.recovery == LossRecovery::GoBackN;
        let flow = &mut self.flows[packet.flow];
        let in_order = packet.sequence == flow.expected;
        let after_gap = packet.sequence > flow.expected;
        if in_order || (after_gap && !go_back) {
            flow.arrived.insert(packet.sequence);
        }
        let delivered_before = flow.messages_delivered();
        while flow.arrived.remove(&flow.expected) {
            flow.expected += 1;
        }
        if flow.expected == flow.total() && flow.end.is_none() {
            flow.end = Some(SimTime(self.now));
        }
        let new_message = flow.messages_delivered() > delivered_before;
        self.acknowledge(packet, after_gap.then_some(packet.sequence), false);
        if new_message {
            let waiting = |flow: &Flow| {
                flow.started && flow.spec.gates.iter().any(|gate| gate.flow.index() == packet.flow)
            };
            for number in 0..self.flows.len() {
                if waiting(&self.flows[number]) {
                    self.send(number);
                }
            }
        }
    }

    pub(super) fn acknowledge(&mut self, packet: &Packet, beyond_gap: Option<u32>, trimmed: bool) {
        let flow = &self.flows[packet.flow];
        let path = &flow.paths[packet.path];
        let known = if flow.choices[1].is_empty() { usize::MAX } else { 1 };
        let back = path.iter().rev().map(|link| link.reverse());
        let mut way: VecDeque<_> = back.take(known).collect();
        let first = way.pop_front().expect("a path has links");
        let acknowledgement = Packet {
            flow: packet.flow,
            acknowledgement: true,
            sequence: if packet.probe { packet.sequence } else { flow.expected },
            beyond_gap,
            echo: (packet.marked || trimmed).then_some(packet.sequence),
            answers: packet.sequence,
            wire_bytes: self.transport.acknowledgement.0,
            marked: false,
            priority: 7,
            trimmed,
            frame: None,
            wrong: false,
            path: packet.path,
            probe: packet.probe,
            way,
        };
        self.totals.sent += 1;
        self.enqueue(first, acknowledgement, None);
    }

    pub(super) fn acknowledged(&mut self, packet: &Packet) {
        let now = self.now;
        let flow = &mut self.flows[packet.flow];
        if flow.acked == flow.total() {
            return;
        }
        if packet.probe {
            flow.retired.remove(&packet.path);
            return self.send(packet.flow);
        }
        flow.in_flight = flow.in_flight.saturating_sub(1);
        flow.asked = None;
        self.listen(packet.flow);
        let flow = &mut self.flows[packet.flow];
        if flow.retired.get(&packet.path).is_some_and(|(lost, _)| *lost <= packet.answers) {
            flow.retired.remove(&packet.path);
            flow.heard.insert(packet.path, packet.answers);
        }
        let feeds_back = packet.answers >= flow.acked;
        if packet.sequence > flow.acked {
            flow.acked = packet.sequence;
            flow.next = flow.next.max(flow.acked);
            flow.held = flow.held.split_off(&flow.acked);
            flow.backoff = 0;
            if let Some((_, sent_at)) = flow.timed.filter(|(timed, _)| *timed < flow.acked) {
                // RFC 6298, section 2.3.
                let sample = now - sent_at;
                flow.variation = (3 * flow.variation + sample.abs_diff(flow.smoothed)) / 4;
                flow.smoothed = (7 * flow.smoothed + sample) / 8;
                flow.timed = None;
            }
            let waits = flow.acked != flow.next;
            let deadline = waits.then(|| now + self.timeout(packet.flow));
            self.set_timer(packet.flow, deadline);
            if deadline.is_none() {
                self.rest(packet.flow);
            }
        }
        let flow = &mut self.flows[packet.flow];
        if let Some(arrived) = packet.beyond_gap {
            match self.transport.recovery {
                LossRecovery::GoBackN => {
                    if packet.sequence == flow.acked && flow.acked >= flow.answered {
                        flow.answered = flow.sent;
                        flow.next = flow.acked;
                    }
                }
                LossRecovery::SelectiveRepeat { .. } if packet.trimmed => {
                    let is_out = (flow.acked..flow.next).contains(&arrived);
                    let missing = is_out && !flow.held.contains(&arrived);
                    if missing && !flow.trimmed.contains(&arrived) {
                        flow.trimmed_resent.retain(|(sequence, _)| *sequence != arrived);
                        flow.trimmed.push_back(arrived);
                        flow.backoff = 0;
                        let waits = flow.deadline.is_some();
                        let deadline = waits.then(|| now + self.timeout(packet.flow));
                        self.set_timer(packet.flow, deadline);
                    }
                }
                LossRecovery::SelectiveRepeat { reordering } => {
                    if arrived >= flow.acked {
                        flow.held.insert(arrived);
                    }
                    let was_asked = flow.out == Some(arrived);
                    if was_asked {
                        flow.out = None;
                        flow.in_flight = 0;
                        flow.repair_end = flow.repair_end.max(arrived);
                        flow.to_repair.extend(flow.acked..flow.repair_end);
                        flow.repaired.extend(flow.acked..flow.repair_end);
                    }
                    let apart = reordering.packets(flow.window);
                    flow.repair_end = flow.repair_end.max((arrived + 1).saturating_sub(apart));
                    for missing in flow.acked..(arrived + 1).saturating_sub(apart) {
                        if flow.repaired.insert(missing) {
                            flow.to_repair.insert(missing);
                        }
                    }
                    flow.pass_over();
                    let (acked, held) = (flow.acked, &flow.held);
                    flow.trimmed_resent
                        .retain(|(sequence, _)| *sequence >= acked && !held.contains(sequence));
                    let late = (arrived + 1).saturating_sub(apart);
                    let is_lost = |next: u32| was_asked || next <= late;
                    while let Some((sequence, next)) = flow.trimmed_resent.front().copied()
                        && is_lost(next)
                    {
                        flow.trimmed_resent.pop_front();
                        flow.trimmed.push_back(sequence);
                        flow.lose(sequence, now + SPRAY_PROBE.0);
                    }
                }
            }
        }
        let flow = &mut self.flows[packet.flow];
        if let Some(path) = flow.taken.get(&packet.answers).filter(|_| feeds_back) {
            let heard = flow.heard.entry(*path).or_default();
            *heard = (*heard).max(packet.answers);
        }
        flow.pass_over();
        if self.flows[packet.flow].acked < self.flows[packet.flow].total() {
            self.send(packet.flow);
        }
    }

    fn listen(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        flow.silence_generation += 1;
        let generation = flow.silence_generation;
        if let Some(silence) = self.transport.tail_probe {
            let silence = silence.0.max(2 * self.flows[number].smoothed);
            self.plan(self.now + silence, 5, number, generation, What::Silent);
        }
    }

    fn rest(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        flow.silence_generation += 1;
        (flow.asked, flow.out) = (None, None);
    }

    pub(super) fn silent(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        if flow.deadline == Some(self.now) {
            return;
        }
        flow.silence_generation += 1;
        flow.asked = (flow.acked..flow.next).rev().find(|sequence| !flow.held.contains(sequence));
        self.send(number);
    }

    pub(super) fn time_out(&mut self, number: usize) {
        let now = self.now;
        self.rest(number);
        let flow = &mut self.flows[number];
        let fixed = self.transport.balance.spreads_packets();
        flow.backoff = if fixed { 0 } else { (flow.backoff + 1).min(6) };
        flow.answered = flow.sent;
        flow.next = flow.acked;
        flow.repaired.clear();
        flow.repair_end = flow.acked;
        flow.to_repair.clear();
        flow.trimmed.clear();
        flow.trimmed_resent.clear();
        flow.in_flight = 0;
        let backoff = flow.backoff;
        let deadline = now + (self.timeout(number) << backoff);
        self.set_timer(number, Some(deadline));
        self.send(number);
    }

    pub(super) fn set_timer(&mut self, number: usize, deadline: Option<u64>) {
        let flow = &mut self.flows[number];
        flow.deadline = deadline;
        flow.timer_generation += 1;
        let generation = flow.timer_generation;
        if let Some(deadline) = deadline {
            self.plan(deadline, 5, number, generation, What::TimeOut);
        }
    }

    fn timeout(&self, number: usize) -> u64 {
        const LEAST: Picoseconds = Picoseconds::from_micros(500);
        let flow = &self.flows[number];
        let measured = (flow.smoothed + 4 * flow.variation).max(LEAST.0);
        self.transport.timeout.map_or(measured, Picoseconds::get)
    }

    pub(super) fn released(&self, number: usize) -> u32 {
        let spec = &self.flows[number].spec;
        let opened = spec.gates.iter().map(|gate| {
            let awaited = &self.flows[gate.flow.index()];
            let delivered = awaited.messages_delivered();
            if delivered == awaited.spec.messages {
                u32::MAX
            } else {
                (i64::from(delivered) + i64::from(gate.ahead)).max(0) as u32
            }
        });
        opened.min().unwrap_or(u32::MAX).min(spec.messages)
    }

    pub(super) fn send(&mut self, number: usize) {
        let link = self.flows[number].paths[0][0].index();
        if self.choose(number).is_some() && !self.ports[link].waiting.contains(&number) {
            self.ports[link].waiting.push_back(number);
            self.plan(self.now, 6, link, 0, What::Turn);
        }
    }

    pub(super) fn turn(&mut self, link: usize) {
        let port = &mut self.ports[link];
        if port.down || port.sending.is_some() || !port.queue.is_empty() {
            return;
        }
        while let Some(number) = self.next_waiting(link) {
            if let Some((sequence, choice)) = self.choose(number) {
                if !self.probe(number) {
                    self.send_now(number, sequence, choice);
                }
                if self.choose(number).is_some() {
                    self.ports[link].waiting.push_back(number);
                }
                return;
            }
        }
    }

    pub(super) fn choose(&self, number: usize) -> Option<(u32, Reason)> {
        let released = self.released(number).saturating_mul(self.flows[number].per_message);
        let flow = &self.flows[number];
        let missing = |sequence: &u32| *sequence >= flow.acked && !flow.held.contains(sequence);
        if let Some(asked) = flow.asked {
            return Some((asked, Reason::Tail));
        }
        let trimmed = flow.trimmed.iter().find(|sequence| missing(sequence));
        if let Some(&trimmed) = trimmed.filter(|_| flow.in_flight < flow.window) {
            return Some((trimmed, Reason::Trimmed));
        }
        if let Some(&repair) = flow.to_repair.iter().find(|sequence| missing(sequence)) {
            return Some((repair, Reason::Repair));
        }
        let resent_and_held =
            |sequence: &u32| *sequence < flow.sent && flow.held.contains(sequence);
        let next = (flow.next..released).find(|sequence| !resent_and_held(sequence))?;
        (next - flow.acked < flow.window).then_some((next, Reason::Next))
    }

    pub(super) fn send_now(&mut self, number: usize, sequence: u32, choice: Reason) {
        let probe_at = self.now + SPRAY_PROBE.0;
        let flow = &mut self.flows[number];
        flow.in_flight += u32::from(!matches!(choice, Reason::Repair | Reason::Tail));
        if choice != Reason::Next || sequence < flow.sent {
            flow.timed = None;
        } else if sequence.is_multiple_of(flow.window.next_power_of_two()) && flow.timed.is_none() {
            flow.timed = Some((sequence, self.now));
        }
        if choice == Reason::Tail {
            (flow.asked, flow.out) = (None, Some(sequence));
            flow.resent += 1;
        } else if choice == Reason::Trimmed {
            while flow.trimmed.pop_front().is_some_and(|first| first != sequence) {}
            flow.trimmed_resent.push_back((sequence, flow.next));
            flow.resent += 1;
            flow.backoff = 0;
            let waits = flow.deadline.is_some();
            let deadline = waits.then(|| self.now + self.timeout(number));
            self.set_timer(number, deadline);
        } else if choice == Reason::Repair {
            flow.lose(sequence, probe_at);
            flow.to_repair.retain(|other| *other > sequence);
            flow.pass_over();
            flow.resent += 1;
        } else {
            if sequence < flow.sent {
                flow.resent += 1;
                flow.lose(sequence, probe_at);
            }
            flow.next = sequence + 1;
            flow.sent = flow.sent.max(flow.next);
            if flow.deadline.is_none() {
                let backoff = flow.backoff;
                let deadline = self.now + (self.timeout(number) << backoff);
                self.set_timer(number, Some(deadline));
            }
        }
        self.send_packet(number, sequence);
    }

    pub(super) fn choose_path(&mut self, number: usize, sequence: u32) -> usize {
        let flow = &mut self.flows[number];
        match self.transport.balance {
            Balance::PerFlow | Balance::Adaptive => {}
            Balance::Spray { .. } => {
                loop {
                    flow.drawn += 1;
                    let draw = super::splitmix(flow.salt.wrapping_add(flow.drawn));
                    // Of the paths not drawn in this round, starting with the last.
                    let left = flow.to_draw.len() - flow.drawn_in_round;
                    let place = ((u128::from(draw) * left as u128) >> 64) as usize;
                    flow.to_draw.swap(flow.drawn_in_round, flow.drawn_in_round + place);
                    flow.turn = flow.to_draw[flow.drawn_in_round];
                    flow.drawn_in_round = (flow.drawn_in_round + 1) % flow.to_draw.len();
                    if !flow.retired.contains_key(&flow.turn) {
                        break;
                    }
                }
                flow.taken.insert(sequence, flow.turn);
            }
            Balance::Entropy { .. } => unreachable!("entropy values are judged by bounds"),
        }
        flow.turn
    }

    fn probe(&mut self, number: usize) -> bool {
        let now = self.now;
        let flow = &mut self.flows[number];
        let Some((&path, (_, at))) = flow.retired.iter_mut().find(|(_, (_, at))| *at <= now) else {
            return false;
        };
        *at = now + SPRAY_PROBE.0;
        let mut way: VecDeque<_> = flow.paths[path].iter().copied().collect();
        let first = way.pop_front().expect("a path has links");
        let header = self.transport.header.0;
        let packet = Packet {
            probe: true,
            trimmed: true,
            priority: 7,
            ..data(number, path as u32, (header, path), way)
        };
        self.totals.sent += 1;
        self.enqueue(first, packet, None);
        true
    }

    pub(super) fn send_packet(&mut self, number: usize, sequence: u32) {
        self.listen(number);
        let path = self.choose_path(number, sequence);
        let flow = &self.flows[number];
        let last = (sequence + 1).is_multiple_of(flow.per_message);
        let wire_bytes = if last {
            self.transport.last_packet(flow.spec.message).0
        } else {
            self.transport.packet().0
        };
        let chosen_on_the_way = !flow.choices[0].is_empty();
        let known = if chosen_on_the_way { 1 } else { usize::MAX };
        let mut way: VecDeque<_> = flow.paths[path].iter().copied().take(known).collect();
        let first = way.pop_front().expect("a path has links");
        let packet = Packet {
            priority: flow.spec.priority,
            ..data(number, sequence, (wire_bytes, path), way)
        };
        self.totals.sent += 1;
        self.enqueue(first, packet, None);
    }
}

fn data(
    flow: usize,
    sequence: u32,
    (wire_bytes, path): (u64, usize),
    way: VecDeque<LinkId>,
) -> Packet {
    Packet {
        flow,
        acknowledgement: false,
        sequence,
        beyond_gap: None,
        echo: None,
        answers: 0,
        wire_bytes,
        marked: false,
        priority: 0,
        trimmed: false,
        frame: None,
        wrong: false,
        path,
        probe: false,
        way,
    }
}
