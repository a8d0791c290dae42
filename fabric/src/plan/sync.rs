// SPDX-License-Identifier: Apache-2.0
//! How new weights may reach the replicas of a step of reinforcement learning, side by side.

use serde::{Deserialize, Serialize};

use crate::file::step::SyncMethod;
use lightloom_units::{Bytes, Picoseconds};

/// The methods side by side, for one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncChoice {
    /// The job.
    pub job: String,
    /// What its file says.
    pub written: SyncMethod,
    /// Share of the weights' bytes that is sent.
    pub delta_share: f64,
    /// Time of one change of circuits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switching_ps: Option<Picoseconds>,
    /// What of it the file lets the network be idle before the phase.
    pub slack_ps: Picoseconds,
    /// Each method.
    pub methods: Vec<MethodTimes>,
    /// The method of the least `planned_ps`. `None` if the network serves none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<SyncMethod>,
    /// The method of the least `packets_ps`. `None` if the packet network alone serves none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_on_packets: Option<SyncMethod>,
    /// What the times take for granted.
    pub assumptions: Vec<String>,
}

/// One method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MethodTimes {
    /// The method.
    pub method: SyncMethod,
    /// Bytes that rings or islands carry.
    pub ring_bytes: Bytes,
    /// Bytes between GPUs below one leaf.
    pub leaf_bytes: Bytes,
    /// Bytes between leaves.
    pub demand_bytes: Bytes,
    /// Bytes that the trainer sends, of these three.
    pub trainer_bytes: Bytes,
    /// Time of the phase on circuits planned for it, or over the packet network where there are none. `None` if not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_ps: Option<Picoseconds>,
    /// Time over the packet network alone. `None` if not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_ps: Option<Picoseconds>,
    /// Share of the weights' bytes from which a change to circuits planned for it beats keeping the circuits of the phase
    /// before, with the slack of the file. `None` if it never does, up to 1, or there are no circuits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_pays_from: Option<f64>,
    /// The same with no slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_pays_from_without_slack: Option<f64>,
}
