// SPDX-License-Identifier: Apache-2.0
//! HPCC: acknowledgements carry the load of each switch port on the path, and the rate follows the busiest port.
//!
//! Li et al.: "HPCC: high precision congestion control", SIGCOMM 2019, section 3 and algorithm 1. The load of a port is
//! its rate since the previous acknowledgement plus its queue per round trip, both divided by its bandwidth. `U` averages
//! the highest load over a round trip. If `U` is at least the target `η`, or after `stages` additive increases, the rate
//! becomes `R·η/U + a`, and otherwise `R + a`. The reference `R` follows once per round trip, so acknowledgements of one
//! round trip do not compound. The window is the rate times the round trip.
//!
//! Differences: each flow uses its path's round trip instead of the network's longest, and telemetry takes no
//! bytes. Hosts that forward packets and packets that are sent again carry none. Loads of several paths are averaged.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Feedback, IdlePath};

/// HPCC parameters. The defaults are from Li et al., SIGCOMM 2019.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "HpccFile")]
pub struct Hpcc {
    /// Target utilisation of the busiest port (`η`), in percent.
    #[schemars(range(min = 1, max = 99))]
    pub target_percent: u32,
    /// Number of additive increases before the rate is scaled to the target (`maxStage`).
    #[schemars(range(max = 1000))]
    pub stages: u32,
    /// Number of flows that can share a port without a queue. The additive increase is `(1 - η)/flows` of the
    /// interface rate.
    #[schemars(range(min = 1, max = 1000000))]
    pub flows: u32,
}

impl Default for Hpcc {
    /// The increase is the paper's 80 bytes per round trip at 100 Gb/s and 13 µs.
    fn default() -> Self {
        Self { target_percent: 95, stages: 5, flows: 100 }
    }
}

/// The state of a port when a packet of a flow left it. Reaches the sender before the packet's acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortLoad {
    pub(crate) cursor: u32,
    pub(crate) sequence: u32,
    pub(crate) link: u32,
    pub(crate) at: u64,
    /// Total bytes sent by the port.
    pub(crate) sent: u64,
    /// Bytes waiting in the port.
    pub(crate) queue: u64,
    /// In bits per second.
    pub(crate) rate: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    target: f64,
    stages: u32,
    increase: f64,
    line: f64,
    round_trip: f64,
    rate: f64,
    pub(super) window: f64,
    largest: f64,
    reference: f64,
    load: f64,
    stage: u32,
    /// The loads that each packet in flight has met, indexed by packet number modulo the length.
    met: Box<[Vec<PortLoad>]>,
    last: Vec<PortLoad>,
    next: u32,
    /// The acknowledgement of this packet updates the reference.
    update_at: u32,
    pub(super) next_send: u64,
}

impl State {
    pub(super) fn new(settings: Hpcc, path: IdlePath, tracked: usize) -> Self {
        let line = path.rate.get() as f64;
        let target = f64::from(settings.target_percent) / 100.0;
        Self {
            target,
            stages: settings.stages,
            increase: line * (1.0 - target) / f64::from(settings.flows),
            line,
            round_trip: path.round_trip as f64,
            rate: line,
            window: f64::from(path.window),
            largest: f64::from(path.window),
            reference: line,
            load: 1.0,
            met: vec![Vec::new(); tracked].into_boxed_slice(),
            ..Self::default()
        }
    }

    pub(super) fn pace(&self) -> u64 {
        self.rate as u64
    }

    fn place(&self, sequence: u32) -> usize {
        sequence as usize & (self.met.len() - 1)
    }

    pub(super) fn sent(&mut self, now: u64, sequence: u32, wire_bytes: u16) {
        let place = self.place(sequence);
        self.met[place].clear();
        self.next = self.next.max(sequence + 1);
        self.next_send = now + (f64::from(wire_bytes) * 8e12 / self.rate) as u64;
    }

    pub(super) fn met(&mut self, load: PortLoad) {
        let place = self.place(load.sequence);
        self.met[place].push(load);
    }

    pub(super) fn acknowledged(&mut self, feedback: Feedback, answered: u32) {
        let place = self.place(answered);
        let (mut load, mut time) = (0.0, 0.0);
        for at in 0..self.met[place].len() {
            let met = self.met[place][at];
            let Some(last) = self.last.iter_mut().find(|last| last.link == met.link) else {
                self.last.push(met);
                continue;
            };
            if met.at <= last.at {
                continue;
            }
            let (rate, took) = (met.rate as f64 / 8e12, (met.at - last.at) as f64);
            let queue = met.queue.min(last.queue) as f64;
            let sent = met.sent.saturating_sub(last.sent) as f64;
            let one = (queue / self.round_trip + sent / took) / rate;
            *last = met;
            if one > load {
                (load, time) = (one, took);
            }
        }
        if time > 0.0 {
            self.load += (time / self.round_trip).min(1.0) * (load - self.load);
            self.adapt(feedback.now, answered >= self.update_at);
        }
        if answered >= self.update_at {
            self.update_at = self.next;
        }
    }

    fn adapt(&mut self, now: u64, is_update: bool) {
        let excess = self.load / self.target;
        let scales = excess >= 1.0 || self.stage >= self.stages;
        let scaled = self.reference / if scales { excess } else { 1.0 };
        let before = std::mem::replace(&mut self.rate, (scaled + self.increase).min(self.line));
        self.window = (self.largest * self.rate / self.line).ceil();
        if is_update {
            self.reference = self.rate;
            self.stage = if scales { 0 } else { self.stage + 1 };
        }
        let left = self.next_send.saturating_sub(now) as f64 * before / self.rate;
        self.next_send = now + left as u64;
    }
}
