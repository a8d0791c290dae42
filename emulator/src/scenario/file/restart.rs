// SPDX-License-Identifier: Apache-2.0
//! What jobs do that have lost a node, as a scenario file writes it; and which of that a fabric cannot do.

use lightloom_fabric::document::Check;
use lightloom_fabric::plan::Plan;
use lightloom_training::calibration::ZeroStage;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ScenarioFile, codes};
use crate::scenario::{Checkpoints, MemoryCopies, On, Restart, RunStart, Scenario, TrainStep};

/// What a job does that has lost a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RestartFile {
    /// Its groups begin again at the beginning of the step, with the groups that exchange more than gradients with them;
    /// other replicas go on.
    #[default]
    Barrier,
    /// The whole job begins again at its last checkpoint.
    Checkpoint(CheckpointFile),
    /// The whole job begins again at its last copy in the memory of other nodes. Beside `span` alone.
    InMemory(InMemoryFile),
    /// The groups of the node move to a spare node with the state of their replicas. Beside `span` alone.
    Migrate(MigrateFile),
    /// The job goes on without the replicas of the node until they have a node again. Beside `span` alone.
    Elastic(ElasticFile),
}

/// Checkpoints of a job; one is there at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// One is taken after so many steps. Writing it takes no time of a step.
    #[schemars(range(min = 1, max = 1000))]
    pub every: u32,
    /// What reading it takes.
    pub load: Text<Picoseconds>,
    /// What writing one takes of the job's time; beside `span` alone, 0 if not written.
    #[serde(default)]
    pub write: Option<Text<Picoseconds>>,
}

/// Copies of a job's state in the memory of its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InMemoryFile {
    /// They are taken after so many steps.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub every: u32,
    /// What reading them takes.
    pub load: Text<Picoseconds>,
    /// What taking them takes of the job's time; 0 if not written.
    #[serde(default)]
    pub write: Option<Text<Picoseconds>>,
    /// Nodes that have the state of one, itself among them.
    #[serde(default = "two")]
    #[schemars(range(min = 2, max = 16))]
    pub copies: u32,
    /// What the job begins again from when as many nodes are dead at once.
    pub checkpoint: CheckpointFile,
}

/// Moving to a spare node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateFile {
    /// What moving takes, once the ring is there.
    pub takes: Text<Picoseconds>,
    /// What the job begins again from when as many nodes are dead at once as it has replicas.
    pub checkpoint: CheckpointFile,
}

/// Going on with fewer replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticFile {
    /// What it takes the others to go on without a replica, once its node is known to be dead.
    pub reform: Text<Picoseconds>,
    /// What it takes a replica that has its nodes to be ready, while the others go on.
    pub start: Text<Picoseconds>,
    /// What it takes all to go on together.
    pub rejoin: Text<Picoseconds>,
    /// With fewer replicas the job waits.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub least: u32,
    /// What the job begins again from then.
    pub checkpoint: CheckpointFile,
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

fn time(text: Option<Text<Picoseconds>>) -> Picoseconds {
    text.map_or(Picoseconds::ZERO, |time| time.0)
}

impl From<CheckpointFile> for Checkpoints {
    fn from(file: CheckpointFile) -> Self {
        Self { every: file.every, load: file.load.0, write: time(file.write) }
    }
}

impl From<RestartFile> for Restart {
    fn from(file: RestartFile) -> Self {
        match file {
            RestartFile::Barrier => Self::Barrier,
            RestartFile::Checkpoint(checkpoint) => Self::Checkpoint(checkpoint.into()),
            RestartFile::InMemory(InMemoryFile { every, load, write, copies, checkpoint }) => {
                let memory = MemoryCopies { every, load: load.0, write: time(write), copies };
                Self::InMemory { memory, checkpoint: checkpoint.into() }
            }
            RestartFile::Migrate(MigrateFile { takes, checkpoint }) => {
                Self::Migrate { takes: takes.0, checkpoint: checkpoint.into() }
            }
            RestartFile::Elastic(ElasticFile { reform, start, rejoin, least, checkpoint }) => {
                Self::Elastic {
                    reform: reform.0,
                    start: start.0,
                    rejoin: rejoin.0,
                    least,
                    checkpoint: checkpoint.into(),
                }
            }
        }
    }
}

/// What is counted over a span alone, where there is none: its place, and what a run of some steps has instead.
pub(super) fn of_span(at: usize, file: RestartFile) -> Option<(String, &'static str)> {
    let key = |name: &str| format!("/train/{at}/restart/{name}");
    let help = match file {
        RestartFile::Barrier => return None,
        RestartFile::Checkpoint(checkpoint) => {
            let help = "write `span: 90d`, or leave it out";
            return checkpoint.write.map(|_| (key("checkpoint/write"), help));
        }
        RestartFile::InMemory(_) => {
            "write `span: 90d`; a run of some steps takes `checkpoint` with the same `every` and `load`"
        }
        RestartFile::Migrate(_) | RestartFile::Elastic(_) => {
            "write `span: 90d`; in a run of some steps `barrier` keeps what this keeps"
        }
    };
    Some((key(Restart::from(file).name()), help))
}

/// Nodes of which no GPU has a job.
fn spare_nodes(plan: &Plan, nodes: u32) -> u32 {
    let mut used: Vec<_> =
        plan.ranks.iter().filter(|rank| rank.job.is_some()).map(|rank| rank.gpu.node).collect();
    used.sort_unstable();
    used.dedup();
    nodes.saturating_sub(used.len() as u32)
}

/// Refuses policies that the fabric, or the job, cannot do.
pub(super) fn require(
    raw: &ScenarioFile,
    scenario: &Scenario,
    start: &RunStart,
    check: &mut Check<'_>,
) {
    let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, &start.plan) else { return };
    for (at, file) in raw.train.iter().enumerate() {
        let Some(train) = scenario.train.iter().find(|train| train.job == file.job) else {
            continue;
        };
        let Ok(step) = TrainStep::of(train, fabric, plan) else { continue };
        let name = train.restart.name();
        let path = format!("/train/{at}/restart/{name}");
        let mut refuse = |message: String, help: &str| {
            check.error(codes::NO_SUCH_THING, &path, message).help(help).depends_on("/on");
        };
        let replicas = step.owned.mapping.data;
        let keeps_state =
            matches!(train.restart, Restart::Migrate { .. } | Restart::Elastic { .. });
        if !keeps_state {
            continue;
        }
        if replicas < 2 {
            let message = format!(
                "job `{}` has one replica: no other has the state of a dead node",
                train.job
            );
            refuse(message, "`checkpoint` and `in_memory` can be billed for it");
            continue;
        }
        if step.owned.calibration.software.sharding == ZeroStage::Everything {
            let message = format!(
                "job `{}` shards its weights over its replicas: no other has the state of a dead node",
                train.job
            );
            refuse(message, "`checkpoint` and `in_memory` can be billed for it");
        }
        match train.restart {
            Restart::Migrate { .. } if spare_nodes(plan, fabric.hbd.nodes()) == 0 => {
                let message = format!("no node is to spare for job `{}` to move to", train.job);
                refuse(
                    message,
                    "give jobs of the fabric fewer GPUs; as it is, `checkpoint`, `in_memory` and `elastic` can be billed",
                );
            }
            Restart::Elastic { .. } if step.owned.mapping.expert > 1 => {
                let message = format!(
                    "job `{}` shares its experts over {} replicas: it cannot go on without one",
                    train.job, step.owned.mapping.expert
                );
                refuse(message, "`checkpoint`, `in_memory` and `migrate` can be billed for it");
            }
            Restart::Elastic { least, .. } if least >= replicas => {
                let message = format!(
                    "job `{}` has {replicas} replicas, and is to wait with fewer than {least}",
                    train.job
                );
                refuse(message, "write a smaller `least`, or another policy");
            }
            _ => {}
        }
    }
}
