// SPDX-License-Identifier: Apache-2.0
//! What the shipping control plane did in a run.

use lightloom_units::Picoseconds;
use serde::{Deserialize, Serialize};

use crate::scenario::SwitchLanguage;

/// What the daemon's own work is assumed to take, for its processor is not emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostModel {
    /// For one message of a device.
    #[serde(rename = "per_input_ps")]
    pub per_input: Picoseconds,
    /// And more for each device that there is.
    #[serde(rename = "per_input_and_device_ps")]
    pub per_input_and_device: Picoseconds,
    /// To begin a bypass: a plan around a fault, its check, what moves, and the intent.
    #[serde(rename = "per_plan_ps")]
    pub per_plan: Picoseconds,
    /// And more for each node.
    #[serde(rename = "per_plan_and_node_ps")]
    pub per_plan_and_node: Picoseconds,
    /// For the end of a change, for each node.
    #[serde(rename = "per_end_and_node_ps", default)]
    pub per_end_and_node: Picoseconds,
    /// From a line to the daemon's task, and from the task to the line: what the kernel takes.
    #[serde(rename = "handoff_ps", default)]
    pub handoff: Picoseconds,
    /// Each time it wakes, the seed draws up to this much more.
    #[serde(rename = "jitter_ps")]
    pub jitter: Picoseconds,
}

/// What the shipping control plane did in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonResult {
    /// Transceivers that it drives.
    pub devices: usize,
    /// Optical switches that it drives.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub switches: usize,
    /// What they speak.
    #[serde(default)]
    pub switch_language: SwitchLanguage,
    /// How often it reads each of them.
    #[serde(rename = "poll_every_ps")]
    pub poll_every: Picoseconds,
    /// Whether they report lost light.
    pub events: bool,
    /// Bypasses that it began.
    pub bypasses: u64,
    /// Bypasses of parts that no fault of the run had broken.
    pub false_bypasses: u64,
    /// Changes that were committed, and that were not.
    pub committed: u64,
    /// See `committed`.
    pub not_committed: u64,
    /// What became of the phases that jobs asked for.
    #[serde(default, skip_serializing_if = "PhaseCounts::is_none")]
    pub phases: PhaseCounts,
    /// Starts of the daemon after the first.
    pub restarts: u64,
    /// The digest of the plan in force at the end.
    #[serde(default)]
    pub plan_sha256: String,
    /// Records in its journal.
    pub journal_records: u64,
    /// Bytes on all serial lines, both ways.
    pub line_bytes: u64,
    /// Invariants of docs/reliability.md that the run broke, each with where. Empty in a sound daemon.
    pub violations: Vec<String>,
    /// What its own work is assumed to take.
    pub assumed: CostModel,
    /// What the packet network is assumed to take until flows have other ways.
    #[serde(rename = "reroute_ps", default)]
    pub reroute: Picoseconds,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What became of the phases of a plan that jobs asked the daemon for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCounts {
    /// So many were asked for.
    pub asked: u64,
    /// Their circuits were qualified, or stood already.
    pub lit: u64,
    /// The circuits of before stayed, for the phase was too short for the way into it.
    pub kept: u64,
    /// Nothing was made of them.
    pub missed: u64,
}

impl PhaseCounts {
    /// Whether none was asked for.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.asked == 0
    }
}
