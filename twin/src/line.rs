// SPDX-License-Identifier: Apache-2.0
//! One serial line: bytes take their time, ten bits each, and follow each other.

use lightloom_devices::{Line, RackSlot};
use lightloom_drivers::tender::Tender;
use lightloom_fabric::khop::Path;
use lightloom_units::id::BundleId;
use lightloom_units::{Picoseconds, SimTime};

/// Bits on the line for one byte: start, eight, stop.
const BITS: u64 = 10;

/// A transceiver with its line and the device task at the other end.
pub(crate) struct TwinModule {
    pub(crate) bundle: BundleId,
    pub(crate) slot: RackSlot,
    pub(crate) tender: Tender,
    /// Counts connections: what was on its way on an older one is lost.
    pub(crate) line: Line,
    to_free: SimTime,
    from_free: SimTime,
    pub(crate) bytes: u64,
    /// Where its light rests, as last seen.
    pub(crate) light: Option<Path>,
    /// It was asked for a read or a hello and has not answered since its power went.
    pub(crate) wakes_at: Option<SimTime>,
}

impl TwinModule {
    pub(crate) fn new(bundle: BundleId, slot: RackSlot, tender: Tender) -> Self {
        Self {
            bundle,
            slot,
            tender,
            line: Line(0),
            to_free: SimTime::START,
            from_free: SimTime::START,
            bytes: 0,
            light: None,
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
