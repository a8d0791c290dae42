// SPDX-License-Identifier: Apache-2.0
//! The retransmission timeout, computed from measured round trips (RFC 6298).
//!
//! One packet at a time is timed from its sending to its cumulative acknowledgement, unless a packet is resent
//! meanwhile (Karn's algorithm). The timeout is the smoothed round trip plus four times its variation, but at least the
//! transport's minimum. The initial round trip is the idle path's, as measured by the connection's handshake.

use super::Picoseconds;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetransmissionTimer {
    pub(crate) timeout: u64,
    least: Option<u64>,
    smoothed: u64,
    variation: u64,
    timed: u32,
    timed_at: u64,
    /// Only packets whose numbers share no bit with this mask are timed.
    mask: u32,
    last_sent: u64,
    last_acked: u64,
}

impl RetransmissionTimer {
    /// Creates a timer with a `fixed` timeout, or one that measures round trips, starting with the idle
    /// `round_trip`. About one packet per `window` is timed.
    pub(crate) fn new(
        fixed: Option<Picoseconds>,
        least: Picoseconds,
        round_trip: u64,
        window: u32,
    ) -> Self {
        let mut timer = Self {
            timeout: fixed.map_or(0, Picoseconds::get),
            least: fixed.is_none().then_some(least.get()),
            smoothed: round_trip,
            variation: round_trip / 2,
            timed: NONE,
            mask: window.next_power_of_two() - 1,
            ..Self::default()
        };
        timer.set_timeout();
        timer
    }

    pub(crate) fn time_any(&mut self) {
        self.mask = 0;
    }

    pub(crate) const fn round_trip(&self) -> u64 {
        self.smoothed
    }

    #[inline(always)]
    pub(crate) fn sent(&mut self, sequence: u32, now: u64) {
        self.last_sent = now;
        if sequence & self.mask == 0 && self.timed == NONE {
            (self.timed, self.timed_at) = (sequence, now);
        }
    }

    /// The next acknowledgement may belong to either copy.
    #[inline(always)]
    pub(crate) fn sent_again(&mut self) {
        self.timed = NONE;
    }

    /// Everything before `acked` is acknowledged. Returns whether this completed a measurement.
    #[inline(always)]
    pub(crate) fn acknowledged(&mut self, acked: u32, now: u64) -> bool {
        self.last_acked = now;
        let is_measured = self.timed < acked;
        if is_measured {
            self.measure(now - self.timed_at);
        }
        is_measured
    }

    fn measure(&mut self, round_trip: u64) {
        self.timed = NONE;
        let away = self.smoothed.abs_diff(round_trip);
        self.variation = (3 * self.variation + away) / 4;
        self.smoothed = (7 * self.smoothed + round_trip) / 8;
        self.set_timeout();
    }

    fn set_timeout(&mut self) {
        if let Some(least) = self.least {
            self.timeout = least.max(self.smoothed + 4 * self.variation);
        }
    }

    pub(crate) fn becomes(&self, later: &Self, time: u64) -> bool {
        let moved = Self {
            last_sent: self.last_sent + time,
            last_acked: self.last_acked + time,
            ..self.clone()
        };
        moved == *later
    }

    pub(crate) fn leap(&mut self, acked: u32, next: u32, count: u32, period: u64) {
        let (last_sent, last_acked) = (self.last_sent, self.last_acked);
        let mut number = next.next_multiple_of(self.mask + 1);
        loop {
            if self.timed == NONE {
                if number >= next + count {
                    break;
                }
                let sent_at = last_sent + period * u64::from(number - next + 1);
                (self.timed, self.timed_at) = (number, sent_at);
                number += self.mask + 1;
            }
            if self.timed >= acked + count {
                break;
            }
            let acked_at = last_acked + period * u64::from(self.timed - acked + 1);
            self.measure(acked_at - self.timed_at);
        }
        self.last_sent += period * u64::from(count);
        self.last_acked += period * u64::from(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand from RFC 6298, section 2.
    #[test]
    fn timeout_is_smoothed_round_trip_plus_four_times_its_variation() {
        let mut timer = RetransmissionTimer::new(None, Picoseconds(100), 800, 1);
        assert_eq!(timer.timeout, 800 + 4 * 400);
        timer.sent(0, 0);
        assert!(timer.acknowledged(1, 1_600));
        assert_eq!((timer.variation, timer.smoothed, timer.timeout), (500, 900, 2_900));
        timer.sent(1, 2_000);
        timer.sent_again();
        assert!(!timer.acknowledged(2, 9_000), "it may answer either");
        let mut short = RetransmissionTimer::new(None, Picoseconds(5_000), 800, 1);
        short.sent(0, 0);
        short.acknowledged(1, 800);
        assert_eq!(short.timeout, 5_000);
        assert_eq!(
            RetransmissionTimer::new(Some(Picoseconds(7)), Picoseconds(100), 800, 1).timeout,
            7
        );
    }

    #[test]
    fn leap_measures_the_same_as_single_steps() {
        for (window, count) in [(8, 3), (8, 100), (1, 5), (64, 64), (64, 1_000)] {
            let step = |timer: &mut RetransmissionTimer, from: u32, count: u32| {
                for number in from..from + count {
                    timer.acknowledged(number + 1, 10_000 + 7 * u64::from(number));
                    timer.sent(number + 5, 9_000 + 7 * u64::from(number));
                }
            };
            let mut one = RetransmissionTimer::new(None, Picoseconds(1), 900, window);
            step(&mut one, 0, 300);
            let mut other = one.clone();
            step(&mut one, 300, count);
            other.leap(300, 305, count, 7);
            assert_eq!(one, other, "{window} {count}");
        }
    }
}
