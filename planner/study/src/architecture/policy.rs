// SPDX-License-Identifier: Apache-2.0

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a design treats the group of a faulty node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPolicy {
    /// The ring bypasses the node (k-hop rings).
    Bypass,
    /// The ring's pass-through node replaces it (rings of N + 1).
    SpareNode,
    /// Another cube or block replaces the affected one.
    SpareCubes,
    /// The healthy GPUs of each domain form new groups.
    Regroup,
    /// Every domain reserves nodes for replacement (64 + 1).
    Backup,
    /// The group continues with fewer GPUs, at least half.
    ReducedTp,
}

impl FaultPolicy {
    /// Returns the usual response of jobs under this policy, as named in [`lightloom_planner::goodput::Answer`].
    pub const fn usual_answer(self) -> &'static str {
        match self {
            Self::Backup => "migrate",
            Self::ReducedTp => "elastic",
            _ => "restart",
        }
    }
}

lightloom_units::display_as_serialized!(FaultPolicy);
