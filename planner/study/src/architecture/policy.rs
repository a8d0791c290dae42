// SPDX-License-Identifier: Apache-2.0
//! What a design does about a faulty node.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of the group of a faulty node.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum FaultPolicy {
    /// The ring bypasses the node: k-hop rings.
    Bypass,
    /// The node that passed light on takes its place: rings of N + 1.
    SpareNode,
    /// Another whole cube or block takes the place of the faulty one.
    SpareCubes,
    /// Groups are formed anew of what is healthy in each domain.
    Regroup,
    /// Every domain keeps nodes back that replace faulty ones: 64 + 1.
    Backup,
    /// A group goes on with at least half of its GPUs.
    ReducedTp,
}

impl FaultPolicy {
    /// What a job usually does under it that has lost a node, as [`lightloom_planner::goodput::Answer`] calls it: it moves to a
    /// warm spare, goes on with fewer GPUs, or starts again.
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
