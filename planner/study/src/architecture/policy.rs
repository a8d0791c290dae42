// SPDX-License-Identifier: Apache-2.0
//! The responses of a design to a faulty node.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The treatment of a faulty node's group.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPolicy {
    /// The ring bypasses the node (k-hop rings).
    Bypass,
    /// The ring's pass-through node replaces it (rings of N + 1).
    SpareNode,
    /// Another cube or block replaces the whole cube or block with the fault.
    SpareCubes,
    /// The healthy GPUs of each domain form new groups.
    Regroup,
    /// Every domain reserves nodes to replace faulty ones (64 + 1).
    Backup,
    /// A group continues with fewer GPUs, at least half.
    ReducedTp,
}

impl FaultPolicy {
    /// Returns the usual response of a job to the loss of a node under this policy, by its name in
    /// [`lightloom_planner::goodput::Answer`]. The job moves to a warm spare, continues with fewer
    /// GPUs, or restarts.
    #[must_use]
    pub const fn usual_answer(self) -> &'static str {
        match self {
            Self::Backup => "migrate",
            Self::ReducedTp => "elastic",
            _ => "restart",
        }
    }
}

impl fmt::Display for FaultPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bypass => "bypass",
            Self::SpareNode => "spare-node",
            Self::SpareCubes => "spare-cubes",
            Self::Regroup => "regroup",
            Self::Backup => "backup",
            Self::ReducedTp => "reduced-tp",
        })
    }
}
