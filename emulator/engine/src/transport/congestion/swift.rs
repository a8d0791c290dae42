// SPDX-License-Identifier: Apache-2.0
//! Swift: the window follows the measured delay.
//!
//! Kumar et al.: "Swift: delay is simple and effective for congestion control in the datacenter", SIGCOMM 2020, section
//! 3 and algorithm 1. Below a target delay the window grows by `ai` packets per round trip. Above it, at most once per
//! round trip, the window shrinks by `β·(delay - target)/delay`, but by no more than `max_mdf`. The target grows with the
//! number of links (topology scaling) and for small windows (flow scaling), which many flows of one link have. A window
//! below one packet sends a packet per `round trip/window`. Not implemented: endpoint delay.

use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Feedback, IdlePath};

/// Swift parameters (Kumar et al., SIGCOMM 2020, algorithm 1). The delays are assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "SwiftFile")]
pub struct Swift {
    /// Target delay in addition to the delay of the empty path.
    pub queueing_target: Text<Picoseconds>,
    /// Additional target delay per link of the path.
    pub per_hop: Text<Picoseconds>,
    /// Largest increase of the target delay for small windows (`fs_range`); 0 for none.
    pub flow_scaling: Text<Picoseconds>,
    /// Packets added to the window per round trip (`ai`).
    #[schemars(range(min = 1, max = 1000))]
    pub increase: u32,
    /// Strength of the window decrease for excessive delay (`β`), in percent.
    #[schemars(range(min = 1, max = 100))]
    pub decrease_percent: u32,
    /// Maximum single decrease of the window (`max_mdf`), in percent.
    #[schemars(range(min = 1, max = 99))]
    pub largest_decrease_percent: u32,
}

impl Default for Swift {
    fn default() -> Self {
        Self {
            queueing_target: Text(Picoseconds::from_micros(4)),
            per_hop: Text(Picoseconds::from_nanos(500)),
            // From csg-htsim.
            flow_scaling: Text(Picoseconds::from_micros(100)),
            increase: 1,
            decrease_percent: 80,
            largest_decrease_percent: 50,
        }
    }
}

/// From csg-htsim, in packets: windows between which flow scaling applies (`fs_min_cwnd`, `fs_max_cwnd`).
const SCALED_FROM: f64 = 0.1;
const SCALED_TO: f64 = 100.0;
const LEAST_WINDOW: f64 = 0.01;

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    target: f64,
    flow_scaling: f64,
    increase: f64,
    decrease: f64,
    least_factor: f64,
    pub(super) window: f64,
    largest: f64,
    last_decrease: u64,
    last_sent: u64,
    round_trip: u64,
    pub(super) next_send: u64,
}

impl State {
    pub(super) fn new(settings: Swift, path: IdlePath) -> Self {
        let slack = settings.queueing_target.0 + settings.per_hop.0 * u64::from(path.hops);
        Self {
            target: (path.round_trip + slack.get()) as f64,
            flow_scaling: settings.flow_scaling.0.get() as f64,
            increase: f64::from(settings.increase),
            decrease: f64::from(settings.decrease_percent) / 100.0,
            least_factor: 1.0 - f64::from(settings.largest_decrease_percent) / 100.0,
            window: f64::from(path.window),
            largest: f64::from(path.window),
            round_trip: path.round_trip,
            ..Self::default()
        }
    }

    fn target(&self) -> f64 {
        let slope = |window: f64| 1.0 / window.sqrt() - 1.0 / SCALED_TO.sqrt();
        self.target + self.flow_scaling * (slope(self.window) / slope(SCALED_FROM)).clamp(0.0, 1.0)
    }

    pub(super) fn sent(&mut self, now: u64) {
        self.last_sent = now;
        self.pace();
    }

    fn pace(&mut self) {
        let wait = (self.round_trip as f64 / self.window) as u64;
        self.next_send = if self.window < 1.0 { self.last_sent + wait } else { 0 };
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback) {
        let (delay, target) = (feedback.round_trip as f64, self.target());
        self.round_trip = feedback.round_trip;
        if delay < target {
            let increase = self.increase * f64::from(feedback.acked);
            let grown = self.window + increase / self.window.max(1.0);
            self.window = grown.min(self.largest);
        } else if self.may_decrease(feedback.now) {
            let factor = 1.0 - self.decrease * (delay - target) / delay;
            self.shrink(factor.max(self.least_factor), feedback.now);
        }
        self.pace();
    }

    pub(super) fn lost(&mut self, now: u64) {
        if self.may_decrease(now) {
            self.shrink(self.least_factor, now);
            self.pace();
        }
    }

    fn may_decrease(&self, now: u64) -> bool {
        now >= self.last_decrease + self.round_trip
    }

    fn shrink(&mut self, factor: f64, now: u64) {
        self.window = (self.window * factor).max(LEAST_WINDOW);
        self.last_decrease = now;
    }
}
