// SPDX-License-Identifier: Apache-2.0
//! NSCC style: marks and delay together tell four situations apart.
//!
//! After the network-signal congestion control of Ultra Ethernet's specification 1.0, as we recall it;
//! the text was not at hand, so this is a control of that style and not a conforming one.
//!
//! |            | delay below target            | delay above target                |
//! | ---------- | ----------------------------- | --------------------------------- |
//! | not marked | grow in proportion to the gap | grow slowly                       |
//! | marked     | leave it: the queue drains    | shrink in proportion to the excess, once a round trip |
//!
//! Growth in proportion is an eighth of the window a round trip at most: what many flows with small windows add together would
//! otherwise fill the queue and empty it again, in turn (an assumption; 32 flows to one host left its link idle for 2.4 %).
//! A loss cuts to what arrived in the last round trip. A packet that was cut to its header takes one packet from the
//! window and counts as none that arrived: its header says nothing of the queue, which it did not stand in.

use lightloom_units::Picoseconds;

use super::{Feedback, IdlePath};

/// Settings of the NSCC-style control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nscc {
    /// Delay allowed beyond the empty path.
    pub queueing_target: Picoseconds,
    /// Packets added a round trip where nothing is marked.
    pub fair_increase: u32,
    /// Packets added a round trip on top while the path is empty, an eighth of the window at most; less the nearer the target.
    pub proportional_increase: u32,
    /// Share by which a window shrinks a round trip at twice the target delay, in percent.
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

/// The most that a window grows a round trip in proportion to the gap.
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
    /// Packets acknowledged since `counting_since`.
    arrived: u32,
    counting_since: u64,
    last_round: u32,
    last_decrease: u64,
    /// When the window last shrank for a queue.
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
            // What comes within a round trip of a decrease was sent before it.
            // What is heard within a round trip of a decrease was sent before it.
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
