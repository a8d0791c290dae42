// SPDX-License-Identifier: Apache-2.0
//! DCTCP: the window shrinks in proportion to the share of marked packets.
//!
//! Alizadeh et al.: "Data center TCP (DCTCP)", SIGCOMM 2010, section 3.1. Once per window, the share `F` of marked
//! packets updates an estimate `α ← (1-g)·α + g·F`. A window with marks shrinks to `w·(1 - α/2)`, one without marks
//! grows by a packet, and a loss halves it. DCTCP keeps TCP's slow start (RFC 8257, section 3): a flow starts with ten
//! packets (RFC 6928) and grows by a packet with each acknowledgement until the first mark or loss. If all flows
//! started at full speed, they would also lose their retransmissions and wait for timeouts.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Feedback, IdlePath};

/// In packets (RFC 6928, section 2).
const INITIAL_WINDOW: u32 = 10;

/// DCTCP parameter. The default is from Alizadeh et al., SIGCOMM 2010, section 3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "DctcpFile")]
pub struct Dctcp {
    /// `1/g`: approximate number of windows over which the fraction of marked packets is averaged.
    #[schemars(range(min = 1, max = 65536))]
    pub inverse_gain: u32,
}

impl Default for Dctcp {
    fn default() -> Self {
        Self { inverse_gain: 16 }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    gain: f64,
    alpha: f64,
    pub(super) window: f64,
    largest: f64,
    seen: u32,
    marked: u32,
    left: u32,
    round_trip: u64,
    last_cut: u64,
    slow_start: bool,
}

impl State {
    pub(super) fn new(settings: Dctcp, path: IdlePath) -> Self {
        Self {
            gain: 1.0 / f64::from(settings.inverse_gain),
            alpha: 1.0,
            window: f64::from(path.window.min(INITIAL_WINDOW)),
            largest: f64::from(path.window),
            left: path.window.min(INITIAL_WINDOW),
            round_trip: path.round_trip,
            slow_start: true,
            ..Self::default()
        }
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        self.seen += 1;
        self.marked += u32::from(feedback.marked);
        self.left = self.left.saturating_sub(1);
        if self.slow_start {
            self.slow_start = !feedback.marked;
            self.window = (self.window + f64::from(feedback.acked)).min(self.largest);
            self.left = self.left.min(if feedback.marked { 0 } else { u32::MAX });
        }
        if self.left > 0 {
            return;
        }
        let share = f64::from(self.marked) / f64::from(self.seen);
        self.alpha = (1.0 - self.gain) * self.alpha + self.gain * share;
        self.window = if self.marked > 0 {
            (self.window * (1.0 - self.alpha / 2.0)).max(1.0)
        } else {
            let growth = if self.slow_start { 0.0 } else { 1.0 };
            (self.window + growth).min(self.largest)
        };
        self.left = self.window as u32;
        (self.seen, self.marked) = (0, 0);
    }

    pub(super) fn lost(&mut self, now: u64) {
        self.slow_start = false;
        if now >= self.last_cut + self.round_trip {
            self.window = (self.window / 2.0).max(1.0);
            self.last_cut = now;
        }
    }
}
