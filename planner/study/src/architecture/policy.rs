// SPDX-License-Identifier: Apache-2.0
//! The responses of a design to a faulty node.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens to the group of a faulty node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPolicy {
    /// The ring bypasses the node (k-hop rings).
    Bypass,
    /// The node that passed light through replaces it (rings of N + 1).
    SpareNode,
    /// Another whole cube or block replaces the faulty one.
    SpareCubes,
    /// Groups are formed again from the healthy GPUs of each domain.
    Regroup,
    /// Every domain reserves nodes that replace faulty ones (64 + 1).
    Backup,
    /// A group continues with at least half of its GPUs.
    ReducedTp,
}

impl FaultPolicy {
    /// Returns the usual response of a job that lost a node under this policy, by its name in
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
