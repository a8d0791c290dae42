// SPDX-License-Identifier: Apache-2.0
//! Receiver credit: the receiving host decides when each packet may be sent.
//!
//! Based on NDP (Handley et al.: "Re-architecting datacenter networks and stacks for low latency and high performance",
//! SIGCOMM 2017) and EQDS (Olteanu et al., NSDI 2022). A flow starts with a window of credits, one packet each. Each
//! arriving packet, complete or trimmed, earns another credit, granted at the rate of the host's interfaces. Trimmed
//! packets are retransmitted first. The credit of a lost packet is used for its retransmission, and a timeout restores
//! a full window.
//!
//! Packets in flight and available credits add up to a full window, minus credits that wait at the
//! receiver or are in transit. If no credit waits and the window is short for half a round trip,
//! the missing credits were lost and are replaced.
//!
//! Simplifications: the receiver knows the flow's length from the first packet, and the credit rate follows the original
//! link rates even if links change. At a full queue, a switch trims the arriving packet, but NDP trims this or the last
//! queued one at random. Simultaneous arrivals are ordered by link, so in an incast the lowest link keeps its first window.

use super::IdlePath;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) credits: u32,
    initial: u32,
    patience: u64,
    /// When the window became short although no credit waited, and its largest size since then.
    short: Option<(u64, u32)>,
}

impl State {
    pub(super) fn new(path: IdlePath) -> Self {
        let (initial, patience) = (path.window, path.round_trip / 2);
        Self { credits: initial, initial, patience, short: None }
    }

    /// `is_settled`: the acknowledgement states that all earned credit has been granted.
    pub(super) fn settle(&mut self, now: u64, is_settled: bool, in_flight: u32, left: u32) {
        let window = self.credits + in_flight;
        if !is_settled || window >= self.initial || self.credits >= left {
            self.short = None;
            return;
        }
        let (since, most) = self.short.map_or((now, window), |(at, most)| (at, most.max(window)));
        self.short = Some((since, most));
        if now >= since + self.patience {
            self.credits += (self.initial - most).min(left - self.credits);
            self.short = None;
        }
    }

    pub(super) fn sent(&mut self) {
        self.credits = self.credits.saturating_sub(1);
    }

    pub(super) fn refill(&mut self) {
        (self.credits, self.short) = (self.initial, None);
    }
}
