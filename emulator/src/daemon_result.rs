// SPDX-License-Identifier: Apache-2.0

use lightloom_units::Picoseconds;
use serde::{Deserialize, Serialize};

use crate::scenario::SwitchLanguage;

/// Processing times assumed for the daemon, whose CPU is not emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostModel {
    /// Time per message from a device.
    #[serde(rename = "per_input_ps")]
    pub per_input: Picoseconds,
    /// Additional time per message and device.
    #[serde(rename = "per_input_and_device_ps")]
    pub per_input_and_device: Picoseconds,
    /// Time to start a bypass: plan, check the plan, and journal the changes.
    #[serde(rename = "per_plan_ps")]
    pub per_plan: Picoseconds,
    /// Additional time per bypass and node.
    #[serde(rename = "per_plan_and_node_ps")]
    pub per_plan_and_node: Picoseconds,
    /// Time per node to complete a change.
    #[serde(rename = "per_end_and_node_ps", default)]
    pub per_end_and_node: Picoseconds,
    /// Kernel latency between a serial device and the daemon's task, per direction.
    #[serde(rename = "handoff_ps", default)]
    pub handoff: Picoseconds,
    /// Maximum random delay per wake-up, drawn from the seed.
    #[serde(rename = "jitter_ps")]
    pub jitter: Picoseconds,
}

/// Results of a run under the shipped control plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonResult {
    /// Number of transceivers that the daemon drives.
    pub devices: usize,
    /// Number of optical switches that the daemon drives.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub switches: usize,
    /// Protocol of the optical switches.
    #[serde(default)]
    pub switch_language: SwitchLanguage,
    /// Polling interval per device.
    #[serde(rename = "poll_every_ps")]
    pub poll_every: Picoseconds,
    /// Whether devices report loss of light without being polled.
    pub events: bool,
    /// Number of bypasses that the daemon started.
    pub bypasses: u64,
    /// Number of bypasses around healthy parts.
    pub false_bypasses: u64,
    /// Number of committed changes.
    pub committed: u64,
    /// Number of changes that were not committed.
    pub not_committed: u64,
    /// Outcomes of the phases that jobs requested.
    #[serde(default, skip_serializing_if = "PhaseCounts::is_none")]
    pub phases: PhaseCounts,
    /// Number of daemon restarts.
    pub restarts: u64,
    /// SHA-256 digest of the final plan.
    #[serde(default)]
    pub plan_sha256: String,
    /// Number of records in the daemon's journal.
    pub journal_records: u64,
    /// Bytes on all serial lines, both directions combined.
    pub line_bytes: u64,
    /// Violations of the invariants in docs/reliability.md, with their locations. Empty for a correct daemon.
    pub violations: Vec<String>,
    /// Processing times assumed for the daemon.
    pub assumed: CostModel,
    /// Time assumed for the packet network to reroute flows.
    #[serde(rename = "reroute_ps", default)]
    pub reroute: Picoseconds,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Outcomes of the phases that jobs requested from the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCounts {
    /// Number of requested phases.
    pub asked: u64,
    /// Phases whose circuits were already set up or passed qualification.
    pub lit: u64,
    /// Phases that were too short for a change and reused the previous circuits.
    pub kept: u64,
    /// Phases whose circuits were not set up.
    pub missed: u64,
}

impl PhaseCounts {
    /// Returns `true` if no phase was requested.
    pub fn is_none(&self) -> bool {
        self.asked == 0
    }
}
