// SPDX-License-Identifier: Apache-2.0
//! The difference between two layouts: changed groups, switched bundles, healthy rings that moved.

use std::fmt;

use lightloom_fabric::khop::Path;
use lightloom_units::id::{BundleId, NodeId};

/// The change of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// Rebuilt around a failed part.
    Bypassed {
        /// The group's place in the layout.
        group: usize,
        /// Nodes that left.
        out: Vec<NodeId>,
        /// Nodes that joined, in the order of the ranks they took.
        into: Vec<NodeId>,
    },
    /// A spare ring or a new ring took over all ranks.
    Moved {
        /// The group's place in the layout.
        group: usize,
        /// Former nodes.
        from: Vec<NodeId>,
        /// New nodes.
        to: Vec<NodeId>,
    },
    /// The group could not be rebuilt and is lost.
    Lost {
        /// The job that continues with one group fewer. `None` if a spare ring was lost.
        job: Option<u32>,
        /// Former place of the ring in the layout.
        group: usize,
        /// Former nodes.
        from: Vec<NodeId>,
    },
    /// A new group after a repair, for a job with too few groups or as a spare ring.
    Formed {
        /// Index of the job. `None` for a spare ring.
        job: Option<u32>,
        /// Its nodes.
        to: Vec<NodeId>,
    },
}

/// All changes that a replan makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Bundles that switch, with the old and the new path.
    pub bundles: Vec<(BundleId, Path, Path)>,
    /// Groups that changed.
    pub groups: Vec<GroupChange>,
    /// Rings without a fault that moved to make room for other groups.
    pub moved: MovedForOthers,
    /// Whether the groups moved to the placement of a plan from scratch.
    pub is_cold: bool,
}

/// Moves of rings without a fault that make room for another group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedForOthers {
    /// Rings whose ranks moved to other nodes.
    pub rings: u32,
    /// Circuits of the moved rings that go dark.
    pub circuits: u32,
    /// Lower bound on the rings that must move; less than `rings` if the search stopped early.
    pub at_least: u32,
}

impl fmt::Display for MovedForOthers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rings, circuits, at_least } = self;
        match (rings, circuits) {
            (0, 0) => Ok(()),
            _ if at_least < rings => write!(
                f,
                "healthy rings moved: {rings}, their circuits cut: {circuits}; lower bound on the rings: \
                 {at_least}"
            ),
            _ => write!(
                f,
                "healthy rings moved: {rings}, their circuits cut: {circuits}; with fewer, GPUs would be lost"
            ),
        }
    }
}
