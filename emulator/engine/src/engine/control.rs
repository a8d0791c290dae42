// SPDX-License-Identifier: Apache-2.0
//! Queues rare events other than packets. Each entry ends the preceding window.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lightloom_units::{BitsPerSecond, Picoseconds, SimTime};

use super::flow::BatchId;
use super::network::LinkId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Timer {
        at: SimTime,
        token: u64,
    },
    /// A batch is reported when its last byte has arrived and the shortest link delay has passed.
    BatchDone {
        batch: BatchId,
        at: SimTime,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkChange {
    /// Drops everything queued, in flight or arriving until the link is up. A host keeps its data.
    Down,
    Up,
    /// The packet in transmission finishes at the old rate.
    Rate(BitsPerSecond),
    BitErrors(Chance),
    PacketLoss(Chance),
    /// Delays packets by up to this time without reordering. Draws are twice this time apart and interpolated.
    Jitter(Picoseconds),
    Healthy,
    /// Makes the far end pause these priorities (one bit each) until a further change, as in a pause storm.
    Paused(u8),
}

/// In units of 2⁻⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chance(pub u64);

impl Chance {
    pub fn from_share(share: f64) -> Self {
        Self((share * 2.0_f64.powi(64)) as u64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Link(LinkId, LinkChange),
    LinkNews,
    BatchDone(BatchId, SimTime),
    Timer(u64),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ControlQueue {
    heap: BinaryHeap<Reverse<(u64, u64, Act)>>,
    planned: u64,
}

impl ControlQueue {
    pub(crate) fn plan(&mut self, at: SimTime, act: Act) {
        self.heap.push(Reverse((at.0, self.planned, act)));
        self.planned += 1;
    }
    pub(crate) fn next_due(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((time, ..))| *time)
    }
    pub(crate) fn take(&mut self) -> Option<(SimTime, Act)> {
        self.heap.pop().map(|Reverse((time, _, act))| (SimTime(time), act))
    }
}
