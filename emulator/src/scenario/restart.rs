// SPDX-License-Identifier: Apache-2.0
//! A job's responses to the loss of a node. These are policies of real products, each with its own times.

use lightloom_planner::goodput::{Answer, Policy};
use lightloom_units::Picoseconds;

/// Response of a job to the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The node's groups restart at the last barrier (the end of the previous step), together with
    /// all groups that exchange anything other than gradients with them. Copying the state from
    /// their replicas takes no time.
    Barrier,
    /// The whole job restarts from its last checkpoint.
    Checkpoint(Checkpoints),
    /// The whole job restarts from its last copy in other nodes' memory.
    InMemory {
        /// In-memory copies.
        memory: MemoryCopies,
        /// Fallback if all copies of a node are lost.
        checkpoint: Checkpoints,
    },
    /// The node's groups move to a spare node and take over the state of their replicas while the
    /// job pauses.
    Migrate {
        /// Duration of the move.
        takes: Picoseconds,
        /// Fallback if no replica is left.
        checkpoint: Checkpoints,
    },
    /// The job continues without the node's replicas and includes them again once they have a node.
    Elastic {
        /// Time until the other replicas continue without them.
        reform: Picoseconds,
        /// Time that a replica with all its nodes takes to get ready while the others continue.
        start: Picoseconds,
        /// Time until all replicas continue together.
        rejoin: Picoseconds,
        /// Minimum number of replicas. With fewer, the job waits.
        least: u32,
        /// Fallback in that case.
        checkpoint: Checkpoints,
    },
}

impl Restart {
    /// Returns the checkpoints from which the whole job restarts. `None` if replicas continue.
    #[must_use]
    pub const fn rolls_back_to(self) -> Option<Checkpoints> {
        match self {
            Self::Barrier | Self::Migrate { .. } | Self::Elastic { .. } => None,
            Self::Checkpoint(checkpoint) => Some(checkpoint),
            Self::InMemory { memory: MemoryCopies { every, load, write, .. }, .. } => {
                Some(Checkpoints { every, load, write })
            }
        }
    }

    /// Returns the name used in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Checkpoint(_) => "checkpoint",
            Self::InMemory { .. } => "in_memory",
            Self::Migrate { .. } => "migrate",
            Self::Elastic { .. } => "elastic",
        }
    }
}

/// Checkpoints of a whole job. The first one exists at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// Steps between checkpoints.
    pub every: u32,
    /// Time to read one.
    pub load: Picoseconds,
    /// Time that a job spends writing a checkpoint. Counted only over a span.
    pub write: Picoseconds,
}

/// Copies of a job's state in the memory of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCopies {
    /// Steps between copies.
    pub every: u32,
    /// Time to read one.
    pub load: Picoseconds,
    /// Time that a job spends making the copies.
    pub write: Picoseconds,
    /// Number of nodes that hold a node's state, including that node. The state is lost if all of
    /// them fail.
    pub copies: u32,
}

impl From<Restart> for Policy {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::Barrier => Self::restart(1, 0, 0),
            Restart::Checkpoint(checkpoint) => policy(checkpoint, Answer::Restart),
            Restart::InMemory { memory, checkpoint } => {
                let MemoryCopies { every, load, write, copies } = memory;
                let (load, write) = (load.0.into(), write.0.into());
                let answer = Answer::InMemory { every: every.max(1), load, write, copies };
                policy(checkpoint, answer)
            }
            Restart::Migrate { takes, checkpoint } => {
                policy(checkpoint, Answer::Migrate { takes: takes.0.into() })
            }
            Restart::Elastic { reform, start, rejoin, least, checkpoint } => {
                let [reform, start, rejoin] = [reform, start, rejoin].map(|time| time.0.into());
                policy(checkpoint, Answer::Elastic { reform, start, rejoin, least })
            }
        }
    }
}

fn policy(checkpoint: Checkpoints, answer: Answer) -> Policy {
    let Checkpoints { every, load, write } = checkpoint;
    Policy { every: every.max(1), load: load.0.into(), write: write.0.into(), answer }
}
