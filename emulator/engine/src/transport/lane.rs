// SPDX-License-Identifier: Apache-2.0
//! The interfaces of a host by which a flow leaves: one lane each.
//!
//! A lane takes the next packet of the flow when its interface is free, so that faster and less loaded interfaces
//! carry more. Which path behind the interface the packet takes is the balancer's choice.

use std::ops::Range;

/// One interface of the sending host, with the paths that begin there.
#[derive(Clone, Debug)]
pub(crate) struct SenderLane {
    /// The output port, as a number in the shard.
    pub(crate) port: u32,
    /// Its paths among those of the flow.
    pub(crate) first: u16,
    pub(crate) end: u16,
    /// The flow waits for its turn at the port.
    pub(crate) enlisted: bool,
    /// The path whose turn it is.
    pub(crate) turn: u16,
    /// When the next retired path is to be probed; `u64::MAX`: none is retired.
    pub(crate) probe_due: u64,
    /// Paths that are retired.
    pub(crate) retired: u16,
}

impl SenderLane {
    /// A lane over the paths in `paths`.
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

    /// Moves on to the next path.
    pub(crate) fn step(&mut self) {
        self.turn += 1;
        if self.turn == self.end {
            self.turn = self.first;
        }
    }

    /// How many paths it has.
    pub(crate) fn width(&self) -> u16 {
        self.end - self.first
    }

    /// Before this it has nothing to send by: all its paths are retired, and none is to be probed yet. 0: it has a
    /// path in use.
    pub(crate) fn rests_until(&self) -> u64 {
        if self.retired < self.width() { 0 } else { self.probe_due }
    }
}
