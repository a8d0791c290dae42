// SPDX-License-Identifier: Apache-2.0
//! `phases:` as people write it.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::scenario::InFlight;

/// The phases of a fabric's step, packet by packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PhasesFile {
    /// How often the step is repeated.
    #[schemars(range(min = 1, max = 100))]
    pub steps: u32,
    /// What becomes of packets on a circuit that a change removes.
    pub in_flight: InFlight,
    /// Divide all sizes and times of the run by this; results are given in the fabric's time. Left
    /// out: as much as keeps the run within about 12 million packets, and 1 beside other workloads.
    #[schemars(range(min = 1))]
    pub scale: Option<u64>,
    /// What acknowledgements wait for in switches.
    pub acknowledgements: Acknowledgements,
    /// The first phase begins when these are done: collectives, or traffic.
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

/// What acknowledgements wait for in switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledgements {
    /// For nothing: they have a priority of their own.
    #[default]
    First,
    /// For their turn among data. Where a leaf sends to many over a loaded link, its acknowledgements wait in that
    /// queue, and the windows of those that send to it run dry on links that are free.
    InTurn,
}
