// SPDX-License-Identifier: Apache-2.0
//! The `phases:` key.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::scenario::InFlight;

/// The phases of a fabric's step, packet by packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PhasesFile {
    /// Repetitions of the step.
    #[schemars(range(min = 1, max = 100))]
    pub steps: u32,
    /// Treatment of packets on a circuit that a change removes.
    pub in_flight: InFlight,
    /// Factor that divides all sizes and times of the run; results are given in the fabric's time.
    /// Defaults to a factor that limits the run to about 12 million packets, or to 1 next to other
    /// workloads.
    #[schemars(range(min = 1))]
    pub scale: Option<u64>,
    /// Queueing of acknowledgements in switches.
    pub acknowledgements: Acknowledgements,
    /// Collectives or traffic that must complete before the first phase.
    pub after: Vec<String>,
}

impl Default for PhasesFile {
    fn default() -> Self {
        Self {
            steps: 1,
            in_flight: InFlight::default(),
            scale: None,
            acknowledgements: Acknowledgements::default(),
            after: Vec::new(),
        }
    }
}

/// Queueing of acknowledgements in switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledgements {
    /// They have their own priority and do not wait.
    #[default]
    First,
    /// Acknowledgements wait in the data queues. If a leaf sends to many others over a loaded link,
    /// its acknowledgements wait in that queue, and the windows of its senders run empty on idle
    /// links.
    InTurn,
}
