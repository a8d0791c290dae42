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
use crate::engine::shard::again::StateLag;

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
    seen: Box<Shard<P>>,
    at: u64,
    until: u64,
    what: Comparand,
}

#[derive(Clone, Copy, Debug)]
enum Comparand {
    Again(StateLag),
    Foretold,
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
        self.look.as_ref().map_or(u64::MAX, |look| look.until)
    }

    fn put_off(&mut self, windows: u64) {
        self.next = windows + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

impl<P: Probe> Trains<P> {
    /// All events before `now` have been processed, and only packets are due before `until`.
    pub(super) fn look(&mut self, shard: &mut Shard<P>, windows: u64, now: u64, until: u64) {
        let Some(PendingComparison { seen, at, what, .. }) = self.look.take() else {
            if windows >= self.next {
                self.look = PendingComparison::begin(shard, now, until);
                self.put_off(windows);
            }
            return;
        };
        match what {
            Comparand::Foretold => {
                self.is_wrong |= !seen.becomes(shard, now, StateLag { time: 0, packets: 0 });
                self.is_wrong |= !seen.counts_as(shard);
            }
            Comparand::Again(pace) if seen.becomes(shard, at, pace) => {
                let times = shard.times(&seen, now, until, pace);
                if times >= SHORTEST_LEAP {
                    self.go(shard, &seen, now, pace, times);
                    (self.next, self.pause) = (windows + FIRST_PAUSE, FIRST_PAUSE);
                }
            }
            Comparand::Again(_) => {}
        }
    }

    fn go(&mut self, shard: &mut Shard<P>, seen: &Shard<P>, now: u64, pace: StateLag, times: u32) {
        if shard.probe.may_leap() {
            let before = shard.hops();
            shard.leap(seen, now, pace, times);
            shard.probe.leap(&seen.probe, times);
            self.leapt += shard.hops() - before;
        } else {
            let mut foretold = Box::new(shard.clone());
            foretold.leap(seen, now, pace, times);
            let until = now + pace.times(times).time;
            self.look = Some(PendingComparison {
                seen: foretold,
                at: until,
                until,
                what: Comparand::Foretold,
            });
        }
    }
}

impl<P: Probe> PendingComparison<P> {
    fn begin(shard: &Shard<P>, now: u64, until: u64) -> Option<Self> {
        let pace = shard.pace(now)?;
        let again = now + pace.time;
        (again < until && shard.may_repeat()).then(|| Self {
            seen: Box::new(shard.clone()),
            at: now,
            until: again,
            what: Comparand::Again(pace),
        })
    }
}
