// SPDX-License-Identifier: Apache-2.0
//! An NSCC-style control that combines ECN marks and delay.
//!
//! Imitates NSCC of the Ultra Ethernet specification 1.0, whose text was not available, without claiming conformance.
//!
//! |            | delay below target            | delay above target                |
//! | ---------- | ----------------------------- | --------------------------------- |
//! | not marked | grow in proportion to the gap | grow slowly                       |
//! | marked     | keep it: the queue drains     | shrink in proportion to the excess, once per round trip |
//!
//! Proportional growth is limited to an eighth of the window per round trip. This limit is an assumption: without it,
//! many flows with small windows fill and empty the queue in unison (with 32 flows to one host, its link was idle for
//! 2.4 % of the time). A loss reduces the window to the arrivals of the last round trip. A trimmed packet reduces the
//! window by one packet and is not counted as an arrival, because its header bypassed the queue.

use lightloom_units::Picoseconds;

use super::{Feedback, IdlePath};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nscc {
    /// In addition to the idle path's delay.
    pub queueing_target: Picoseconds,
    /// Packets added per round trip while no packet is marked.
    pub fair_increase: u32,
    /// Packets added per round trip on an idle path, up to an eighth of the window. Falls as delay nears the target.
    pub proportional_increase: u32,
    /// Percentage by which the window shrinks per round trip at twice the target delay.
    pub decrease_percent: u32,
}

impl Default for Nscc {
    fn default() -> Self {
        Self {
            queueing_target: Picoseconds::from_micros(6),
            fair_increase: 1,
            proportional_increase: 8,
            decrease_percent: 50,
        }
    }
}

/// Limit of proportional growth per round trip.
const MOST_GROWTH: f64 = 1.0 / 8.0;

#[derive(Clone, Debug)]
pub(super) struct State {
    base: f64,
    slack: f64,
    fair: f64,
    proportional: f64,
    decrease: f64,
    pub(super) window: f64,
    largest: f64,
    arrived: u32,
    counting_since: u64,
    last_round: u32,
    last_decrease: u64,
    last_shrink: u64,
}

impl State {
    pub(super) fn new(settings: Nscc, path: IdlePath) -> Self {
        Self {
            base: path.round_trip as f64,
            slack: settings.queueing_target.get() as f64,
            fair: f64::from(settings.fair_increase),
            proportional: f64::from(settings.proportional_increase),
            decrease: f64::from(settings.decrease_percent) / 100.0,
            window: f64::from(path.window),
            largest: f64::from(path.window),
            arrived: 0,
            counting_since: 0,
            last_round: path.window,
            last_decrease: 0,
            last_shrink: 0,
        }
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        if feedback.trimmed {
            self.window = (self.window - 1.0).max(1.0);
            return;
        }
        self.count(feedback);
        let queueing = (feedback.round_trip as f64 - self.base).max(0.0);
        let above = queueing > self.slack;
        let per_packet = 1.0 / self.window;
        match (feedback.marked, above) {
            (false, false) => {
                let gap = 1.0 - queueing / self.slack;
                let step = self.fair + self.proportional.min(self.window * MOST_GROWTH) * gap;
                self.window = (self.window + step * per_packet).min(self.largest);
            }
            (false, true) => {
                self.window = (self.window + self.fair * per_packet).min(self.largest);
            }
            (true, false) => {}
            // Acknowledgements within a round trip after a decrease are for packets sent before it.
            (true, true) if feedback.now >= self.last_shrink + feedback.round_trip => {
                let excess = ((queueing - self.slack) / self.slack).min(1.0);
                self.window = (self.window * (1.0 - self.decrease * excess)).max(1.0);
                self.last_shrink = feedback.now;
            }
            (true, true) => {}
        }
    }

    fn count(&mut self, feedback: Feedback) {
        self.arrived += 1;
        if feedback.now >= self.counting_since + feedback.round_trip {
            self.last_round = self.arrived;
            self.arrived = 0;
            self.counting_since = feedback.now;
        }
    }

    pub(super) fn lost(&mut self, now: u64) {
        if now as f64 >= self.last_decrease as f64 + self.base {
            self.window = self.window.min(f64::from(self.last_round.max(1)));
            self.last_decrease = now;
        }
    }
}
