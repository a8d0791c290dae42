// SPDX-License-Identifier: Apache-2.0
//! Flows: what is asked of the engine and what it answers.
//!
//! A flow is one or more messages of equal size from one host to another, sent in order over one
//! connection. A message may wait for messages of other flows that end where this one begins
//! ([`FlowGate`]): that is how collectives run without anybody looking on.

use lightloom_units::{Bytes, SimTime};

use super::network::{VertexId, dense_index};
use super::route::Route;

dense_index! {
    /// A flow, in order of creation.
    FlowId
}
dense_index! {
    /// Flows whose end is reported once, when the last of them is done.
    BatchId
}

/// Makes the messages of a flow wait for those of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowGate {
    /// The flow waited for. It must end where the waiting flow begins: a host knows only what has
    /// arrived at itself.
    pub flow: FlowId,
    /// Message `k` (from 0) may go when `flow` has delivered at least `k + 1 - ahead` messages, or all
    /// it has. In a ring, where each message passes on the one that came before, `ahead` is 1.
    pub ahead: i32,
}

impl FlowGate {
    /// Every message waits until `flow` is done.
    #[must_use]
    pub const fn after(flow: FlowId) -> Self {
        Self { flow, ahead: i32::MIN }
    }
}

/// A flow to be added.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowSpec {
    /// The sending host.
    pub source: VertexId,
    /// The receiving host.
    pub destination: VertexId,
    /// Data in each message.
    pub message: Bytes,
    /// How many messages.
    pub messages: u32,
    /// Not before this time.
    pub start: SimTime,
    /// Its priority at switches with real queues: 0 (lowest) to 6.
    pub priority: u8,
    /// The way to take.
    pub route: Route,
    /// What the messages wait for.
    pub gates: Vec<FlowGate>,
    /// Flows from the same host: all their data has to be acknowledged before this one sends.
    pub after_acknowledged: Vec<FlowId>,
    /// The batch whose end this flow is part of.
    pub batch: Option<BatchId>,
}

impl FlowSpec {
    /// One message of `size` at the beginning of the run, over a shortest path.
    #[must_use]
    pub fn new(source: VertexId, destination: VertexId, size: Bytes) -> Self {
        Self {
            source,
            destination,
            message: size,
            messages: 1,
            start: SimTime::START,
            priority: 0,
            route: Route::Shortest,
            gates: Vec::new(),
            after_acknowledged: Vec::new(),
            batch: None,
        }
    }
    /// The same flow, starting at `start`.
    #[must_use]
    pub fn at(mut self, start: SimTime) -> Self {
        self.start = start;
        self
    }
    /// The same flow as part of `batch`.
    #[must_use]
    pub fn in_batch(mut self, batch: BatchId) -> Self {
        self.batch = Some(batch);
        self
    }
    /// The same flow over `route`.
    #[must_use]
    pub fn over(mut self, route: Route) -> Self {
        self.route = route;
        self
    }
}

/// What became of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowRecord {
    /// The sending host.
    pub source: VertexId,
    /// The receiving host.
    pub destination: VertexId,
    /// Data in all messages together.
    pub size: Bytes,
    /// Data that has been sent, once or more often.
    pub sent: Bytes,
    /// Data that has arrived in order.
    pub delivered: Bytes,
    /// The start asked for.
    pub start: SimTime,
    /// When the last byte arrived at the receiver, or so much later as the host takes
    /// ([`EngineSettings::host_delay`](super::EngineSettings::host_delay)); `None` while under way or after cancelling.
    pub end: Option<SimTime>,
    /// When the sender had the last acknowledgement; `None` before.
    pub acknowledged: Option<SimTime>,
    /// Data packets sent more than once.
    pub retransmitted: u32,
    /// Data packets received more than once.
    pub duplicates: u32,
    /// Whether it was cancelled before its end.
    pub cancelled: bool,
}
