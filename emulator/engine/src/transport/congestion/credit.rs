// SPDX-License-Identifier: Apache-2.0
//! Receiver credit: the receiving host says when each packet may be sent.
//!
//! After NDP (Handley et al.: "Re-architecting datacenter networks and stacks for low latency and high performance",
//! SIGCOMM 2017) and EQDS (Olteanu et al., NSDI 2022). A flow begins with a window of credits, a packet each. Every
//! packet that arrives, whole or cut to its header, earns its sender another credit, which the receiving host gives at
//! the pace of its interfaces, its flows in turn. What was trimmed goes again first. A credit whose packet was lost
//! goes to the packet that repairs it; a timeout begins anew with a full window.
//!
//! Left out: the sender does not state its demand (the receiver knows the length of the flow from the first packet);
//! the pace is that of the links as built, whatever becomes of them.

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) credits: u32,
    initial: u32,
}

impl State {
    pub(super) fn new(initial: u32) -> Self {
        Self { credits: initial, initial }
    }

    pub(super) fn sent(&mut self) {
        self.credits = self.credits.saturating_sub(1);
    }

    pub(super) fn refill(&mut self) {
        self.credits = self.initial;
    }
}
