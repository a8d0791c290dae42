// SPDX-License-Identifier: Apache-2.0
//! Swift: the window follows the measured delay.
//!
//! Kumar et al.: "Swift: delay is simple and effective for congestion control in the datacenter", SIGCOMM 2020, section
//! 3 and algorithm 1. Below a target delay the window grows by `ai` packets per round trip. Above it, at most once per
//! round trip, the window shrinks by `β·(delay - target)/delay`, but by no more than `max_mdf`. Not implemented:
//! windows below one packet, target scaling by flow count, endpoint delay.

use lightloom_units::Picoseconds;

use super::{Feedback, IdlePath};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swift {
    /// In addition to the idle path's delay.
    pub queueing_target: Picoseconds,
    /// Increase of the target per link, like the paper's topology scaling.
    pub per_hop: Picoseconds,
    pub increase: u32,
    /// `β` in percent.
    pub decrease_percent: u32,
    /// `max_mdf` in percent.
    pub largest_decrease_percent: u32,
}

impl Default for Swift {
    fn default() -> Self {
        Self {
            queueing_target: Picoseconds::from_micros(4),
            per_hop: Picoseconds::from_nanos(500),
            increase: 1,
            decrease_percent: 80,
            largest_decrease_percent: 50,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    target: f64,
    increase: f64,
    decrease: f64,
    least_factor: f64,
    pub(super) window: f64,
    largest: f64,
    last_decrease: u64,
    round_trip: u64,
}

impl State {
    pub(super) fn new(settings: Swift, path: IdlePath) -> Self {
        let slack = settings.queueing_target + settings.per_hop * u64::from(path.hops);
        Self {
            target: (path.round_trip + slack.get()) as f64,
            increase: f64::from(settings.increase),
            decrease: f64::from(settings.decrease_percent) / 100.0,
            least_factor: 1.0 - f64::from(settings.largest_decrease_percent) / 100.0,
            window: f64::from(path.window),
            largest: f64::from(path.window),
            last_decrease: 0,
            round_trip: path.round_trip,
        }
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        let delay = feedback.round_trip as f64;
        self.round_trip = feedback.round_trip;
        if delay < self.target {
            let grown = self.window + self.increase * f64::from(feedback.acked) / self.window;
            self.window = grown.min(self.largest);
        } else if self.may_decrease(feedback.now) {
            let factor = 1.0 - self.decrease * (delay - self.target) / delay;
            self.shrink(factor.max(self.least_factor), feedback.now);
        }
    }

    pub(super) fn lost(&mut self, now: u64) {
        if self.may_decrease(now) {
            self.shrink(self.least_factor, now);
        }
    }

    fn may_decrease(&self, now: u64) -> bool {
        now >= self.last_decrease + self.round_trip
    }

    fn shrink(&mut self, factor: f64, now: u64) {
        self.window = (self.window * factor).max(1.0);
        self.last_decrease = now;
    }
}
