// SPDX-License-Identifier: Apache-2.0

use schemars::JsonSchema;
use serde::Deserialize;

use crate::scenario::InFlight;

/// Phases of a fabric's step, packet by packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PhasesFile {
    /// Repetitions of the step.
    #[schemars(range(min = 1, max = 100))]
    pub steps: u32,
    /// Treatment of packets on a circuit that is removed.
    pub in_flight: InFlight,
    /// Factor by which all sizes and times are scaled down in the run; results are at full size.
    /// Defaults to a factor that limits the run to about 12 million packets, or to 1 in combination
    /// with other workloads.
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
    /// Acknowledgements have a separate priority and do not wait.
    #[default]
    First,
    /// Acknowledgements wait in the data queues. If a leaf sends to many others over a loaded link,
    /// the delayed acknowledgements stall its senders, and other links become idle.
    InTurn,
}
