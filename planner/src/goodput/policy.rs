// SPDX-License-Identifier: Apache-2.0
//! How a job recovers from the loss of a node. Times are in picoseconds and intervals in steps.

/// A job's checkpoint interval and its response to a node failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Steps between checkpoints; 1 means after every step.
    pub every: u32,
    /// Time to read a checkpoint.
    pub load: i128,
    /// Time to write a checkpoint.
    pub write: i128,
    /// Response before falling back to a checkpoint.
    pub answer: Answer,
}

/// How a job responds to a node failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Restart from the last checkpoint.
    Restart,
    /// Restart from a copy in the memory of other nodes.
    InMemory {
        /// Steps between two copies.
        every: u32,
        /// Time to read a copy.
        load: i128,
        /// Time to take a copy.
        write: i128,
        /// Number of simultaneous node failures that destroys all copies.
        copies: u32,
    },
    /// Move to a spare node and repeat the current step.
    Migrate {
        /// Time of the move.
        takes: i128,
    },
    /// Continue without the affected replicas until a replacement is available.
    Elastic {
        /// Time to reconfigure the job.
        reform: i128,
        /// Start-up time of a returning replica, while the others keep training.
        start: i128,
        /// Time to reintegrate the replica.
        rejoin: i128,
        /// Minimum number of replicas. With fewer replicas, the job waits.
        least: u32,
    },
}

impl Answer {
    /// Returns whether the job continues with fewer replicas.
    pub const fn is_elastic(self) -> bool {
        matches!(self, Self::Elastic { .. })
    }

    /// Returns this response with halved recovery times, and a name for them. `None` if halving changes nothing.
    pub fn halved(self) -> Option<(Self, &'static str)> {
        let (halved, words) = match self {
            Self::Restart => return None,
            Self::InMemory { every, load, write, copies } => {
                (Self::InMemory { every, load: load / 2, write, copies }, "in-memory copies read")
            }
            Self::Migrate { takes } => {
                (Self::Migrate { takes: takes / 2 }, "moving to spare nodes")
            }
            Self::Elastic { reform, start, rejoin, least } => {
                let [reform, start, rejoin] = [reform, start, rejoin].map(|time| time / 2);
                (
                    Self::Elastic { reform, start, rejoin, least },
                    "removing replicas and adding them back",
                )
            }
        };
        (halved != self).then_some((halved, words))
    }

    /// Returns the name of the response in scenarios and documents.
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
    /// Returns a policy that restarts from checkpoints.
    pub const fn restart(every: u32, load: i128, write: i128) -> Self {
        Self { every, load, write, answer: Answer::Restart }
    }
}

/// The data-parallel replicas of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replicas {
    /// Number of replicas.
    pub count: u32,
    /// Step time with one or more replicas missing, or the full step time if the job is not elastic.
    pub step_with_fewer: i128,
    /// For each node, the replicas that had a GPU on it at the start.
    pub of_node: Vec<Vec<u32>>,
}

/// A training job.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedJob {
    /// Name of the job.
    pub name: String,
    /// Number of GPUs.
    pub gpus: u64,
    /// Failure-free step time in picoseconds.
    pub step: i128,
    /// Closed-form estimate of the step time in seconds.
    pub closed_form: f64,
    /// Model FLOPs utilisation (MFU) in a failure-free step.
    pub mfu: f64,
    /// Recovery policy.
    pub policy: Policy,
    /// Data-parallel replicas.
    pub replicas: Replicas,
}
