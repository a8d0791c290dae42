// SPDX-License-Identifier: Apache-2.0

pub use lightloom_planner::goodput::StageName;
use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

/// One recovery stage of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The stage.
    pub stage: StageName,
    /// When the stage ended.
    #[serde(rename = "end_ps")]
    pub end: SimTime,
    /// Duration of the stage, measured from the end of the previous one.
    #[serde(rename = "took_ps")]
    pub took: Picoseconds,
}

impl Stage {
    pub(crate) fn bars(began: SimTime, ends: &[(StageName, SimTime)]) -> Vec<Self> {
        let mut last = began;
        ends.iter()
            .map(|(stage, end)| {
                let took = end.since(std::mem::replace(&mut last, *end));
                Self { stage: *stage, end: *end, took }
            })
            .collect()
    }
}
