// SPDX-License-Identifier: Apache-2.0

use lightloom_planner::goodput::{Answer, Policy};
use lightloom_units::Picoseconds;

/// Response of a job to the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The node's groups restart the step with all groups that exchange more than gradients with
    /// them. State is copied from replicas in zero time.
    Barrier,
    /// The whole job restarts from its last checkpoint.
    Checkpoint(Checkpoints),
    /// The whole job restarts from its last copy in other nodes' memory.
    InMemory {
        /// Copies in the memory of other nodes.
        memory: MemoryCopies,
        /// Fallback if all copies are lost.
        checkpoint: Checkpoints,
    },
    /// The node's groups move to a spare node and copy their replicas' state while the job pauses.
    Migrate {
        /// Duration of the migration.
        takes: Picoseconds,
        /// Fallback if no replica has the state.
        checkpoint: Checkpoints,
    },
    /// The job continues without the node's replicas until they have a node again.
    Elastic {
        /// Time until the other replicas continue.
        reform: Picoseconds,
        /// Startup time of a replica that has its nodes again, while the others continue.
        start: Picoseconds,
        /// Time until all replicas continue together.
        rejoin: Picoseconds,
        /// Minimum number of replicas; with fewer, the job waits.
        least: u32,
        /// Checkpoint to restart from after waiting.
        checkpoint: Checkpoints,
    },
}

impl Restart {
    /// Returns the checkpoints from which the whole job restarts. `None` if replicas continue.
    pub const fn rolls_back_to(self) -> Option<Checkpoints> {
        match self {
            Self::Barrier | Self::Migrate { .. } | Self::Elastic { .. } => None,
            Self::Checkpoint(checkpoint) => Some(checkpoint),
            Self::InMemory { memory: MemoryCopies { every, load, write, .. }, .. } => {
                Some(Checkpoints { every, load, write })
            }
        }
    }

    /// Returns the name used in scenario files.
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
    /// Checkpoint interval in steps.
    pub every: u32,
    /// Time to read a checkpoint.
    pub load: Picoseconds,
    /// Time that a job spends writing a checkpoint. Used only with a span.
    pub write: Picoseconds,
}

/// Copies of a job's state in the memory of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCopies {
    /// Interval between copies in steps.
    pub every: u32,
    /// Time to read the copies.
    pub load: Picoseconds,
    /// Time that the job spends making the copies.
    pub write: Picoseconds,
    /// Number of nodes with a copy of a node's state, including the node itself.
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
