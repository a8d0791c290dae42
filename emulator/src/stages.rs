// SPDX-License-Identifier: Apache-2.0
//! Stages of the recovery from a fault.

pub use lightloom_planner::goodput::StageName;
use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

/// One stage of the recovery from a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The stage.
    pub stage: StageName,
    /// When it ended.
    #[serde(rename = "end_ps")]
    pub end: SimTime,
    /// Time that it took after the end of the previous stage.
    #[serde(rename = "took_ps")]
    pub took: Picoseconds,
}

impl Stage {
    /// Returns the stages with these ends for a fault that took effect at `began`.
    pub(crate) fn bars(began: SimTime, ends: &[(StageName, SimTime)]) -> Vec<Self> {
        let mut last = began;
        let bar = |(stage, end): &(StageName, SimTime)| {
            let took = end.since(std::mem::replace(&mut last, *end));
            Self { stage: *stage, end: *end, took }
        };
        ends.iter().map(bar).collect()
    }
}
