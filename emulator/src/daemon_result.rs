// SPDX-License-Identifier: Apache-2.0
//! Results of the shipped control plane in a run.

use lightloom_units::Picoseconds;
use serde::{Deserialize, Serialize};

use crate::scenario::SwitchLanguage;

/// Assumed processing times of the daemon, whose processor is not emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostModel {
    /// Time to process a message from a device.
    #[serde(rename = "per_input_ps")]
    pub per_input: Picoseconds,
    /// Additional time per message for each device.
    #[serde(rename = "per_input_and_device_ps")]
    pub per_input_and_device: Picoseconds,
    /// Time to begin a bypass: plan around the fault, check the plan, and record the moves and the intent.
    #[serde(rename = "per_plan_ps")]
    pub per_plan: Picoseconds,
    /// Additional time per bypass for each node.
    #[serde(rename = "per_plan_and_node_ps")]
    pub per_plan_and_node: Picoseconds,
    /// Time to complete a change, for each node.
    #[serde(rename = "per_end_and_node_ps", default)]
    pub per_end_and_node: Picoseconds,
    /// Kernel time between a serial line and the daemon's task, in either direction.
    #[serde(rename = "handoff_ps", default)]
    pub handoff: Picoseconds,
    /// Maximum additional time per wake-up, drawn from the seed.
    #[serde(rename = "jitter_ps")]
    pub jitter: Picoseconds,
}

/// Results of the shipped control plane in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonResult {
    /// The number of transceivers that the daemon drives.
    pub devices: usize,
    /// The number of optical switches that the daemon drives.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub switches: usize,
    /// The protocol of the optical switches.
    #[serde(default)]
    pub switch_language: SwitchLanguage,
    /// The interval between two readings of a device.
    #[serde(rename = "poll_every_ps")]
    pub poll_every: Picoseconds,
    /// Whether devices report lost light on their own.
    pub events: bool,
    /// The number of bypasses that the daemon began.
    pub bypasses: u64,
    /// The number of bypasses around parts that had no fault.
    pub false_bypasses: u64,
    /// The number of committed changes.
    pub committed: u64,
    /// The number of changes that were not committed.
    pub not_committed: u64,
    /// The outcomes of the phases that jobs requested.
    #[serde(default, skip_serializing_if = "PhaseCounts::is_none")]
    pub phases: PhaseCounts,
    /// The number of restarts of the daemon.
    pub restarts: u64,
    /// The SHA-256 digest of the final plan.
    #[serde(default)]
    pub plan_sha256: String,
    /// The number of records in the daemon's journal.
    pub journal_records: u64,
    /// Bytes on all serial lines, in both directions.
    pub line_bytes: u64,
    /// Violated invariants of docs/reliability.md, each with its location. Empty in a correct
    /// daemon.
    pub violations: Vec<String>,
    /// Assumed processing times of the daemon.
    pub assumed: CostModel,
    /// Time that the packet network is assumed to need to move flows to other paths.
    #[serde(rename = "reroute_ps", default)]
    pub reroute: Picoseconds,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Outcomes of the phases that jobs requested from the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCounts {
    /// The number of requested phases.
    pub asked: u64,
    /// Phases whose circuits were qualified or already set.
    pub lit: u64,
    /// Phases that kept the previous circuits because they were too short for a change.
    pub kept: u64,
    /// Phases that the daemon did not set up.
    pub missed: u64,
}

impl PhaseCounts {
    /// Returns whether no phase was requested.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.asked == 0
    }
}
