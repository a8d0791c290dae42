// SPDX-License-Identifier: Apache-2.0
//! Packet trains: when everything does again what it did a packet before, the engine leaps.
//!
//! ```text
//!   state at t ──── one packet time T ────▶ state at t+T = the same, every number one higher
//!                                            └─▶ so at t+nT it is the same, every number n higher
//! ```
//! The engine is a function of its state, and neither the time nor the number of a packet matters to it but where a
//! message ends, a flow starts or time runs out: as long as none of these comes between, `n` times is as certain as
//! once. The whole state is compared: every packet on every wire, every port, flow and host.
//!
//! A probe that has to see each packet is not leapt for. The engine then foretells the state at `t+nT`, goes on packet
//! by packet, and compares when it is there: so every run with such a probe tries the proof.

use super::Engine;
use crate::engine::probe::Probe;
use crate::engine::shard::Shard;
use crate::engine::shard::again::StateLag;

/// The windows between two looks: at first, and at most.
const FIRST_PAUSE: u64 = 8;
const LONGEST_PAUSE: u64 = 128;
/// A leap over fewer packets than this is not worth it.
const SHORTEST_LEAP: u32 = 16;

/// What is looked at to find out whether the engine may leap.
#[derive(Clone, Debug)]
pub(super) struct Trains<P> {
    /// By windows: when to look next, and how long to wait after that if it is in vain.
    next: u64,
    pause: u64,
    look: Option<PendingComparison<P>>,
    /// Packets that were leapt over.
    leapt: u64,
    /// A foretold state did not come about.
    is_wrong: bool,
}

/// A state and when it is compared with the one of that time, before which the window ends.
#[derive(Clone, Debug)]
struct PendingComparison<P> {
    seen: Box<Shard<P>>,
    at: u64,
    until: u64,
    what: Comparand,
}

#[derive(Clone, Copy, Debug)]
enum Comparand {
    /// Whether the present state is the one seen, moved on so much.
    Again(StateLag),
    /// Whether the present state is the one foretold.
    Foretold,
}

impl<P> Trains<P> {
    fn new() -> Self {
        Self { next: 0, pause: FIRST_PAUSE, look: None, leapt: 0, is_wrong: false }
    }
}

impl<P: Probe> Engine<P> {
    /// Leaps over stretches of time in which the same happens again and again. The result is the same.
    pub(crate) fn form_trains(&mut self) {
        self.trains = Some(Box::new(Trains::new()));
    }

    /// Packets put on wires by leaps.
    pub(crate) fn leapt(&self) -> u64 {
        self.trains.as_ref().map_or(0, |trains| trains.leapt)
    }

    /// Whether a state that was foretold did not come about: a mistake in this file.
    pub(crate) fn foretold_wrongly(&self) -> bool {
        self.trains.as_ref().is_some_and(|trains| trains.is_wrong)
    }

    /// The caller may change something: what was seen is not valid any more.
    pub(super) fn look_away(&mut self) {
        if let Some(trains) = &mut self.trains {
            trains.look = None;
            (trains.next, trains.pause) = (self.windows, FIRST_PAUSE);
        }
    }

    /// Before which time the next window has to end.
    pub(super) fn look_due(&self) -> u64 {
        let look = self.trains.as_ref().and_then(|trains| trains.look.as_ref());
        look.map_or(u64::MAX, |look| look.until)
    }

    /// Looks at the state at `now`, when nothing before has yet to happen and nothing but packets comes before
    /// `until`.
    pub(super) fn look(&mut self, now: u64, until: u64) {
        let [shard] = &mut self.shards[..] else { return };
        let Some(trains) = &mut self.trains else { return };
        let Some(PendingComparison { seen, at, what, .. }) = trains.look.take() else {
            if self.windows >= trains.next {
                trains.look = PendingComparison::begin(shard, now, until);
                trains.put_off(self.windows);
            }
            return;
        };
        match what {
            Comparand::Foretold => {
                trains.is_wrong |= !seen.becomes(shard, now, StateLag { time: 0, packets: 0 });
                trains.is_wrong |= !seen.counts_as(shard);
            }
            Comparand::Again(pace) if seen.becomes(shard, at, pace) => {
                let times = shard.times(&seen, (now, until), pace);
                if times >= SHORTEST_LEAP {
                    trains.go(shard, &seen, now, (pace, times));
                    (trains.next, trains.pause) = (self.windows + FIRST_PAUSE, FIRST_PAUSE);
                }
            }
            Comparand::Again(_) => {}
        }
    }
}

impl<P> Trains<P> {
    fn put_off(&mut self, windows: u64) {
        self.next = windows + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

impl<P: Probe> Trains<P> {
    /// Leaps, or foretells where a leap would lead.
    fn go(&mut self, shard: &mut Shard<P>, seen: &Shard<P>, now: u64, how: (StateLag, u32)) {
        let (pace, times) = how;
        if shard.probe.may_leap() {
            let hops =
                |shard: &Shard<P>| shard.counts.iter().map(|count| count.packets).sum::<u64>();
            let before = hops(shard);
            shard.leap(seen, now, how);
            shard.probe.leap(&seen.probe, times);
            self.leapt += hops(shard) - before;
        } else {
            let mut foretold = Box::new(shard.clone());
            foretold.leap(seen, now, how);
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
    /// Remembers what there is to see at `now`, to compare it a packet later.
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
