// SPDX-License-Identifier: Apache-2.0
//! Unsolicited reports of one device, the check of its node, and its reply times.

use std::collections::BTreeMap;

use crate::state::{Micros, Now, Position, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    LightLost(Slot, Position),
    LightBack(Slot),
    Changed,
    Alive,
}

const SIGNALS_BURST: u64 = 16;
const SIGNAL_EVERY: Micros = Micros::from_millis(100);

#[derive(Clone, Debug, Default)]
pub(super) struct Signalled {
    /// When each slot reported the loss of light, or was dark in the first reading.
    pub(super) reported_dark: BTreeMap<Slot, Micros>,
    /// Since when the node is checked, because a far end is dark. Ends with a reply of this device.
    pub(super) checked_since: Option<Micros>,
    pub(super) asked_again: u32,
    /// When the status became overdue that made the device unreachable without a hello.
    pub(super) overdue_since: Option<Micros>,
    sent_at: Micros,
    pub(super) wanted_at: Micros,
    /// Unreachable without a hello, because its status was overdue and its far ends were dark.
    pub(super) skips_hello_for_light: bool,
    /// Unreachable without a hello, because its node was overdue. No reachable far end faces this module.
    pub(super) skips_hello_with_node: bool,
    paid_until: Micros,
    is_read: bool,
}

const PACE_READS: usize = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    took: [Micros; PACE_READS],
    next: usize,
    pub(super) last: Micros,
}

/// With this many requests within [`CROWD_WITHIN`], the daemon itself delays the replies.
const CROWD: usize = 16;
const CROWD_WITHIN: Micros = Micros::from_millis(1);

#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    asked: [Option<Micros>; CROWD],
    next: usize,
}

impl Crowd {
    pub(super) fn joined(&mut self, now: Micros) -> bool {
        let oldest = self.asked[self.next].replace(now);
        self.next = (self.next + 1) % CROWD;
        oldest.is_some_and(|oldest| oldest + CROWD_WITHIN >= now)
    }
}

impl Pace {
    pub(super) fn answered(&mut self, took: Micros) {
        self.took[self.next % PACE_READS] = took;
        self.next = self.next.wrapping_add(1);
        self.last = took;
    }

    pub(super) fn answered_in_a_crowd(&mut self, took: Micros) {
        self.last = took;
    }

    /// Returns the second-slowest read, because a busy host may have delayed the slowest one.
    pub(super) fn slow(&self) -> Micros {
        let mut took = self.took;
        took.sort_unstable();
        took[PACE_READS - 2]
    }
}

impl Signalled {
    pub(super) fn take(&mut self, now: &Now, signal: Signal) -> bool {
        self.note_sent(now);
        let burst = Micros(SIGNAL_EVERY.0 * (SIGNALS_BURST - 1));
        if signal == Signal::Alive || self.paid_until > now.mono + burst {
            return false;
        }
        self.paid_until = self.paid_until.max(now.mono) + SIGNAL_EVERY;
        match signal {
            Signal::LightLost(slot, _) => _ = self.reported_dark.insert(slot, now.mono),
            Signal::LightBack(slot) => _ = self.reported_dark.remove(&slot),
            Signal::Changed | Signal::Alive => {}
        }
        true
    }

    pub(super) fn answered(&mut self, asked: Micros) {
        self.checked_since.take_if(|since| *since <= asked);
        self.asked_again = 0;
        (self.skips_hello_for_light, self.skips_hello_with_node) = (false, false);
    }

    pub(super) fn note_sent(&mut self, now: &Now) {
        (self.sent_at, self.asked_again) = (now.mono, 0);
    }

    /// Also true without a check, or if the device itself reported lost light.
    pub(super) fn has_sent_since_check(&self) -> bool {
        let Self { reported_dark, checked_since, sent_at, .. } = self;
        !reported_dark.is_empty() || checked_since.is_none_or(|since| *sent_at > since)
    }

    pub(super) fn skip_hello(&mut self, far_ends_dark: bool, overdue_since: Option<Micros>) {
        (self.skips_hello_for_light, self.skips_hello_with_node) = (far_ends_dark, !far_ends_dark);
        self.overdue_since = overdue_since;
    }

    pub(super) fn skips_hello(&self) -> bool {
        self.skips_hello_for_light || self.skips_hello_with_node
    }

    pub(super) fn note_light(&mut self, slot: Slot, asked: Micros) {
        if self.reported_dark.get(&slot).is_some_and(|at| *at <= asked) {
            self.reported_dark.remove(&slot);
        }
    }

    pub(super) fn mark_read(&mut self) -> bool {
        std::mem::replace(&mut self.is_read, true)
    }

    pub(super) fn wants_read_after(&self, asked: Micros) -> bool {
        self.wanted_at > asked
    }

    pub(super) fn reset(&mut self) {
        *self = Self { paid_until: self.paid_until, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowded_reads_do_not_affect_measured_response_time() {
        let mut crowd = Crowd::default();
        let asked = |at: u64, crowd: &mut Crowd| crowd.joined(Micros(at));
        let at_once = (0..1_000).filter(|_| asked(5_000, &mut crowd)).count();
        assert_eq!(at_once, 1_000 - CROWD);
        let apart = (1..1_000).filter(|n| asked(1_000_000 + n * 100, &mut crowd)).count();
        assert_eq!(apart, 0);
        let mut pace = Pace::default();
        (0..PACE_READS).for_each(|_| pace.answered(Micros(400)));
        (0..PACE_READS).for_each(|_| pace.answered_in_a_crowd(Micros(20_000)));
        assert_eq!((pace.slow(), pace.last), (Micros(400), Micros(20_000)));
    }
}
