// SPDX-License-Identifier: Apache-2.0

use lightloom_units::BitsPerSecond;

use super::Engine;
use crate::engine::flow::FlowId;
use crate::engine::layout::Place;
use crate::engine::probe::Probe;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingEnd {
    pub acknowledged: u32,
    /// Packets sent and not yet acknowledged or known to be lost, including retransmissions.
    pub in_flight: u32,
    pub window: u32,
    /// Rate last set by congestion control. `None` if it only sets a window.
    pub pace: Option<BitsPerSecond>,
    pub resent: u32,
}

impl<P: Probe> Engine<P> {
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// `None` before the flow starts and after its last packet has arrived.
    #[must_use]
    pub fn sending_end(&self, flow: FlowId) -> Option<SendingEnd> {
        let state = &self.flows[flow.index()];
        if state.end.is_some() || state.cancelled {
            return None;
        }
        let Place { shard, index } = state.sender;
        let sender = &self.shards[shard as usize].senders[index as usize];
        sender.started.then(|| sender.seen())
    }
}
