// SPDX-License-Identifier: Apache-2.0
//! Detects that a sender's state repeats one packet later, and extrapolates it.

use super::Sender;
use crate::engine::shard::again::{End, StateLag};

impl Sender {
    /// Whether the sender's behaviour depends only on the order of arrivals (no pacing, no timers).
    pub(crate) fn is_plain(&self) -> bool {
        self.controller.is_none()
            && self.balancer.is_none()
            && self.trims.is_empty()
            && self.held.is_empty()
            && !self.tail.asks()
    }

    pub(crate) fn becomes(&self, later: &Self, pace: StateLag) -> bool {
        let StateLag { time, packets } = pace;
        let [moves, moves_later] = [self, later].map(|sender| {
            [sender.acked, sender.next, sender.sent, sender.repair.max(sender.acked)]
        });
        let [stays, stays_later] = [self, later].map(|sender| {
            let ends = [sender.released, sender.message_end, sender.repair_end, sender.answered];
            let flags = [sender.started, sender.enlisted, sender.repair < sender.repair_end];
            let counts = [sender.resent, sender.total, sender.in_flight];
            (ends, flags, sender.timeouts, counts, sender.cursor)
        });
        let deadline = if self.deadline == u64::MAX { u64::MAX } else { self.deadline + time };
        moves.map(|at| at + packets) == moves_later
            && stays == stays_later
            && deadline == later.deadline
            && self.timer.becomes(&later.timer, time)
    }

    pub(crate) fn packets_alike(&self) -> u32 {
        self.message_end.min(self.released).saturating_sub(self.next + 1)
    }

    pub(crate) fn leap(&mut self, far: StateLag) {
        let (timeout, period) = (self.timer.timeout, far.time / u64::from(far.packets));
        self.timer.leap(self.acked, self.next, far.packets, period);
        if self.repair >= self.acked {
            self.repair += far.packets;
        }
        self.acked += far.packets;
        self.next += far.packets;
        self.sent += far.packets;
        if self.deadline != u64::MAX {
            self.deadline = self.deadline + far.time + self.timer.timeout - timeout;
        }
    }
}

impl End for Sender {
    fn reached(&self) -> u32 {
        self.acked
    }
}
