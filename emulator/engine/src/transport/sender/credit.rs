// SPDX-License-Identifier: Apache-2.0
//! How many packets a sender may have in flight: the window of congestion control, or receiver credits, each of which allows
//! one packet.
//!
//! Both become a limit on the distance between the first unacknowledged packet and the next new one, so sending needs no
//! further check. Packets in between that have arrived or were trimmed are not in flight and raise this limit.

use super::{CongestionController, Packet, Sender, flag};

impl Sender {
    #[cold]
    pub(super) fn has_room(&self) -> bool {
        let Some(controller) = &self.controller else { return self.in_flight < self.window };
        match controller.credits() {
            Some(credits) => credits > 0,
            None => (self.next - self.acked).saturating_sub(self.known()) < controller.window(),
        }
    }

    /// Adds a credit for a retransmission, because its original credit was lost or has already returned.
    pub(super) fn bring_credit(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.credit();
        }
    }

    pub(crate) fn control_by(&mut self, controller: Option<Box<CongestionController>>) {
        self.by_credit = controller.as_ref().is_some_and(|at| at.credits().is_some());
        if controller.is_some() {
            self.timer.time_any();
        }
        self.controller = controller;
        self.fit_window();
    }

    /// Credits may be lost, so a sender that waits for one keeps a deadline even with nothing in flight.
    #[inline(always)]
    pub(super) fn is_out_of_credit(&self) -> bool {
        self.by_credit && self.waits_for_credit()
    }

    fn waits_for_credit(&self) -> bool {
        let credits = self.controller.as_ref().and_then(|controller| controller.credits());
        credits == Some(0) && self.next < self.released && self.acked < self.total
    }

    #[inline(always)]
    pub(super) fn fit_window(&mut self) {
        let in_flight = self.next - self.acked;
        if let Some(controller) = &self.controller {
            self.window = match controller.credits().filter(|_| self.by_credit) {
                Some(credits) => in_flight.saturating_add(credits).min(self.span),
                None => controller.window().saturating_add(self.known()).min(self.span),
            };
        }
    }

    /// Number of packets between `acked` and `next` that are not in flight, because they arrived or were trimmed.
    fn known(&self) -> u32 {
        // After a timeout, packets beyond `next` may also have arrived.
        let arrived = if self.next < self.sent {
            (self.acked..self.next).filter(|sequence| self.is_held(*sequence)).count() as u32
        } else {
            self.held.len()
        };
        arrived + self.trims.waiting()
    }

    pub(super) fn take_credit(&mut self, packet: &Packet, now: u64) {
        if packet.has(flag::CREDIT) {
            self.bring_credit();
        }
        self.is_settled = packet.has(flag::SETTLED);
        // Deferred credit is never lost, and trimmed packets do not wait in any queue.
        self.wait_anew(now);
        let in_flight = self.in_flight.min((self.next - self.acked).saturating_sub(self.known()));
        let left = self.released.saturating_sub(self.next) + self.trims.waiting();
        if let Some(controller) = &mut self.controller {
            controller.settle(now, packet.has(flag::SETTLED), in_flight, left);
        }
        self.fit_window();
    }
}
