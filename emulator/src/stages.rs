// SPDX-License-Identifier: Apache-2.0
//! The stages of the answer to a fault.

pub use lightloom_planner::goodput::StageName;
use lightloom_units::{Picoseconds, SimTime};
use serde::{Deserialize, Serialize};

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
