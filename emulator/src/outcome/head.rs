// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_units::SimTime;
use lightloom_units::seed::Seed;
use serde::Serialize;

use lightloom_engine::PacketCount;

/// Schema version of the document for one run.
pub const RUN_SCHEMA: &str = "lightloom.run/v2";

/// Common fields of all results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutcomeHead {
    /// Schema and input files, filled in by the file reader.
    #[serde(flatten)]
    pub made: Provenance,
    /// Name of the scenario.
    pub scenario: String,
    /// SHA-256 of the fabric file, or of the scenario file if it defines the network.
    pub fabric_sha256: String,
    /// Random seed.
    pub seed: Seed,
    /// Number of threads.
    pub threads: usize,
    /// Wall-clock time of the run in seconds, set by [`OutcomeHead::took`].
    pub wall_seconds: f64,
    /// Simulated time of the last event.
    #[serde(rename = "simulated_ps")]
    pub simulated: SimTime,
    /// Packets sent, counted once per link.
    pub packet_hops: u64,
    /// `packet_hops / wall_seconds`, set by [`OutcomeHead::took`].
    pub packet_hops_per_second: f64,
    /// Control plane of the run, such as `assumed`.
    pub control: &'static str,
    /// Packet counts.
    pub packets: PacketCount,
}

impl OutcomeHead {
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
            packets: *count,
        }
    }

    /// Sets the wall-clock time of the run.
    pub fn took(&mut self, wall_seconds: f64) {
        self.wall_seconds = wall_seconds;
        self.packet_hops_per_second = self.packet_hops as f64 / wall_seconds;
    }
}

pub(crate) struct RunIdentity<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) sha256: &'a str,
    pub(crate) seed: Seed,
    pub(crate) threads: usize,
}
