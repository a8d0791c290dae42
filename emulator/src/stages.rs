// SPDX-License-Identifier: Apache-2.0
//! What the shipping control plane did in a run, and the stages of its answer to a fault.

use std::fmt;

use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

use crate::scenario::SwitchLanguage;

/// A stage between a fault and the first packet after it, in the order in which they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageName {
    /// Until a first report, reading or silence is at the daemon.
    Noticed,
    /// Until the policy has named what is broken.
    Detected,
    /// Until the next plan is made and checked: by the cost model.
    Planned,
    /// Until the intent is durable.
    Journalled,
    /// Until the last command that moves light is at its transceiver.
    Sent,
    /// Until the light of the last transceiver rests.
    Switched,
    /// Until every transceiver is read back, its power is good, and the end is durable.
    Qualified,
    /// Until the links carry packets.
    Relocked,
    /// Until the groups that were moved begin again.
    Restarted,
    /// Until a first packet of them has arrived.
    FirstPacket,
}

impl StageName {
    /// All of them, in order.
    pub const ALL: [Self; 10] = [
        Self::Noticed,
        Self::Detected,
        Self::Planned,
        Self::Journalled,
        Self::Sent,
        Self::Switched,
        Self::Qualified,
        Self::Relocked,
        Self::Restarted,
        Self::FirstPacket,
    ];

    /// How it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Detected => "detected",
            Self::Planned => "planned",
            Self::Journalled => "journalled",
            Self::Sent => "sent",
            Self::Switched => "switched",
            Self::Qualified => "qualified",
            Self::Relocked => "relocked",
            Self::Restarted => "restarted",
            Self::FirstPacket => "first packet",
        }
    }
}

impl fmt::Display for StageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One stage of the answer to a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Which.
    pub stage: StageName,
    /// When it ended.
    #[serde(rename = "end_ps")]
    pub end: SimTime,
    /// How long it took beyond the one before it.
    #[serde(rename = "took_ps")]
    pub took: Picoseconds,
}

impl Stage {
    /// The stages that end so, of a fault that began to matter at `began`.
    pub(crate) fn bars(began: SimTime, ends: &[(StageName, SimTime)]) -> Vec<Self> {
        let mut last = began;
        let bar = |(stage, end): &(StageName, SimTime)| {
            let took = end.since(std::mem::replace(&mut last, *end));
            Self { stage: *stage, end: *end, took }
        };
        ends.iter().map(bar).collect()
    }
}

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
