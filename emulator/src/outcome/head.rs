// SPDX-License-Identifier: Apache-2.0
//! What the result of every kind of run begins with: what was run, for how long, and what became of the packets.

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;
use serde::Serialize;

use lightloom_engine::PacketCount;

/// The version of the result of one run.
pub const RUN_SCHEMA: &str = "lightloom.run/v2";

/// The first keys of a result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeHead {
    /// The schema of the result, and the files it came from; these are filled in where files are read.
    #[serde(flatten)]
    pub made: Provenance,
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric file; on a network, of the scenario file.
    pub fabric_sha256: String,
    /// The seed.
    pub seed: Seed,
    /// Threads it ran on.
    pub threads: usize,
    /// Real time it took; filled in where there is a clock.
    pub wall_seconds: f64,
    /// When the last thing happened.
    #[serde(rename = "simulated_ps")]
    pub simulated: SimTime,
    /// Packets put on a wire.
    pub packet_hops: u64,
    /// `packet_hops / wall_seconds`; filled in where there is a clock.
    pub packet_hops_per_second: f64,
    /// Who commanded what follows a fault: `assumed` delays.
    pub control: &'static str,
    /// What became of the packets.
    pub packets: Packets,
}

impl OutcomeHead {
    /// The head of a run that `count` counted the packets of; the clock is read elsewhere.
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

    /// Notes the real time that the run took.
    pub fn took(&mut self, wall_seconds: f64) {
        self.wall_seconds = wall_seconds;
        self.packet_hops_per_second = self.packet_hops as f64 / wall_seconds;
    }
}

/// What was run, and how.
pub(crate) struct RunIdentity<'a> {
    /// Name of the scenario.
    pub(crate) scenario: &'a str,
    /// SHA-256 of the file that says what it runs on.
    pub(crate) sha256: &'a str,
    pub(crate) seed: Seed,
    pub(crate) threads: usize,
}

/// What became of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Data packets and acknowledgements handed to the network.
    pub sent: u64,
    /// Those that arrived.
    pub delivered: u64,
    /// Those that found a queue full.
    pub dropped: u64,
    /// Those lost on a link that was or went dark.
    pub lost: u64,
    /// Those still under way when the run ended: `sent = delivered + dropped + lost + in_flight`.
    pub in_flight: u64,
    /// Marks set by queues.
    pub marked: u64,
    /// Data packets sent again.
    pub retransmitted: u64,
    /// Data packets that arrived although they had arrived before: sent again, though nothing of them was lost.
    pub duplicates: u64,
    /// Data packets cut to their headers.
    pub trimmed: u64,
    /// Times that a switch asked a port to pause.
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
