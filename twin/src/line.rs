// SPDX-License-Identifier: Apache-2.0
//! The line to a device. On a serial one bytes take their time, ten bits each, and follow each other; over TCP they take
//! none.

use lightloom_devices::{Line, RackSlot};
use lightloom_drivers::tender::Tender;
use lightloom_fabric::khop::Path;
use lightloom_units::{Picoseconds, SimTime};

use crate::setup::Installed;

/// Bits on the line for one byte: start, eight, stop.
const BITS: u64 = 10;

/// A device with its line and the daemon's task at the other end.
pub(crate) struct TwinDevice {
    pub(crate) installed: Installed,
    pub(crate) slot: RackSlot,
    pub(crate) tender: Tender,
    /// Counts connections: what was on its way on an older one is lost.
    pub(crate) line: Line,
    to_free: SimTime,
    from_free: SimTime,
    pub(crate) bytes: u64,
    /// Where the light of a transceiver rests, as last seen.
    pub(crate) light: Option<Path>,
    /// The connections along which an optical switch passes light, as last seen: ingress and egress.
    pub(crate) passes: Vec<(u16, u16)>,
    /// When its light is looked at again.
    pub(crate) wakes_at: Option<SimTime>,
}

impl TwinDevice {
    pub(crate) fn new(installed: Installed, slot: RackSlot, tender: Tender) -> Self {
        Self {
            installed,
            slot,
            tender,
            line: Line(0),
            to_free: SimTime::START,
            from_free: SimTime::START,
            bytes: 0,
            light: None,
            passes: Vec::new(),
            wakes_at: None,
        }
    }

    /// When the last of these bytes, sent at `at`, is at the transceiver.
    pub(crate) fn sends(&mut self, at: SimTime, bytes: usize, rate: u32) -> SimTime {
        self.bytes += bytes as u64;
        self.to_free = self.to_free.max(at) + takes(bytes, rate);
        self.to_free
    }

    /// When the last of these bytes, answered at `at`, is at the daemon.
    pub(crate) fn answers(&mut self, at: SimTime, bytes: usize, rate: u32) -> SimTime {
        self.bytes += bytes as u64;
        self.from_free = self.from_free.max(at) + takes(bytes, rate);
        self.from_free
    }
}

/// A rate of 0 takes no time.
fn takes(bytes: usize, bits_per_second: u32) -> Picoseconds {
    if bits_per_second == 0 {
        return Picoseconds::ZERO;
    }
    Picoseconds(bytes as u64 * BITS * 1_000_000_000_000 / u64::from(bits_per_second))
}
