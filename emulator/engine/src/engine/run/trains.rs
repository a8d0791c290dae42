// SPDX-License-Identifier: Apache-2.0
//! Skips periodic traffic: if the state repeats with every packet, the engine jumps ahead.
//!
//! ```text
//!   state at t ──── one packet time T ────▶ state at t+T = the same, every number one higher
//!                                            └─▶ so at t+nT it is the same, every number n higher
//! ```
//! The next state is a function of the current one. It depends on absolute times and packet numbers only where a
//! message ends, a flow starts or a timer expires; until then, `n` repetitions are as certain as one. The comparison
//! covers the whole state: all packets on wires, all ports, flows and hosts.
//!
//! If the probe must see each packet, the engine predicts the state at `t+nT` instead of skipping,
//! continues packet by packet and compares. Runs with such a probe therefore test this reasoning.

use crate::engine::probe::Probe;
use crate::engine::shard::Shard;
use crate::engine::shard::again::EarlierShard;

const FIRST_PAUSE: u64 = 8;
const LONGEST_PAUSE: u64 = 128;
const SHORTEST_LEAP: u32 = 16;

#[derive(Clone, Debug)]
pub(super) struct Trains<P> {
    /// Window of the next comparison, and the number of windows to wait after an unsuccessful one.
    next: u64,
    pause: u64,
    look: Option<PendingComparison<P>>,
    leapt: u64,
    is_wrong: bool,
}

#[derive(Clone, Debug)]
struct PendingComparison<P> {
    past: EarlierShard<P>,
    is_foretold: bool,
}

impl<P> Trains<P> {
    pub(super) fn new() -> Self {
        Self { next: 0, pause: FIRST_PAUSE, look: None, leapt: 0, is_wrong: false }
    }

    pub(super) fn leapt(&self) -> u64 {
        self.leapt
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// Discards the pending comparison because the caller may change the state.
    pub(super) fn look_away(&mut self, windows: u64) {
        self.look = None;
        (self.next, self.pause) = (windows, FIRST_PAUSE);
    }

    pub(super) fn look_due(&self) -> u64 {
        self.look.as_ref().map_or(u64::MAX, |look| look.past.next())
    }

    fn put_off(&mut self, windows: u64) {
        self.next = windows + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

impl<P: Probe> Trains<P> {
    /// All events before `now` have been processed, and only packets are due before `until`.
    pub(super) fn look(&mut self, shard: &mut Shard<P>, windows: u64, now: u64, until: u64) {
        let Some(PendingComparison { past, is_foretold }) = self.look.take() else {
            if windows >= self.next {
                let past = EarlierShard::of(shard, now, until);
                self.look = past.map(|past| PendingComparison { past, is_foretold: false });
                self.put_off(windows);
            }
            return;
        };
        if is_foretold {
            self.is_wrong |= !past.has_come_true(shard);
        } else if past.is_repeated_by(shard) {
            let times = past.times(shard, until);
            if times >= SHORTEST_LEAP {
                self.go(shard, &past, times);
                (self.next, self.pause) = (windows + FIRST_PAUSE, FIRST_PAUSE);
            }
        }
    }

    fn go(&mut self, shard: &mut Shard<P>, past: &EarlierShard<P>, times: u32) {
        if shard.probe.may_leap() {
            self.leapt += past.repeat(shard, times);
            shard.probe.leap(past.probe(), times);
        } else {
            let past = past.foretell(shard, times);
            self.look = Some(PendingComparison { past, is_foretold: true });
        }
    }
}
