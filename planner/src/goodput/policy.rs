// SPDX-License-Identifier: Apache-2.0
//! What jobs of a month do that have lost a node, in picoseconds and steps.

/// From what a job begins again, and how it answers the loss of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Steps between two checkpoints: 1 where the end of every step is one.
    pub every: u32,
    /// What reading a checkpoint takes.
    pub load: i128,
    /// What writing it takes.
    pub write: i128,
    /// What the job does before it falls back to a checkpoint.
    pub answer: Answer,
}

/// What a job does that has lost a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It begins again at its checkpoint.
    Restart,
    /// It begins again at a copy in memory.
    InMemory {
        /// Steps between two copies.
        every: u32,
        /// What reading them takes.
        load: i128,
        /// What taking them takes.
        write: i128,
        /// With so many nodes dead at once they are gone.
        copies: u32,
    },
    /// It moves to a spare node, and does the step under way again.
    Migrate {
        /// What moving takes.
        takes: i128,
    },
    /// It goes on without the replicas of the node until they have one again.
    Elastic {
        /// What it takes to go on without them.
        reform: i128,
        /// What it takes a replica to be ready, while the others go on.
        start: i128,
        /// What it takes to go on together.
        rejoin: i128,
        /// With fewer replicas it waits.
        least: u32,
    },
}

impl Answer {
    /// Whether the job goes on with fewer replicas.
    #[must_use]
    pub const fn is_elastic(self) -> bool {
        matches!(self, Self::Elastic { .. })
    }

    /// The same in half the time, and what then takes half the time. `None` if nothing does.
    #[must_use]
    pub fn halved(self) -> Option<(Self, &'static str)> {
        let (halved, words) = match self {
            Self::Restart => return None,
            Self::InMemory { every, load, write, copies } => {
                (Self::InMemory { every, load: load / 2, write, copies }, "copies in memory read")
            }
            Self::Migrate { takes } => {
                (Self::Migrate { takes: takes / 2 }, "moving to spare nodes")
            }
            Self::Elastic { reform, start, rejoin, least } => {
                let [reform, start, rejoin] = [reform, start, rejoin].map(|time| time / 2);
                (
                    Self::Elastic { reform, start, rejoin, least },
                    "leaving replicas out and taking them up",
                )
            }
        };
        (halved != self).then_some((halved, words))
    }

    /// How it is written in scenarios and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::InMemory { .. } => "in_memory",
            Self::Migrate { .. } => "migrate",
            Self::Elastic { .. } => "elastic",
        }
    }
}

impl Policy {
    /// Restarts from checkpoints.
    #[must_use]
    pub const fn restart(every: u32, load: i128, write: i128) -> Self {
        Self { every, load, write, answer: Answer::Restart }
    }
}

/// The data-parallel replicas of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    /// How many.
    pub count: u32,
    /// What a step takes with one fewer, in a run of the job with so many GPUs fewer; it stands for all with fewer still.
    /// The step with all of them, unless the job is elastic.
    pub step_with_fewer: i128,
    /// By node at the start: the replicas that have a GPU on it.
    pub of_node: Vec<Vec<u32>>,
}

/// A job that trains over a span.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedJob {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub gpus: u64,
    /// What a step takes without a failure, in picoseconds.
    pub step: i128,
    /// The closed form of such a step, in seconds.
    pub closed_form: f64,
    /// Utilisation of its GPUs in such a step.
    pub mfu: f64,
    /// What it does that has lost a node.
    pub policy: Policy,
    /// Its replicas.
    pub replicas: Replicas,
}
