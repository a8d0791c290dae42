// SPDX-License-Identifier: Apache-2.0
//! Unsolicited reports of one device, and the time that it takes to reply.

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
    lost: BTreeMap<Slot, Micros>,
    /// Since when the node is checked, because a far end received no light from it. Ends with a reply of this device.
    pub(super) node_dark_since: Option<Micros>,
    pub(super) missing_replies: u32,
    /// Time at which the reply counted as missing after which the device was found failed.
    pub(super) unreachable_since: Option<Micros>,
    heard_at: Micros,
    pub(super) wanted_at: Micros,
    pub(super) is_found_failed: bool,
    /// The whole node has failed, but no reachable far end faces this module.
    pub(super) is_unwitnessed: bool,
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
    pub(super) fn takes(&mut self, now: &Now, signal: Signal) -> bool {
        self.is_heard(now);
        let burst = Micros(SIGNAL_EVERY.0 * (SIGNALS_BURST - 1));
        if signal == Signal::Alive || self.paid_until > now.mono + burst {
            return false;
        }
        self.paid_until = self.paid_until.max(now.mono) + SIGNAL_EVERY;
        match signal {
            Signal::LightLost(slot, _) => _ = self.lost.insert(slot, now.mono),
            Signal::LightBack(slot) => _ = self.lost.remove(&slot),
            Signal::Changed | Signal::Alive => {}
        }
        true
    }

    pub(super) fn node_went_dark_after(&self, asked: Micros) -> bool {
        self.node_dark_since.is_some_and(|lost| asked < lost)
    }

    pub(super) fn lost_at(&self, slot: Slot) -> Option<Micros> {
        self.lost.get(&slot).copied()
    }

    pub(super) fn answered(&mut self, asked: Micros) {
        self.node_dark_since.take_if(|since| *since <= asked);
        self.missing_replies = 0;
        (self.is_found_failed, self.is_unwitnessed) = (false, false);
    }

    pub(super) fn is_heard(&mut self, now: &Now) {
        (self.heard_at, self.missing_replies) = (now.mono, 0);
    }

    pub(super) fn is_heard_since_loss(&self) -> bool {
        let Self { lost, node_dark_since, heard_at, .. } = self;
        !lost.is_empty() || node_dark_since.is_none_or(|since| *heard_at > since)
    }

    /// The module is known to have failed if far ends miss its light; otherwise only its node is.
    pub(super) fn found_failed(&mut self, gone: bool, missing_since: Option<Micros>) {
        (self.is_found_failed, self.is_unwitnessed) = (gone, !gone);
        self.unreachable_since = missing_since;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_found_failed || self.is_unwitnessed
    }

    pub(super) fn sees_light(&mut self, slot: Slot, asked: Micros) {
        if self.lost.get(&slot).is_some_and(|lost| *lost <= asked) {
            self.lost.remove(&slot);
        }
    }

    pub(super) fn was_read(&mut self) -> bool {
        std::mem::replace(&mut self.is_read, true)
    }

    pub(super) fn never_saw(&mut self, slot: Slot, asked: Micros) {
        self.lost.insert(slot, asked);
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
