// SPDX-License-Identifier: Apache-2.0
//! Receiver credit: the receiving host says when each packet may be sent.
//!
//! After NDP (Handley et al.: "Re-architecting datacenter networks and stacks for low latency and high performance",
//! SIGCOMM 2017) and EQDS (Olteanu et al., NSDI 2022). A flow begins with a window of credits, a packet each. Every
//! packet that arrives, whole or cut to its header, earns its sender another credit, which the receiving host gives at
//! the pace of its interfaces, its flows in turn. What was trimmed goes again first. A credit whose packet was lost
//! goes to the packet that repairs it; a timeout begins anew with a full window. What is in flight and the credits in hand
//! make a full window, but for credits that wait at the receiver and that are on their way. Acknowledgements say when none
//! waits: if a window stays short all the same, for half a round trip, what is missing was lost and is replaced.
//!
//! Left out: the sender does not state its demand (the receiver knows the length of the flow from the first packet);
//! the pace is that of the links as built, whatever becomes of them.

use super::IdlePath;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) credits: u32,
    initial: u32,
    /// For so long credits may be on their way, in picoseconds.
    patience: u64,
    /// Since when the window has been short though no credit waited, and the most that it was since.
    short: Option<(u64, u32)>,
}

impl State {
    pub(super) fn new(path: IdlePath) -> Self {
        let (initial, patience) = (path.window, path.round_trip / 2);
        Self { credits: initial, initial, patience, short: None }
    }

    /// A packet says at `now` whether all credit has been given that was earned, while so many packets are `in_flight` and
    /// so many are `left` to be sent.
    pub(super) fn settle(&mut self, now: u64, is_settled: bool, (in_flight, left): (u32, u32)) {
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
