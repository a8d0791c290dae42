// SPDX-License-Identifier: Apache-2.0
//! What a job does that has lost a node: policies as they are sold and run, each with its own times.

use lightloom_planner::goodput::{Answer, Policy};
use lightloom_units::Picoseconds;

/// What a job does that has lost a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Its groups begin again at the last barrier, which is the end of the step before, with all groups that exchange
    /// anything but gradients with them. The state comes from their replicas and takes no time.
    Barrier,
    /// The whole job begins again at its last checkpoint.
    Checkpoint(Checkpoints),
    /// The whole job begins again at its last copy in the memory of other nodes.
    InMemory {
        /// These copies.
        memory: MemoryCopies,
        /// What it begins again from when all copies of a node are gone.
        checkpoint: Checkpoints,
    },
    /// The groups of the node move to a spare node with the state of their replicas, while the job stands still.
    Migrate {
        /// What moving takes.
        takes: Picoseconds,
        /// What it begins again from when no replica is left.
        checkpoint: Checkpoints,
    },
    /// The job goes on without the replicas of the node, and takes them up again when they have a node.
    Elastic {
        /// What it takes the others to go on without them.
        reform: Picoseconds,
        /// What it takes a replica that has its nodes to be ready, while the others go on.
        start: Picoseconds,
        /// What it takes all to go on together.
        rejoin: Picoseconds,
        /// With fewer replicas the job waits.
        least: u32,
        /// What it begins again from then.
        checkpoint: Checkpoints,
    },
}

impl Restart {
    /// What the whole job begins again from. `None` if replicas go on.
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

    /// How it is written.
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

/// Checkpoints of a whole job; the first is there at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoints {
    /// After so many steps one is taken.
    pub every: u32,
    /// What reading it takes.
    pub load: Picoseconds,
    /// What writing one takes of the job's time; counted over a span alone.
    pub write: Picoseconds,
}

/// Copies of a job's state in the memory of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCopies {
    /// After so many steps they are taken.
    pub every: u32,
    /// What reading one takes.
    pub load: Picoseconds,
    /// What taking them takes of the job's time.
    pub write: Picoseconds,
    /// Nodes that have the state of one, itself among them: with so many dead nodes at once it is gone.
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
