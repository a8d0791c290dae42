// SPDX-License-Identifier: Apache-2.0
//! Compares methods of distributing new weights to the replicas in a reinforcement-learning step.

use serde::{Deserialize, Serialize};

use crate::file::step::SyncMethod;
use lightloom_units::{Bytes, Picoseconds};

/// The comparison of all methods for one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncChoice {
    /// Job name.
    pub job: String,
    /// Method selected in the fabric file.
    pub written: SyncMethod,
    /// Fraction of the weights' bytes that is sent.
    pub delta_share: f64,
    /// Duration of one circuit change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switching_ps: Option<Picoseconds>,
    /// Idle network time before the phase, as specified in the fabric file, which hides switching.
    pub slack_ps: Picoseconds,
    /// Results by method.
    pub methods: Vec<MethodTimes>,
    /// Method with the smallest `planned_ps`; `None` if the network cannot serve any method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<SyncMethod>,
    /// Method with the smallest `packets_ps`; `None` if the packet network cannot serve any method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_on_packets: Option<SyncMethod>,
    /// Assumptions behind the times.
    pub assumptions: Vec<String>,
}

/// Results of one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MethodTimes {
    /// Synchronisation method.
    pub method: SyncMethod,
    /// Bytes carried by rings or islands.
    pub ring_bytes: Bytes,
    /// Bytes sent between GPUs under the same leaf.
    pub leaf_bytes: Bytes,
    /// Bytes between leaves.
    pub demand_bytes: Bytes,
    /// The trainer's share of the bytes between leaves.
    pub trainer_bytes: Bytes,
    /// Duration on circuits planned for the method, or on packets; `None` if impossible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_ps: Option<Picoseconds>,
    /// Duration on the packet network only; `None` if the demand cannot be served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_ps: Option<Picoseconds>,
    /// Smallest fraction of the weights' bytes for which dedicated circuits beat those of the
    /// previous phase. `None` if dedicated circuits are never faster or if there are no circuits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_pays_from: Option<f64>,
    /// The value of `change_pays_from` without slack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_pays_from_without_slack: Option<f64>,
}
