// SPDX-License-Identifier: Apache-2.0
//! The few things that happen outside the packets: a link changes, a timer runs out, a batch of
//! flows is done. One small ordered queue; each entry ends the window before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lightloom_units::{BitsPerSecond, Picoseconds, SimTime};

use super::flow::BatchId;
use super::network::LinkId;

/// What is reported to the caller, and when it may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A timer set with [`Engine::set_timer`](super::Engine::set_timer) ran out.
    Timer {
        /// When.
        at: SimTime,
        /// The number it was set with.
        token: u64,
    },
    /// Every flow of a batch has arrived. News travels: it is reported one shortest link delay after
    /// the last byte arrived, at [`Engine::now`](super::Engine::now).
    BatchDone {
        /// The batch.
        batch: BatchId,
        /// When the last byte of the last flow arrived.
        at: SimTime,
    },
}

/// What happens to one direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkChange {
    /// Everything queued before it or on it is lost, and everything that comes until it is up. A
    /// host keeps its data back while its own link is down.
    Down,
    /// It carries packets again, from an empty queue.
    Up,
    /// Changes the rate of the link. The packet in transmission finishes at the old rate; queued packets leave at the new
    /// one.
    Rate(BitsPerSecond),
    /// Bits arrive wrong, and a packet with a wrong bit is lost at the end of the link.
    BitErrors(BitErrors),
    /// This share of packets is lost at the end of the link, whatever their size.
    PacketLoss(PacketLoss),
    /// Adds up to this delay to each packet and keeps their order: the added delay is linear between values that are drawn
    /// at intervals of twice its maximum.
    Jitter(Picoseconds),
    /// It sends at the rate it was built for, without errors, losses or jitter.
    Healthy,
    /// Its far end keeps asking it to pause these priorities, one bit each, as an interface in a pause
    /// storm does; none: it lets go. Has an effect at switches with real queues alone.
    Paused(u8),
}

/// The share of bits that arrive wrong, in units of 2⁻⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitErrors(pub u64);

impl BitErrors {
    /// From a share between 0 and 1.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        // The cast saturates.
        Self((share * 2.0_f64.powi(64)) as u64)
    }
}

/// The share of packets that are lost, in units of 2⁻⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketLoss(pub u64);

impl PacketLoss {
    /// From a share between 0 and 1.
    #[must_use]
    pub fn from_share(share: f64) -> Self {
        Self(BitErrors::from_share(share).0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    LinkDown(LinkId),
    LinkUp(LinkId),
    LinkRate(LinkId, BitsPerSecond),
    LinkErrors(LinkId, BitErrors),
    LinkLoss(LinkId, PacketLoss),
    LinkJitter(LinkId, Picoseconds),
    LinkHealthy(LinkId),
    LinkPaused(LinkId, u8),
    /// Adaptive switches learn which links elsewhere are down.
    LinkNews,
    BatchDone(BatchId, SimTime),
    Timer(u64),
}

/// Acts by time; those of one instant in the order in which they were planned.
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
