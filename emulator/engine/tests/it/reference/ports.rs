// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::{Choice, LinkChange, LinkId, Marking, Switching, VertexId};
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use rand::Rng;

use super::{Packet, Port, Reference, Seen, What};

/// Delay until switches know of dark links elsewhere.
const NEWS: Picoseconds = Picoseconds::from_micros(10);

impl Reference<'_> {
    pub(super) fn draw(&self, what: &str, link: LinkId, number: u64) -> u64 {
        let first = self.seed.stream(what, u64::from(link.0)).next_u64();
        super::splitmix(first.wrapping_add(number))
    }

    /// Whether a packet that meets `backlog` is marked. `measure` converts bytes to the unit of the threshold.
    pub(super) fn is_marked(
        &self,
        link: LinkId,
        backlog: u64,
        measure: impl Fn(Bytes) -> u64,
    ) -> bool {
        let Some(mark_from) = self.network.link(link).spec.mark_from else { return false };
        let from = measure(mark_from);
        let Marking::Ramp { full_at_percent, most_percent } = self.marking else {
            return backlog >= from;
        };
        let full_at = measure(Bytes(mark_from.0 * u64::from(full_at_percent) / 100));
        if backlog < from || backlog >= full_at {
            return backlog >= from;
        }
        let most = (u64::from(most_percent) << 32) / 100;
        let drawn = self.draw("marks", link, self.ports[link.index()].let_in) >> 32;
        u128::from(drawn)
            < u128::from(most) * u128::from(backlog - from) / u128::from(full_at - from)
    }

    pub(super) fn is_wrong(&self, link: LinkId, number: u64, wire_bytes: u64) -> bool {
        let Port { errors, loss, .. } = self.ports[link.index()];
        if errors == 0 && loss == 0 {
            return false;
        }
        let units = 2_f64.powi(64);
        let all_right = (-(errors as f64) / units).ln_1p() * (wire_bytes * 8) as f64;
        let chance = -(all_right + (-(loss as f64) / units).ln_1p()).exp_m1();
        let drawn = self.draw("bit errors", link, number) as f64 / units;
        assert!((drawn / chance - 1.0).abs() > 1e-9, "rounding decides");
        drawn < chance
    }

    /// The delay of a packet that leaves now: interpolated between draws at intervals of twice the maximum.
    pub(super) fn late(&self, link: usize) -> u64 {
        let most = self.ports[link].jitter;
        if most == 0 {
            return 0;
        }
        let first = self.seed.stream("jitter", link as u64).next_u64();
        let draw = |turn: u64| {
            let drawn = super::splitmix(first.wrapping_add(turn));
            ((u128::from(drawn) * u128::from(most + 1)) >> 64) as i128
        };
        let (turn, into) = (self.now / (2 * most), i128::from(self.now % (2 * most)));
        let (from, to, whole) = (draw(turn), draw(turn + 1), i128::from(2 * most));
        u64::try_from((from * whole + (to - from) * into) / whole).unwrap()
    }

    pub(super) fn change(&mut self, link: usize, change: LinkChange) {
        match change {
            LinkChange::PacketLoss(loss) => self.ports[link].loss = loss.0,
            LinkChange::Jitter(most) => self.ports[link].jitter = most.get(),
            LinkChange::BitErrors(errors) => self.ports[link].errors = errors.0,
            LinkChange::Rate(rate) => self.change_rate(link, Some(rate)),
            LinkChange::Healthy => {
                let port = &mut self.ports[link];
                (port.errors, port.loss, port.jitter) = (0, 0, 0);
                self.change_rate(link, None);
            }
            LinkChange::Down | LinkChange::Up => self.change_state(link, change),
            LinkChange::Paused(_) => unreachable!("no case pauses a port for good"),
        }
    }

    /// Waiting packets use the new rate; the packet in transmission finishes at the old one.
    fn change_rate(&mut self, link: usize, rate: Option<BitsPerSecond>) {
        self.ports[link].rate = rate;
        let rate = self.rate(LinkId(link as u32));
        for (packet, occupies) in &mut self.ports[link].queue {
            *occupies = rate.time_for(Bytes(packet.wire_bytes)).0;
        }
    }

    fn change_state(&mut self, link: usize, change: LinkChange) {
        if self.ports[link].down == (change == LinkChange::Down) {
            return;
        }
        self.change_queues(link, change == LinkChange::Down);
        self.plan(self.now + NEWS.0, 0, 0, 0, What::News);
        let port = &mut self.ports[link];
        let down = change == LinkChange::Down;
        port.down = down;
        port.idle_since = self.now;
        if down {
            self.totals.lost += port.queue.len() as u64 + u64::from(port.sending.is_some());
            port.queue.clear();
            port.sending = None;
            port.generation += 1;
        } else {
            self.plan(self.now, 6, link, 0, What::Turn);
        }
    }

    pub(super) fn enqueue(&mut self, link: LinkId, mut packet: Packet, ingress: Option<LinkId>) {
        if self.has_queues(link) {
            return self.queue_up(link, packet, ingress.expect("a switch makes no packets"));
        }
        let spec = self.network.link(link).spec;
        let bounded = !self.network.role(self.network.link(link).from).is_host();
        let port = &self.ports[link.index()];
        if port.down {
            self.totals.lost += 1;
            return;
        }
        let occupies = self.time_for(link, Bytes(packet.wire_bytes));
        let left = Picoseconds(port.sending.as_ref().map_or(0, |(_, until)| until - self.now));
        // A packet that started at another rate fills the queue with its bytes, not with its time.
        let sending = match port.sending_at.filter(|rate| *rate != self.rate(link)) {
            Some(rate) => self.time_for(link, rate.bytes_in(left)),
            None => left.0,
        };
        let backlog = sending + port.queue.iter().map(|(_, occupies)| occupies).sum::<u64>();
        let over = |size: Option<Bytes>, time: u64| {
            bounded && size.is_some_and(|size| time > self.time_for(link, size))
        };
        if over(spec.queue, backlog + occupies) {
            self.totals.dropped += 1;
            return;
        }
        let measure = |size: Bytes| self.time_for(link, size);
        if bounded && !packet.acknowledgement && self.is_marked(link, backlog, measure) {
            packet.marked = true;
            self.totals.marked += 1;
        }
        self.ports[link.index()].let_in += 1;
        packet.wrong = self.is_wrong(link, self.ports[link.index()].let_in, packet.wire_bytes);
        let head =
            ingress.map_or(self.now, |ingress| self.head_in(ingress, link, packet.wire_bytes));
        self.ports[link.index()].queue.push_back((packet, occupies));
        self.start_sending(link.index(), head);
    }

    /// When enough of a packet whose last bit arrives over `ingress` now had arrived for `link` to start sending it.
    pub(super) fn head_in(&self, ingress: LinkId, link: LinkId, wire_bytes: u64) -> u64 {
        let from = self.network.link(link).from;
        let stores = self.switching == Switching::StoreAndForward;
        if stores || self.network.role(from).is_host() || self.rate(link) > self.rate(ingress) {
            return self.now;
        }
        let [all, header] = [wire_bytes, self.transport.header.0.clamp(1, wire_bytes)]
            .map(|bytes| self.time_for(ingress, Bytes(bytes)));
        (self.now + header).saturating_sub(all)
    }

    pub(super) fn start_sending(&mut self, link: usize, head: u64) {
        let rate = self.rate(LinkId(link as u32));
        let port = &mut self.ports[link];
        if port.sending.is_some() {
            return;
        }
        if port.queue.is_empty() && !port.waiting.is_empty() {
            self.plan(self.now, 6, link, 0, What::Turn);
        } else if let Some((packet, occupies)) = port.queue.pop_front() {
            let until = port.idle_since.max(head) + occupies;
            (port.sending, port.sending_at) = (Some((packet, until)), Some(rate));
            let generation = port.generation;
            self.plan(until, 1, link, generation, What::Sent);
        }
    }

    pub(super) fn sent(&mut self, link: usize) {
        if self.has_queues(LinkId(link as u32)) {
            return self.sent_from_queue(link);
        }
        let port = &mut self.ports[link];
        let (packet, _) = port.sending.take().expect("something was being sent");
        let generation = port.generation;
        let arrival = self.now + self.network.links()[link].spec.delay.0 + self.late(link);
        if packet.wrong {
            self.totals.lost += 1;
        } else {
            self.plan(arrival, 3, link, generation, What::Arrive(packet));
        }
        self.ports[link].idle_since = self.now;
        self.start_sending(link, self.now);
    }

    pub(super) fn arrive(&mut self, link: LinkId, mut packet: Packet) {
        if packet.frame.is_some() {
            return self.obey(link, &packet);
        }
        self.log.push(Seen {
            at: SimTime(self.now),
            link,
            sequence: packet.sequence,
            acknowledgement: packet.acknowledgement,
            marked: packet.marked,
            wire_bytes: packet.wire_bytes,
            flow: packet.flow,
        });
        if let Some(next) = self.lead_on(link, &packet).or_else(|| packet.way.pop_front()) {
            self.enqueue(next, packet, Some(link));
        } else if self.host_delay == Picoseconds::ZERO {
            self.take_in(&packet);
        } else {
            let later = self.now + self.host_delay.0;
            self.plan(later, 4, link.index(), 0, What::TakeIn(packet));
        }
    }

    /// The link with the smallest backlog, if the switch at the end of `link` chooses.
    pub(super) fn lead_on(&self, link: LinkId, packet: &Packet) -> Option<LinkId> {
        let at = self.network.link(link).to;
        let choices = &self.flows[packet.flow].choices;
        let choices = &choices[usize::from(packet.acknowledgement)];
        let choice = choices.iter().find(|choice| choice.at == at)?;
        let stands = |link: &LinkId| {
            let leads_on = self.leads_on(self.network.link(*link).to, choices);
            match leads_on && !self.ports[link.index()].down {
                true => self.stands_before(*link),
                false => u64::MAX / 2,
            }
        };
        let packets = |link: &LinkId| 8 * self.time_for(*link, self.transport.packet());
        let least = choice.links.iter().map(stands).min()?;
        let is_about = |link: &&LinkId| stands(link) <= least + packets(link);
        let equal: Vec<_> = choice.links.iter().filter(is_about).collect();
        let seed = u64::from(choice.salt) << 32 | u64::from(packet.sequence);
        let draw = u128::from(super::splitmix(seed.wrapping_add(self.now)));
        Some(*equal[((draw * equal.len() as u128) >> 64) as usize])
    }

    /// Whether one of the links that a vertex may choose leads to the destination, as far as others know.
    fn leads_on(&self, at: VertexId, choices: &[Choice]) -> bool {
        let Some(choice) = choices.iter().find(|choice| choice.at == at) else { return true };
        let leads = |link: &LinkId| {
            !self.known_down[link.index()] && self.leads_on(self.network.link(*link).to, choices)
        };
        choice.links.iter().any(leads)
    }

    pub(super) fn stands_before(&self, link: LinkId) -> u64 {
        if self.has_queues(link) {
            return self.time_for(link, Bytes(self.held(link)));
        }
        let port = &self.ports[link.index()];
        let sending = port.sending.as_ref().map_or(0, |(_, until)| until - self.now);
        sending + port.queue.iter().map(|(_, occupies)| occupies).sum::<u64>()
    }
}
