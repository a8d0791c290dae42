// SPDX-License-Identifier: Apache-2.0

use lightloom_planner::goodput::{Answer, Policy};
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

/// Response of a job to a lost node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "RestartFile")]
pub enum Restart {
    /// The node's groups restart the step together with all groups that exchange more than
    /// gradients with them. Other replicas continue.
    #[default]
    Barrier,
    /// The whole job restarts from its last checkpoint.
    Checkpoint(Checkpoints),
    /// The whole job restarts from its last copy in the memory of other nodes. Only with `span`.
    InMemory(MemoryCopies),
    /// The node's groups move to a spare node, together with the replicas' state. Only with `span`.
    Migrate(Migration),
    /// The job continues without the node's replicas until they have a node again. Only with
    /// `span`.
    Elastic(Elasticity),
}

/// Checkpoints of a job. The first one exists at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CheckpointFile")]
pub struct Checkpoints {
    /// Checkpoint interval in steps. Without `span`, writing takes no time.
    #[schemars(range(min = 1, max = 1000))]
    pub every: u32,
    /// Time to read a checkpoint.
    pub load: Text<Picoseconds>,
    /// Time that a job spends writing a checkpoint. Only with `span`; default 0.
    #[serde(default)]
    pub write: Option<Text<Picoseconds>>,
}

/// Copies of a job's state in the memory of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "InMemoryFile")]
pub struct MemoryCopies {
    /// Interval between copies in steps.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub every: u32,
    /// Time to read the copies.
    pub load: Text<Picoseconds>,
    /// Time that the job spends making the copies; default 0.
    #[serde(default)]
    pub write: Option<Text<Picoseconds>>,
    /// Number of nodes with a copy of a node's state, including the node itself.
    #[serde(default = "two")]
    #[schemars(range(min = 2, max = 16))]
    pub copies: u32,
    /// Fallback if all copies are lost.
    pub checkpoint: Checkpoints,
}

/// Migration to a spare node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "MigrateFile")]
pub struct Migration {
    /// Duration of the migration after the ring is ready.
    pub takes: Text<Picoseconds>,
    /// Fallback if all replicas lose a node simultaneously.
    pub checkpoint: Checkpoints,
}

/// Continuing with fewer replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ElasticFile")]
pub struct Elasticity {
    /// Time from the detection of a node failure until the other replicas continue.
    pub reform: Text<Picoseconds>,
    /// Startup time of a replica that has its nodes again, while the others continue.
    pub start: Text<Picoseconds>,
    /// Time until all replicas continue together.
    pub rejoin: Text<Picoseconds>,
    /// Minimum number of replicas; with fewer, the job waits.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub least: u32,
    /// Checkpoint to restart from after waiting.
    pub checkpoint: Checkpoints,
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

impl Restart {
    /// Returns the checkpoints from which the whole job restarts. `None` if replicas continue.
    pub const fn rolls_back_to(self) -> Option<Checkpoints> {
        match self {
            Self::Barrier | Self::Migrate(_) | Self::Elastic(_) => None,
            Self::Checkpoint(checkpoint) => Some(checkpoint),
            Self::InMemory(MemoryCopies { every, load, write, .. }) => {
                Some(Checkpoints { every, load, write })
            }
        }
    }

    /// Returns the name used in scenario files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Checkpoint(_) => "checkpoint",
            Self::InMemory(_) => "in_memory",
            Self::Migrate(_) => "migrate",
            Self::Elastic(_) => "elastic",
        }
    }
}

impl Checkpoints {
    fn writing(self) -> Picoseconds {
        self.write.map_or(Picoseconds::ZERO, |time| time.0)
    }
}

impl From<Restart> for Policy {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::Barrier => Self::restart(1, 0, 0),
            Restart::Checkpoint(checkpoint) => policy(checkpoint, Answer::Restart),
            Restart::InMemory(MemoryCopies { every, load, write, copies, checkpoint }) => {
                let own = policy(Checkpoints { every, load, write }, Answer::Restart);
                let Policy { every, load, write, .. } = own;
                policy(checkpoint, Answer::InMemory { every, load, write, copies })
            }
            Restart::Migrate(Migration { takes, checkpoint }) => {
                policy(checkpoint, Answer::Migrate { takes: takes.0.0.into() })
            }
            Restart::Elastic(Elasticity { reform, start, rejoin, least, checkpoint }) => {
                let [reform, start, rejoin] = [reform, start, rejoin].map(|time| time.0.0.into());
                policy(checkpoint, Answer::Elastic { reform, start, rejoin, least })
            }
        }
    }
}

fn policy(checkpoint: Checkpoints, answer: Answer) -> Policy {
    let (load, write) = (checkpoint.load.0.0.into(), checkpoint.writing().0.into());
    Policy { every: checkpoint.every.max(1), load, write, answer }
}
