// SPDX-License-Identifier: Apache-2.0
//! Looking at packets as they arrive. The default probe sees nothing and costs nothing.

use lightloom_units::{Bytes, SimTime};

use super::network::LinkId;

/// A packet's arrival at the far end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketArrival {
    /// When the last bit arrived.
    pub at: SimTime,
    /// On which link.
    pub link: LinkId,
    /// Number of the packet in its flow, or of the first packet not received yet for an
    /// acknowledgement.
    pub sequence: u32,
    /// Whether it is an acknowledgement.
    pub acknowledgement: bool,
    /// Whether it was marked on this or an earlier link.
    pub marked: bool,
    /// Its size on the wire.
    pub wire_bytes: u16,
    /// Which flow it belongs to, for [`Engine::flow_of`](super::Engine::flow_of).
    pub way: Way,
}

/// Where a packet is on its way; tells the engine whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way(pub(crate) u32);

/// Sees every arrival of one shard, in the order in which the shard handles its links. Arrivals
/// on one link come in order of time; sort by (time, link) to get the order of the whole network.
pub trait Probe: Clone + Send {
    /// Whether it wants to know what packets find in queues.
    const SEES_QUEUES: bool = false;

    /// Called for each packet at the end of each link.
    fn arrived(&mut self, arrival: PacketArrival);

    /// Called for each packet that comes to the output port before `link`, with what stands before it.
    #[inline(always)]
    fn queued(&mut self, _link: LinkId, _backlog: Bytes) {}

    /// Whether it can count packets without being shown them, and does not mind in which order vertices are done.
    fn may_leap(&self) -> bool {
        false
    }

    /// What has come since it was `before` has come so many times more.
    fn leap(&mut self, _before: &Self, _times: u32) {}
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbe;

impl Probe for NoProbe {
    #[inline(always)]
    fn arrived(&mut self, _: PacketArrival) {}
    fn may_leap(&self) -> bool {
        true
    }
}

/// Keeps every arrival, for tests and small runs.
#[derive(Clone, Debug, Default)]
pub struct ArrivalLog(pub Vec<PacketArrival>);

impl Probe for ArrivalLog {
    fn arrived(&mut self, arrival: PacketArrival) {
        self.0.push(arrival);
    }
}
