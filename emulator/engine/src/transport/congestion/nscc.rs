// SPDX-License-Identifier: Apache-2.0
//! An NSCC-style control that combines ECN marks and delay.
//!
//! Follows the public model of NSCC in uet-htsim, without claiming conformance to UEC 1.0.3. Differences: each flow
//! uses its own path's round trip instead of the network's longest, and a loss shrinks the window to the arrivals of the
//! last period. Increases are proportional to the path's bandwidth-delay product.
//!
//! |            | delay below target            | delay above target                |
//! | ---------- | ----------------------------- | --------------------------------- |
//! | not marked | grow in proportion to the gap | grow by a constant                |
//! | marked     | keep it: the queue drains     | shrink in proportion to the excess of the averaged delay, once per round trip |
//!
//! Quick adapt: after trims or long delays, a window far above the arrivals of the last period shrinks to them, and marks
//! of packets sent before are ignored. Fast increase: after a window without queueing, every acknowledgement adds to the
//! window. A trimmed packet reduces it by one and is not an arrival, because its header bypassed the queue.

use lightloom_units::{Bytes, Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Feedback, IdlePath};

/// Parameter of the NSCC-style control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "NsccFile")]
pub struct Nscc {
    /// Target delay beyond the empty path's delay. Defaults to three quarters of its round trip.
    pub queueing_target: Option<Text<Picoseconds>>,
}

/// Data that fills a path of 100 Gb/s and 12 µs, for which the increases are given in packets.
const REFERENCE: Bytes = Bytes(150_000);
/// Per round trip on an idle path, for a target of 12 µs.
const PROPORTIONAL_INCREASE: f64 = 4.0;
const REFERENCE_TARGET: f64 = 12e6;
/// Per round trip above the target.
const FAIR_INCREASE: f64 = 5.0;
const CONSTANT_INCREASE: f64 = 0.15;
const FAST_INCREASE: f64 = 0.25;
/// Queueing delay in picoseconds below which the fast increase applies.
const IDLE: f64 = 1e6;
/// Reduction of the window, times the share of the averaged delay above the target.
const DECREASE: f64 = 0.8;
const LARGEST_DECREASE: f64 = 0.5;
const AVERAGE_GAIN: f64 = 0.0125;
/// Acknowledgements per adjustment of the window.
const BATCH: u32 = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    base: f64,
    target: f64,
    /// The path's bandwidth-delay product as a multiple of [`REFERENCE`].
    scale: f64,
    pub(super) window: f64,
    largest: f64,
    average: f64,
    /// Increase since the last adjustment, times the window, and the number of acknowledgements.
    increase: (f64, u32),
    last_constant: u64,
    last_shrink: u64,
    /// Consecutive acknowledgements without queueing. [`u32::MAX`] once they have exceeded a window.
    idle: u32,
    arrived: u32,
    last_period: u32,
    period_end: u64,
    is_alarmed: bool,
    /// Answers whose marks are still ignored.
    ignored: u32,
}

impl State {
    pub(super) fn new(settings: Nscc, path: IdlePath) -> Self {
        let base = path.round_trip as f64;
        let window = f64::from(path.window);
        Self {
            base,
            target: settings.queueing_target.map_or(0.75 * base, |target| target.0.get() as f64),
            scale: path.rate.get() as f64 * base / 8e12 / REFERENCE.get() as f64,
            window,
            largest: window,
            last_period: path.window,
            ..Self::default()
        }
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        let queueing = (feedback.round_trip as f64 - self.base).max(0.0);
        self.ignored = self.ignored.saturating_sub(1);
        self.is_alarmed |= feedback.trimmed || queueing > 4.0 * self.target;
        self.arrived += u32::from(!feedback.trimmed);
        // Late packets without marks do not raise the average.
        let sample = match (feedback.trimmed, feedback.marked) {
            (true, _) => self.base,
            (false, false) if queueing > self.target => self.base / 4.0,
            _ => queueing,
        };
        self.average += AVERAGE_GAIN * (sample - self.average);
        if self.quick_adapt(feedback) {
            self.increase = (0.0, 0);
        } else if feedback.trimmed {
            self.window -= 1.0;
        } else {
            self.control(queueing, feedback);
            self.adjust(feedback.now);
        }
        self.window = self.window.clamp(1.0, self.largest);
    }

    /// Returns whether this answer has no further effect.
    fn quick_adapt(&mut self, feedback: Feedback) -> bool {
        if feedback.marked && self.ignored > 0 {
            return true;
        }
        if feedback.now <= self.period_end {
            return false;
        }
        let is_first = self.period_end == 0;
        self.period_end = feedback.now + (self.base + self.target) as u64;
        self.last_period = std::mem::take(&mut self.arrived);
        let arrived = f64::from(self.last_period);
        let adapts = !is_first && self.is_alarmed && arrived < self.largest / 8.0;
        if adapts {
            (self.window, self.ignored) = (arrived, feedback.in_flight);
            self.is_alarmed = false;
        }
        adapts
    }

    fn control(&mut self, queueing: f64, feedback: Feedback) {
        self.idle = if queueing < IDLE { self.idle.saturating_add(1) } else { 0 };
        match (feedback.marked, queueing >= self.target) {
            (false, false) if f64::from(self.idle) > self.window => {
                self.idle = u32::MAX;
                self.window += FAST_INCREASE * self.scale;
            }
            (false, false) => {
                let share = (self.target - queueing) / REFERENCE_TARGET;
                self.increase.0 += PROPORTIONAL_INCREASE * share * self.scale;
            }
            (false, true) => self.increase.0 += FAIR_INCREASE * self.scale,
            (true, false) => {}
            (true, true) => {
                let is_due = feedback.now as f64 > self.last_shrink as f64 + self.base;
                if is_due && self.average > self.target {
                    let excess = (self.average - self.target) / self.average;
                    self.window *= 1.0 - (DECREASE * excess).min(LARGEST_DECREASE);
                    self.last_shrink = feedback.now;
                }
            }
        }
    }

    fn adjust(&mut self, now: u64) {
        self.increase.1 += 1;
        let is_round_over = now as f64 >= self.last_constant as f64 + self.base;
        if self.increase.1 > BATCH || is_round_over {
            self.window += self.increase.0 / self.window;
            self.increase = (0.0, 0);
        }
        if is_round_over {
            self.window += CONSTANT_INCREASE * self.scale;
            self.last_constant = now;
        }
    }

    pub(super) fn lost(&mut self) {
        self.window = self.window.min(f64::from(self.last_period.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::BitsPerSecond;

    use super::*;

    const MICROSECOND: u64 = 1_000_000;

    fn state() -> State {
        let rate = BitsPerSecond::from_gbps(400);
        let path = IdlePath { round_trip: 12 * MICROSECOND, hops: 6, rate, window: 220 };
        State::new(Nscc::default(), path)
    }

    fn answer(state: &mut State, now: u64, queueing: u64, came: (bool, bool)) {
        let (marked, trimmed) = came;
        let round_trip = 12 * MICROSECOND + queueing;
        let feedback = Feedback { now, acked: 1, in_flight: 9, marked, trimmed, round_trip };
        state.acknowledged(feedback);
    }

    /// The increases of uet-htsim on 400 Gb/s and 12 us, four times those on its reference path.
    #[test]
    fn window_grows_by_the_path_and_the_delay() {
        let grown = |queueing: u64| {
            let mut state = state();
            state.window = 100.0;
            (0..100)
                .for_each(|at| answer(&mut state, 40 * MICROSECOND + at, queueing, (false, false)));
            state.window - 100.0
        };
        assert!((18.0..22.0).contains(&grown(9 * MICROSECOND)), "{}", grown(9 * MICROSECOND));
        assert!((5.0..8.0).contains(&grown(9 * MICROSECOND / 2)), "{}", grown(9 * MICROSECOND / 2));
        let mut idle = state();
        idle.window = 10.0;
        (0..20).for_each(|at| answer(&mut idle, 40 * MICROSECOND + at, 0, (false, false)));
        assert!(idle.window > 20.0, "fast increase: {}", idle.window);
    }

    #[test]
    fn marks_shrink_the_window_once_per_round_trip_and_only_if_late_on_average() {
        let mut state = state();
        let early = |state: &mut State, at| answer(state, at, MICROSECOND, (true, false));
        (0..100).for_each(|at| early(&mut state, at));
        assert!(state.window >= 220.0, "marks without delay leave the window");
        (0..400).for_each(|at| {
            answer(&mut state, 13 * MICROSECOND + at, 30 * MICROSECOND, (true, false))
        });
        let once = state.window;
        assert!((110.0..220.0).contains(&once), "{once}");
        (0..9).for_each(|at| {
            answer(&mut state, 14 * MICROSECOND + at, 30 * MICROSECOND, (true, false))
        });
        assert!(state.window <= once && state.window > 0.9 * once, "{}", state.window);
    }

    #[test]
    fn trims_shrink_the_window_to_the_arrivals_of_a_period() {
        let mut state = state();
        answer(&mut state, 1, 0, (false, false));
        (0..100).for_each(|at| answer(&mut state, 2 + at, 0, (true, true)));
        (0..7).for_each(|at| answer(&mut state, 200 + at, 9 * MICROSECOND, (true, false)));
        assert_eq!(state.window as u32, 120, "one packet per trim");
        answer(&mut state, 23 * MICROSECOND, 9 * MICROSECOND, (true, false));
        assert_eq!(state.window as u32, 8, "quick adapt");
    }

    /// The closed form of uet-htsim's gate: in a period of `R + T`, each of `n` flows receives `(1 + T/R)/n` times the
    /// data of a round trip. That is below an eighth of the largest window, 1.5 round trips, for `n` of at least ten.
    #[test]
    fn quick_adapt_needs_ten_flows() {
        for flows in [9, 10] {
            let mut state = state();
            let arrivals = 12 * 50_000 * 7 / 4 / 4_096 / flows;
            let period = 21 * MICROSECOND;
            for at in 0..=arrivals {
                answer(&mut state, 1 + at * period / arrivals, 40 * MICROSECOND, (true, false));
            }
            answer(&mut state, 2 + period, 40 * MICROSECOND, (true, false));
            let adapted = state.window as u64 <= arrivals + 1;
            assert_eq!(adapted, flows == 10, "{flows}: {} for {arrivals}", state.window);
        }
    }
}
