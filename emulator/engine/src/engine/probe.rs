// SPDX-License-Identifier: Apache-2.0
//! Observation of packets on arrival. The default probe does nothing and has no cost.

use lightloom_units::{Bytes, SimTime};

use super::network::LinkId;
use super::{Engine, Event};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketArrival {
    pub at: SimTime,
    pub link: LinkId,
    /// Packet number in the flow. For an acknowledgement, the first packet not received.
    pub sequence: u32,
    pub acknowledgement: bool,
    pub marked: bool,
    pub wire_bytes: u16,
    /// Identifies the flow through [`Engine::flow_of`](super::Engine::flow_of).
    pub way: Way,
}

/// Position of a packet on its route, which also identifies its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way(pub(crate) u32);

/// Observes all arrivals of one shard, link by link. Arrivals on one link are in chronological
/// order; for the order in the whole network, sort by (time, link).
pub trait Probe: Clone + Default + Send {
    const SEES_QUEUES: bool = false;

    fn arrived(&mut self, arrival: PacketArrival);

    /// Returns a function that is called with the backlog which each packet meets at a link. Requires `SEES_QUEUES`.
    #[inline(always)]
    fn queue_of(&mut self, _link: LinkId) -> impl FnMut(Bytes) {
        |_| {}
    }

    /// Returns whether the probe's counts can be extrapolated without observing each packet, for any order of vertices.
    /// If so, the probe is not shown arrivals.
    fn may_leap(&self) -> bool {
        false
    }

    fn leap(&mut self, _before: &Self, _times: u32) {}

    /// Calls [`Engine::advance_to_event`]. A probe that repeats this default has its engine compiled once, in its own
    /// crate, and not in every crate that runs it.
    fn next_event(engine: &mut Engine<Self>, limit: SimTime) -> Option<Event> {
        engine.advance_to_event(limit)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn arrived(&mut self, _: PacketArrival) {}
    fn may_leap(&self) -> bool {
        true
    }
}

#[derive(Clone, Debug, Default)]
pub struct ArrivalLog(pub Vec<PacketArrival>);

impl Probe for ArrivalLog {
    fn arrived(&mut self, arrival: PacketArrival) {
        self.0.push(arrival);
    }
}
