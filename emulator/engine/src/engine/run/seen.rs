// SPDX-License-Identifier: Apache-2.0
//! What a flow's sending end is doing at the moment, for those who look now and then.

use lightloom_units::BitsPerSecond;

use super::Engine;
use crate::engine::flow::FlowId;
use crate::engine::layout::Place;
use crate::engine::probe::Probe;

/// A sending end at one moment. Packets are counted from the start of the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingEnd {
    /// Packets acknowledged, all before them too.
    pub acknowledged: u32,
    /// Packets sent of which nothing has been heard, copies too.
    pub in_flight: u32,
    /// How many may be in flight.
    pub window: u32,
    /// The rate that congestion control allows when it was asked last. `None` where it sets a window alone.
    pub pace: Option<BitsPerSecond>,
    /// Packets sent again.
    pub resent: u32,
}

impl<P: Probe> Engine<P> {
    /// How many flows there are, those that have ended included.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The sending end of a flow. `None` before it starts and after its last packet has arrived.
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
