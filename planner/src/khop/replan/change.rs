// SPDX-License-Identifier: Apache-2.0
//! The difference between two layouts: groups, bundles, and healthy rings that moved.

use std::fmt;

use lightloom_fabric::khop::Path;
use lightloom_units::id::{BundleId, NodeId};

/// What became of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// Rebuilt around what broke: `out` left, `into` came in their ranks.
    Bypassed {
        /// The group's place in the layout.
        group: usize,
        /// Nodes that left.
        out: Vec<NodeId>,
        /// Nodes that came, in the order of the ranks they took.
        into: Vec<NodeId>,
    },
    /// All its ranks moved to other nodes: a spare ring or a new one.
    Moved {
        /// The group's place in the layout.
        group: usize,
        /// Where it was.
        from: Vec<NodeId>,
        /// Where it is.
        to: Vec<NodeId>,
    },
    /// Nothing was left to rebuild it from.
    Lost {
        /// The job that runs on with one group fewer; nothing where a spare ring was lost.
        job: Option<u32>,
        /// The place it had in the layout.
        group: usize,
        /// Where it was.
        from: Vec<NodeId>,
    },
    /// A repair let a job that wanted more have another group, or idle nodes make a spare ring.
    Formed {
        /// The job; nothing where it is a spare ring.
        job: Option<u32>,
        /// Where it is.
        to: Vec<NodeId>,
    },
}

/// What a replan changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Bundles that switch: from which path to which.
    pub bundles: Vec<(BundleId, Path, Path)>,
    /// Groups that changed.
    pub groups: Vec<GroupChange>,
    /// What moves although it lost nothing.
    pub moved: MovedForOthers,
}

/// Rings that lost nothing and move, so that no group is lost that can be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedForOthers {
    /// Rings whose ranks are on other nodes.
    pub rings: u32,
    /// Their circuits that go dark.
    pub circuits: u32,
    /// With fewer rings moved fewer GPUs are kept in use. Less than `rings` where the search ran out of steps.
    pub at_least: u32,
}

impl fmt::Display for MovedForOthers {
    /// A line, or nothing if nothing moved.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rings, circuits, at_least } = self;
        match (rings, circuits) {
            (0, 0) => Ok(()),
            _ if at_least < rings => write!(
                f,
                "healthy rings moved: {rings}, circuits of theirs cut: {circuits}; at least {at_least} had to move, \
                 more is not known"
            ),
            _ => write!(
                f,
                "healthy rings moved: {rings}, circuits of theirs cut: {circuits}; with fewer, GPUs would be given up"
            ),
        }
    }
}
