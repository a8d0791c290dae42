// SPDX-License-Identifier: Apache-2.0
//! Flows: the traffic submitted to the engine, and its results.
//!
//! A flow sends one or more messages of equal size in order over one connection between two hosts.
//! A message may wait for messages of other flows that end at its source host ([`FlowGate`]), so
//! collectives run without intervention by the caller.

use lightloom_units::{BitsPerSecond, Bytes, SimTime};

use super::network::{VertexId, dense_index};
use super::route::Route;

dense_index! {
    FlowId
}
dense_index! {
    BatchId
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowGate {
    /// This flow must end at the source of the waiting flow, because a host knows only its own arrivals.
    pub flow: FlowId,
    /// Message `k` (from 0) may start once `flow` has delivered at least `k + 1 - ahead` messages,
    /// or all of them. In a ring, where each message forwards the previous one, `ahead` is 1.
    pub ahead: i32,
}

impl FlowGate {
    pub const fn after(flow: FlowId) -> Self {
        Self { flow, ahead: i32::MIN }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    pub source: VertexId,
    pub destination: VertexId,
    pub message: Bytes,
    pub messages: u32,
    pub start: SimTime,
    /// Priority at switches with bounded queues: 0 (lowest) to 6.
    pub priority: u8,
    /// Maximum rate on the wire, in addition to the limits of the transport.
    pub pace: Option<BitsPerSecond>,
    pub route: Route,
    pub gates: Vec<FlowGate>,
    /// Flows from the same host whose data must be acknowledged before this flow sends.
    pub after_acknowledged: Vec<FlowId>,
    pub batch: Option<BatchId>,
}

impl FlowSpec {
    pub fn new(source: VertexId, destination: VertexId, size: Bytes) -> Self {
        Self { source, destination, message: size, messages: 1, ..Self::default() }
    }
    pub fn at(mut self, start: SimTime) -> Self {
        self.start = start;
        self
    }
    pub fn in_batch(mut self, batch: BatchId) -> Self {
        self.batch = Some(batch);
        self
    }
    pub fn over(mut self, route: Route) -> Self {
        self.route = route;
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    pub source: VertexId,
    pub destination: VertexId,
    pub size: Bytes,
    pub sent: Bytes,
    pub delivered: Bytes,
    pub start: SimTime,
    /// Includes the [`host_delay`](super::EngineSettings::host_delay). `None` while unfinished or if cancelled.
    pub end: Option<SimTime>,
    pub acknowledged: Option<SimTime>,
    pub retransmitted: u32,
    pub duplicates: u32,
    pub cancelled: bool,
}
