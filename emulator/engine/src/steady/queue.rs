// SPDX-License-Identifier: Apache-2.0
//! A queue of all events except packets, in the order in which a single engine would process them.
//!
//! Simultaneous events keep the order in which they were planned. A batch's completion is treated
//! as planned when its last byte arrives, after everything that the caller plans at that instant.
//! Simultaneous completions are ordered by the ids of their last flows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lightloom_units::SimTime;

use crate::engine::{BatchId, FlowId, LinkChange, LinkId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlannedAct {
    Change(LinkId, LinkChange),
    Timer(u64),
    BatchDone {
        batch: BatchId,
        at: SimTime,
        from: From,
    },
    /// A flow of an island that has yet to run can end now.
    RunIslands,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum From {
    Caller,
    Held(u32),
    Ahead(u32),
}

/// Due time, planning time, origin (0 for the caller, 1 for packets) and number.
type Key = (u64, u64, u8, u64);

#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<(Key, PlannedAct)>>,
    calls: u64,
}

impl Queue {
    pub(super) fn plan(&mut self, now: SimTime, at: SimTime, act: PlannedAct) {
        self.calls += 1;
        self.heap.push(Reverse(((at.0, now.0, 0, self.calls), act)));
    }

    pub(super) fn plan_end(
        &mut self,
        reported: SimTime,
        at: SimTime,
        last: FlowId,
        batch: BatchId,
        from: From,
    ) {
        let act = PlannedAct::BatchDone { batch, at, from };
        self.heap.push(Reverse(((reported.0, at.0, 1, u64::from(last.0)), act)));
    }

    pub(super) fn next_due(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse(((due, ..), _))| *due)
    }

    pub(super) fn take(&mut self) -> Option<(SimTime, PlannedAct)> {
        self.heap.pop().map(|Reverse(((due, ..), act))| (SimTime(due), act))
    }
}
