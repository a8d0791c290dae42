// SPDX-License-Identifier: Apache-2.0
//! What the sending end does with the credit that the receiving host gives: a packet each.
//!
//! The window of such a flow is what is in flight and its credits together, so that sending needs no other question.

use super::{CongestionController, Packet, Sender, flag};

impl Sender {
    /// Whether what was trimmed may go again.
    #[cold]
    pub(super) fn has_room(&self) -> bool {
        match self.controller.as_ref().and_then(|controller| controller.credits()) {
            Some(credits) => credits > 0,
            None => self.in_flight < self.window,
        }
    }

    /// A packet that is sent again uses no credit: that of the first copy was lost with it, or has come back already.
    pub(super) fn bring_credit(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.credit();
        }
    }

    /// Leaves it to `controller` how much is sent, and how fast.
    pub(crate) fn control_by(&mut self, controller: Option<Box<CongestionController>>) {
        self.by_credit = controller.as_ref().is_some_and(|at| at.credits().is_some());
        if controller.is_some() {
            self.timer.time_any();
        }
        self.controller = controller;
        self.fit_window();
    }

    /// Whether more is to be sent, and only the receiver can let it go. Its credits may be lost, so a deadline is kept
    /// though nothing is in flight.
    #[inline(always)]
    pub(super) fn is_out_of_credit(&self) -> bool {
        self.by_credit && self.waits_for_credit()
    }

    fn waits_for_credit(&self) -> bool {
        let credits = self.controller.as_ref().and_then(|controller| controller.credits());
        credits == Some(0) && self.next < self.released && self.acked < self.total
    }

    /// Takes over what congestion control allows.
    #[inline(always)]
    pub(super) fn fit_window(&mut self) {
        let in_flight = self.next - self.acked;
        if let Some(controller) = &self.controller {
            self.window = match controller.credits().filter(|_| self.by_credit) {
                Some(credits) => in_flight.saturating_add(credits).min(self.span),
                None => controller.window(),
            };
        }
    }

    /// Takes the credit that a packet bears, and counts anew what may be sent.
    pub(super) fn take_credit(&mut self, packet: &Packet, now: u64) {
        if packet.has(flag::CREDIT) {
            self.bring_credit();
        }
        self.is_settled = packet.has(flag::SETTLED);
        // Deferred credit is not lost, however long it waits, and trimmed packets are in no queue.
        self.wait_anew(now);
        // An answer that has not come, to what is known to have come in, was lost, and the credit with it.
        let known = self.held.len() + self.trimmed.len() as u32;
        let in_flight = self.in_flight.min((self.next - self.acked).saturating_sub(known));
        let left = self.released.saturating_sub(self.next) + self.trimmed.len() as u32;
        if let Some(controller) = &mut self.controller {
            controller.settle(now, packet.has(flag::SETTLED), (in_flight, left));
        }
        self.fit_window();
    }
}
