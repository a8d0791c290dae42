// SPDX-License-Identifier: Apache-2.0
//! The line to a device. On a serial line, each byte takes the time of ten bits; over TCP, it takes no time.

use lightloom_devices::{Line, RackSlot};
use lightloom_drivers::tender::Tender;
use lightloom_fabric::khop::Path;
use lightloom_units::{Picoseconds, SimTime};

use crate::setup::Installed;

/// A start bit, eight data bits and a stop bit.
const BITS: u64 = 10;

pub(crate) struct TwinDevice {
    pub(crate) installed: Installed,
    pub(crate) slot: RackSlot,
    pub(crate) tender: Tender,
    /// Number of the current connection. Bytes in transit on an older connection are lost.
    pub(crate) line: Line,
    to_free: SimTime,
    from_free: SimTime,
    pub(crate) bytes: u64,
    pub(crate) light: Option<Path>,
    pub(crate) passes: Vec<(u16, u16)>,
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

    pub(crate) fn sends(&mut self, at: SimTime, bytes: usize, rate: u32) -> SimTime {
        self.bytes += bytes as u64;
        self.to_free = self.to_free.max(at) + takes(bytes, rate);
        self.to_free
    }

    pub(crate) fn answers(&mut self, at: SimTime, bytes: usize, rate: u32) -> SimTime {
        self.bytes += bytes as u64;
        self.from_free = self.from_free.max(at) + takes(bytes, rate);
        self.from_free
    }
}

fn takes(bytes: usize, bits_per_second: u32) -> Picoseconds {
    if bits_per_second == 0 {
        return Picoseconds::ZERO;
    }
    Picoseconds(bytes as u64 * BITS * 1_000_000_000_000 / u64::from(bits_per_second))
}
