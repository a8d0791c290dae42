// SPDX-License-Identifier: Apache-2.0
//! The sending end of a flow: tracks which packets may be sent, are in flight or need retransmission.
//!
//! ```text
//!   0          acked            next          released        total
//!   ├────────────┼────────────────┼───────────────┼──────────────┤
//!    all received  in flight       may be sent now  waits for
//!                                  (up to acked +   the flow's
//!                                  window)          gates
//! ```

mod again;
mod credit;
mod seen;
mod tail;
mod trims;

use lightloom_units::SimTime;

use self::tail::TailProbe;
use self::trims::Trims;
use super::{
    Balancer, Came, CongestionController, LossRecovery, PortLoad, RetransmissionTimer, SenderLane,
    SequenceSet,
};
use crate::engine::packet::{Packet, flag};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) sequence: u32,
    pub(crate) wire_bytes: u16,
    pub(crate) resent: bool,
    pub(crate) cursor: u32,
    pub(crate) probe: bool,
}

/// Packets are numbered from zero across all messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sender {
    pub(crate) flow: u32,
    pub(crate) priority: u8,
    /// Start of the first path in the route table. Without a `balancer`, the only path.
    pub(crate) cursor: u32,
    pub(crate) balancer: Option<Box<Balancer>>,
    controller: Option<Box<CongestionController>>,
    by_credit: bool,
    is_settled: bool,
    acked: u32,
    next: u32,
    released: u32,
    total: u32,
    sent: u32,
    window: u32,
    /// Limit on the distance between packets in flight, since both ends track them.
    span: u32,
    message_end: u32,
    per_message: u32,
    full_bytes: u16,
    last_bytes: u16,
    timeouts: u32,
    recovery: LossRecovery,
    /// For selective repeat: a packet is treated as lost once a packet this much later has arrived.
    reordering: u32,
    answered: u32,
    /// For selective repeat: packets in `repair..repair_end` that are not in `held` are resent.
    repair: u32,
    repair_end: u32,
    held: SequenceSet,
    trims: Trims,
    /// Number of packets without a response.
    in_flight: u32,
    timer: RetransmissionTimer,
    pub(crate) backs_off: bool,
    /// Adaptive switches avoid full queues, so a lost packet indicates a dark link.
    pub(crate) switches_choose: bool,
    /// When everything in flight is treated as lost, or `u64::MAX` if nothing is in flight.
    pub(crate) deadline: u64,
    tail: TailProbe,
    pub(crate) resent: u32,
    pub(crate) started: bool,
    pub(crate) enlisted: bool,
    /// Used only at the start or end of a message or flow.
    pub(crate) waits: Box<Waits>,
    /// When everything was acknowledged, or `u64::MAX` until then.
    finished: u64,
    /// Earliest planned wake-up of a paced or striped flow, or `u64::MAX` if there is none.
    wakes_at: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Message `k` may start once each receiver has delivered `k + 1 - ahead` messages or all of them.
    pub(crate) gates: Vec<(u32, i32)>,
    pub(crate) awaits: Vec<u32>,
    pub(crate) dependents: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) messages: u32,
    pub(crate) per_message: u32,
    pub(crate) full_bytes: u16,
    pub(crate) last_bytes: u16,
}

impl Sender {
    pub(crate) fn new(
        flow: u32,
        cursor: u32,
        load: Load,
        window: u32,
        recovery: LossRecovery,
        timer: RetransmissionTimer,
        tail_probe: Option<u64>,
    ) -> Self {
        let total = load.messages * load.per_message;
        let (held, reordering) = match recovery {
            LossRecovery::GoBackN => (SequenceSet::default(), 1),
            LossRecovery::SelectiveRepeat { reordering } => {
                (SequenceSet::new(window.min(total)), reordering.packets(window))
            }
        };
        let mut tail = TailProbe::new(tail_probe);
        tail.take_round_trip(timer.round_trip());
        Self {
            flow,
            cursor,
            is_settled: true,
            total,
            window: window.max(1),
            span: window.max(1),
            message_end: load.per_message,
            per_message: load.per_message,
            full_bytes: load.full_bytes,
            last_bytes: load.last_bytes,
            recovery,
            reordering,
            held,
            timer,
            backs_off: true,
            deadline: u64::MAX,
            tail,
            finished: u64::MAX,
            wakes_at: u64::MAX,
            ..Self::default()
        }
    }

    pub(crate) fn release(&mut self, messages: u32) {
        let released = messages.saturating_mul(self.per_message).min(self.total);
        self.released = self.released.max(released);
    }

    pub(crate) fn cancel(&mut self) {
        self.total = self.acked;
        self.released = self.acked;
        self.next = self.acked;
        self.repair_end = self.repair;
        self.trims.clear();
        self.deadline = u64::MAX;
        self.tail.rest();
    }

    pub(crate) fn finished(&self) -> Option<SimTime> {
        (self.finished != u64::MAX).then_some(SimTime(self.finished))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.acked >= self.total
    }

    pub(crate) fn packets_sent(&self) -> u32 {
        self.sent
    }

    pub(crate) fn has_sent_all(&self) -> bool {
        self.sent >= self.total
    }

    #[inline(always)]
    pub(crate) fn wants_to_send(&self) -> bool {
        self.may_send_next() || self.has_repairs()
    }

    #[inline(always)]
    fn may_send_next(&self) -> bool {
        self.next < self.released && self.next - self.acked < self.window
    }

    #[inline(always)]
    fn has_repairs(&self) -> bool {
        self.repair < self.repair_end || self.tail.is_asked() || self.may_send_trimmed()
    }

    #[inline(always)]
    fn may_send_trimmed(&self) -> bool {
        self.trims.waiting() > 0 && self.has_room()
    }

    #[inline(always)]
    pub(crate) fn poll(&mut self, now: u64, lane: usize) -> Option<Outgoing> {
        let repairs = self.has_repairs();
        if !repairs && !self.may_send_next() {
            return None;
        }
        if let Some(probe) = self.probe_due(now, lane) {
            return Some(probe);
        }
        if repairs {
            return Some(self.poll_repair(now, lane));
        }
        let sequence = self.next;
        if sequence >= self.message_end {
            self.message_end += self.per_message;
        }
        let last = sequence + 1 == self.message_end;
        let wire_bytes = if last { self.last_bytes } else { self.full_bytes };
        let resent = sequence < self.sent;
        self.next += 1;
        self.in_flight += 1;
        if resent {
            self.resent += 1;
            self.timer.sent_again();
            self.count_lost(now, sequence);
            self.skip_held();
        } else {
            self.timer.sent(sequence, now);
        }
        self.sent = self.sent.max(self.next);
        if self.deadline == u64::MAX {
            self.deadline = now + self.backoff(self.timeouts);
        }
        Some(self.outgoing(now, lane, sequence, wire_bytes, resent))
    }

    #[inline(always)]
    fn outgoing(
        &mut self,
        now: u64,
        lane: usize,
        sequence: u32,
        wire_bytes: u16,
        resent: bool,
    ) -> Outgoing {
        if let Some(controller) = &mut self.controller {
            controller.sent(now, sequence, wire_bytes);
            if self.by_credit {
                self.fit_window();
            }
        }
        self.tail.sent(now);
        let cursor = match &mut self.balancer {
            Some(balancer) => balancer.next(sequence, resent, lane),
            None => self.cursor,
        };
        Outgoing { sequence, wire_bytes, resent, cursor, probe: false }
    }

    #[inline(always)]
    fn probe_due(&mut self, now: u64, lane: usize) -> Option<Outgoing> {
        let (path, cursor) = self.balancer.as_mut()?.probe(now, lane)?;
        Some(Outgoing { sequence: path, wire_bytes: 0, resent: false, cursor, probe: true })
    }

    #[inline(always)]
    pub(crate) fn is_striped(&self) -> bool {
        self.balancer.as_ref().is_some_and(|balancer| balancer.is_striped())
    }

    /// Where each path starts in the route table.
    pub(crate) fn cursors(&self) -> impl Iterator<Item = u32> {
        let own = self.balancer.is_none().then_some(self.cursor);
        own.into_iter().chain(self.balancer.iter().flat_map(|balancer| balancer.cursors()))
    }

    pub(crate) fn lanes(&mut self) -> &mut [SenderLane] {
        self.balancer.as_mut().map_or(&mut [], |balancer| balancer.lanes())
    }

    pub(crate) fn plans_wake(&mut self, at: u64) -> bool {
        let earlier = at < self.wakes_at;
        self.wakes_at = self.wakes_at.min(at);
        earlier
    }

    /// Returns whether a wake-up is due, and not only one that an earlier one replaced.
    pub(crate) fn wakes_up(&mut self, now: u64) -> bool {
        let is_due = self.wakes_at <= now;
        if is_due {
            self.wakes_at = u64::MAX;
        }
        is_due
    }

    /// Whether a rise of the rate allows the next packet before the planned wake-up.
    #[inline(always)]
    pub(crate) fn oversleeps(&self) -> bool {
        self.wakes_at != u64::MAX && self.next_send() < self.wakes_at
    }

    #[inline]
    pub(crate) fn next_send(&self) -> u64 {
        self.controller.as_ref().map_or(0, |controller| controller.next_send())
    }

    #[cold]
    fn poll_repair(&mut self, now: u64, lane: usize) -> Outgoing {
        if let Some(sequence) = self.tail.go() {
            // The packet may be a second copy, for which the receiver grants no credit.
            self.bring_credit();
            return self.send_again(now, lane, sequence);
        }
        if self.may_send_trimmed()
            && let Some(sequence) = self.trims.resend(self.next)
        {
            self.in_flight += 1;
            self.wait_anew(now);
            self.fit_window();
            return self.send_again(now, lane, sequence);
        }
        self.bring_credit();
        let sequence = self.repair;
        self.repair += 1;
        self.count_lost(now, sequence);
        self.skip_held();
        self.send_again(now, lane, sequence)
    }

    fn send_again(&mut self, now: u64, lane: usize, sequence: u32) -> Outgoing {
        self.resent += 1;
        self.timer.sent_again();
        let last = (sequence + 1).is_multiple_of(self.per_message);
        let wire_bytes = if last { self.last_bytes } else { self.full_bytes };
        self.outgoing(now, lane, sequence, wire_bytes, true)
    }

    fn skip_held(&mut self) {
        if !self.trims.is_empty() {
            let (acked, held) = (self.acked, &self.held);
            self.trims.forget(|number| number < acked || held.contains(number));
        }
        self.repair = self.repair.max(self.acked);
        while self.repair < self.repair_end
            && (self.is_held(self.repair) || self.trims.contains(self.repair))
        {
            self.repair += 1;
        }
        while self.next < self.sent && self.is_held(self.next) {
            self.next += 1;
            if self.next > self.message_end {
                self.message_end += self.per_message;
            }
        }
    }

    fn is_held(&self, sequence: u32) -> bool {
        self.keeps() && self.held.contains(sequence)
    }

    const fn keeps(&self) -> bool {
        matches!(self.recovery, LossRecovery::SelectiveRepeat { .. })
    }

    #[inline(always)]
    pub(crate) fn acknowledged(&mut self, packet: &Packet, now: u64) {
        if self.is_done() {
            return;
        }
        if packet.has(flag::RESENT) {
            return self.answered_without_data(packet, now);
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.tail.heard(now);
        if let Some(balancer) = self.balancer.as_mut().filter(|balancer| balancer.retired() > 0) {
            balancer.answered_by(packet.cursor(), packet.answered());
        }
        let in_window = packet.answered() >= self.acked;
        let newly = packet.sequence().saturating_sub(self.acked);
        if newly > 0 {
            self.progress(packet.sequence(), now);
        }
        if packet.has(flag::GAP) {
            self.gap(packet, now);
        }
        if in_window && (self.controller.is_some() || self.balancer.is_some()) {
            self.feed_back(packet, now, newly);
        } else if newly > 0 {
            self.fit_window();
        }
        if self.by_credit {
            self.take_credit(packet, now);
        }
    }

    #[cold]
    fn answered_without_data(&mut self, packet: &Packet, now: u64) {
        if packet.has(flag::CREDIT) {
            return self.take_credit(packet, now);
        }
        if let Some(balancer) = &mut self.balancer {
            balancer.returned(packet.sequence());
        }
    }

    fn feed_back(&mut self, packet: &Packet, now: u64, newly: u32) {
        let came = match (packet.has(flag::TRIMMED), packet.has(flag::ECHO)) {
            (true, _) => Came::Trimmed,
            (false, true) => Came::Marked,
            (false, false) => Came::Well,
        };
        if let Some(balancer) = &mut self.balancer {
            balancer.echo(packet.answered(), came != Came::Well);
        }
        if let Some(controller) = &mut self.controller {
            controller.acknowledged(now, packet.answered(), newly, self.in_flight, came);
        }
        self.fit_window();
    }

    pub(crate) fn met(&mut self, load: PortLoad) {
        if let Some(controller) = &mut self.controller {
            controller.met(load);
        }
    }

    fn count_lost(&mut self, now: u64, sequence: u32) {
        if let Some(balancer) = &mut self.balancer {
            balancer.lost(now, sequence);
        }
    }

    /// Returns whether a loss indicates a faulty path, because congestion causes marks, delays and trimming instead.
    fn blames_path(&self, sequence: u32) -> bool {
        self.switches_choose
            || self.balancer.as_ref().is_some_and(|balancer| balancer.blames_path(sequence))
    }

    fn count_loss(&mut self, now: u64) {
        if let Some(controller) = &mut self.controller {
            controller.lost(now);
        }
        self.fit_window();
    }

    fn progress(&mut self, acked: u32, now: u64) {
        debug_assert!(acked <= self.sent, "only sent packets are acknowledged");
        let before = std::mem::replace(&mut self.acked, acked);
        if acked >= self.total {
            self.finished = now;
        }
        if self.next < acked {
            self.go_to(acked);
        }
        if self.timer.acknowledged(acked, now) {
            self.tail.take_round_trip(self.timer.round_trip());
        }
        self.timeouts = 0;
        let waits = acked < self.next || self.is_out_of_credit();
        self.deadline = if waits { now + self.timer.timeout } else { u64::MAX };
        if acked == self.next {
            self.tail.rest();
        }
        if let LossRecovery::SelectiveRepeat { .. } = self.recovery {
            for sequence in before..acked {
                self.held.take(sequence);
            }
            self.skip_held();
        }
    }

    #[cold]
    fn gap(&mut self, packet: &Packet, now: u64) {
        match self.recovery {
            LossRecovery::GoBackN
                if packet.sequence() == self.acked && self.acked >= self.answered =>
            {
                self.answered = self.sent;
                self.go_to(self.acked);
                self.count_loss(now);
            }
            LossRecovery::GoBackN => {}
            LossRecovery::SelectiveRepeat { .. } => {
                let arrived = packet.answered();
                if packet.has(flag::TRIMMED) {
                    return self.trimmed(arrived, now);
                }
                if arrived >= self.acked {
                    self.held.insert(arrived);
                }
                let late = (arrived + 1).saturating_sub(self.reordering);
                self.repair_end = self.repair_end.max(late);
                let mut sent_before = late;
                if self.tail.is_answered(arrived) {
                    (self.repair, self.repair_end) = (self.acked, self.repair_end.max(arrived));
                    // No other packet is in flight, so resent packets are lost as well.
                    (self.in_flight, sent_before) = (0, u32::MAX);
                }
                self.skip_held();
                while let Some(sequence) = self.trims.overdue(sent_before) {
                    // Its path is to blame, because congestion would have left its header.
                    self.count_lost(now, sequence);
                    self.bring_credit();
                }
                if self.repair < self.repair_end && !self.blames_path(self.repair) {
                    self.count_loss(now);
                }
            }
        }
    }

    fn trimmed(&mut self, number: u32, now: u64) {
        let is_out = (self.acked..self.next).contains(&number);
        if is_out && !self.held.contains(number) && !self.trims.waits(number) {
            self.trims.add(number);
            self.wait_anew(now);
            self.skip_held();
            if let Some(controller) = &mut self.controller {
                controller.trimmed(now);
            }
            self.fit_window();
        }
    }

    pub(super) fn wait_anew(&mut self, now: u64) {
        if self.deadline != u64::MAX {
            (self.deadline, self.timeouts) = (now + self.timer.timeout, 0);
        }
    }

    #[inline]
    pub(crate) fn due(&self) -> u64 {
        self.deadline.min(self.tail.due())
    }

    /// Resends everything in flight, or only the last packet after a shorter time without responses.
    #[cold]
    pub(crate) fn timed_out(&mut self, now: u64) {
        if now < self.deadline {
            let mut missing = (self.acked..self.next).rev();
            let last = missing.find(|sequence| !self.held.contains(*sequence));
            return self.tail.ask(last.filter(|_| self.is_settled));
        }
        self.tail.rest();
        self.timeouts += 1;
        let held = &self.held;
        let unheard = (self.acked..self.next).filter(|sequence| !held.contains(*sequence));
        let balancer = self.balancer.as_mut();
        if !balancer.is_some_and(|balancer| balancer.retire_unheard(now, unheard)) {
            self.count_loss(now);
        }
        self.answered = self.sent;
        self.repair = self.acked;
        self.repair_end = self.acked;
        self.trims.clear();
        self.in_flight = 0;
        self.go_to(self.acked);
        self.skip_held();
        if let Some(controller) = &mut self.controller {
            controller.refill();
        }
        self.fit_window();
        self.deadline = now + self.backoff(self.timeouts);
    }

    fn backoff(&self, timeouts: u32) -> u64 {
        self.timer.timeout << if self.backs_off { timeouts.min(6) } else { 0 }
    }

    pub(crate) fn silent_since(&self) -> Option<u64> {
        (self.deadline != u64::MAX).then(|| {
            let in_a_row: u64 = (0..=self.timeouts).map(|at| self.backoff(at)).sum();
            self.deadline.saturating_sub(in_a_row)
        })
    }

    fn go_to(&mut self, sequence: u32) {
        self.next = sequence;
        self.message_end = (sequence / self.per_message + 1) * self.per_message;
    }
}

#[cfg(test)]
mod tests;
