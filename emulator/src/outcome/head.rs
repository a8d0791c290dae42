// SPDX-License-Identifier: Apache-2.0
//! The head that every result has: the scenario, the duration, and the packet counts.

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;
use serde::Serialize;

use lightloom_engine::PacketCount;

/// Version of the document for one run.
pub const RUN_SCHEMA: &str = "lightloom.run/v2";

/// The first keys of a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeHead {
    /// The schema and the input files. The code that reads the files fills this in.
    #[serde(flatten)]
    pub made: Provenance,
    /// The name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric file, or of the scenario file on a network defined there.
    pub fabric_sha256: String,
    /// The seed.
    pub seed: Seed,
    /// Number of threads.
    pub threads: usize,
    /// Real duration of the run in seconds. The caller that reads the clock fills this in.
    pub wall_seconds: f64,
    /// The simulated time of the last event.
    #[serde(rename = "simulated_ps")]
    pub simulated: SimTime,
    /// Packets put on a wire.
    pub packet_hops: u64,
    /// `packet_hops / wall_seconds`. The caller that reads the clock fills this in.
    pub packet_hops_per_second: f64,
    /// The control plane of the run, such as `assumed` delays.
    pub control: &'static str,
    /// The packet counts.
    pub packets: Packets,
}

impl OutcomeHead {
    /// Creates the head of a run with the packet counts in `count`. The caller reads the clock.
    pub(crate) fn new(of: RunIdentity<'_>, simulated: SimTime, count: &PacketCount) -> Self {
        Self {
            made: Provenance::of(RUN_SCHEMA, Inputs::new()),
            scenario: of.scenario.to_owned(),
            fabric_sha256: of.sha256.to_owned(),
            seed: of.seed,
            threads: of.threads,
            wall_seconds: 0.0,
            simulated,
            packet_hops: count.hops,
            packet_hops_per_second: 0.0,
            control: "assumed",
            packets: Packets::from(count),
        }
    }

    /// Records the real time of the run.
    pub fn took(&mut self, wall_seconds: f64) {
        self.wall_seconds = wall_seconds;
        self.packet_hops_per_second = self.packet_hops as f64 / wall_seconds;
    }
}

pub(crate) struct RunIdentity<'a> {
    pub(crate) scenario: &'a str,
    /// SHA-256 of the file that defines the network.
    pub(crate) sha256: &'a str,
    pub(crate) seed: Seed,
    pub(crate) threads: usize,
}

/// Packet counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Data packets and acknowledgements passed to the network.
    pub sent: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Packets dropped at a full queue.
    pub dropped: u64,
    /// Packets lost on a link that was dark or went dark.
    pub lost: u64,
    /// Packets still in flight at the end of the run, so that `sent = delivered + dropped + lost +
    /// in_flight`.
    pub in_flight: u64,
    /// Marks set by queues.
    pub marked: u64,
    /// Resent data packets.
    pub retransmitted: u64,
    /// Data packets received more than once because they were resent although not lost.
    pub duplicates: u64,
    /// Data packets trimmed to their headers.
    pub trimmed: u64,
    /// Number of pauses requested by switches.
    pub pauses: u64,
}

impl From<&PacketCount> for Packets {
    fn from(count: &PacketCount) -> Self {
        Self {
            sent: count.sent,
            delivered: count.delivered,
            dropped: count.dropped,
            lost: count.lost,
            in_flight: count.in_flight,
            marked: count.marked,
            retransmitted: count.retransmitted,
            duplicates: count.duplicates,
            trimmed: count.trimmed,
            pauses: count.pauses,
        }
    }
}
