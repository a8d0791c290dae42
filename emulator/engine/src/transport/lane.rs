// SPDX-License-Identifier: Apache-2.0
//! The interfaces over which a flow leaves its host, one lane each.
//!
//! A lane takes the flow's next packet when its interface is free, so faster and less loaded
//! interfaces carry more. The balancer chooses the path behind the interface.

use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct SenderLane {
    pub(crate) port: u32,
    pub(crate) first: u16,
    pub(crate) end: u16,
    pub(crate) enlisted: bool,
    pub(crate) turn: u16,
    /// Due time of the next probe of a retired path, or `u64::MAX` if no path is retired.
    pub(crate) probe_due: u64,
    pub(crate) retired: u16,
}

impl SenderLane {
    pub(crate) fn new(port: u32, paths: Range<u16>) -> Self {
        Self {
            port,
            first: paths.start,
            end: paths.end,
            enlisted: false,
            turn: paths.start,
            probe_due: u64::MAX,
            retired: 0,
        }
    }

    pub(crate) fn step(&mut self) {
        self.turn += 1;
        if self.turn == self.end {
            self.turn = self.first;
        }
    }

    pub(crate) fn width(&self) -> u16 {
        self.end - self.first
    }

    /// Before this time, all paths are retired and no probe is due. Zero if a path is in use.
    pub(crate) fn rests_until(&self) -> u64 {
        if self.retired < self.width() { 0 } else { self.probe_due }
    }
}
