// SPDX-License-Identifier: Apache-2.0
//! Responses of jobs to a lost node in scenario files, with checks that the fabric supports them.

use lightloom_fabric::document::Check;
use lightloom_fabric::plan::Plan;
use lightloom_training::calibration::ZeroStage;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ScenarioFile, codes};
use crate::scenario::{Checkpoints, MemoryCopies, On, Restart, RunStart, Scenario, TrainStep};

/// The response of a job to a lost node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RestartFile {
    /// Its groups restart the step, with the groups that exchange more than gradients with them.
    /// Other replicas continue.
    #[default]
    Barrier,
    /// The whole job restarts from its last checkpoint.
    Checkpoint(CheckpointFile),
    /// The whole job restarts from its last copy in the memory of other nodes. Only with `span`.
    InMemory(InMemoryFile),
    /// The groups of the node move to a spare node, together with the replicas' state. Only with
    /// `span`.
    Migrate(MigrateFile),
    /// The job continues without the replicas of the node until they have a node again. Only with
    /// `span`.
    Elastic(ElasticFile),
}

/// Checkpoints of a job. One exists at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// Number of steps between checkpoints. Without `span`, writing takes no time.
    #[schemars(range(min = 1, max = 1000))]
    pub every: u32,
    /// Time to read a checkpoint.
    pub load: Text<Picoseconds>,
    /// Time that the job loses to writing a checkpoint. Only with `span`; default 0.
    #[serde(default)]
    pub write: Option<Text<Picoseconds>>,
}

/// Copies of a job's state in the memory of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InMemoryFile {
    /// Number of steps between copies.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub every: u32,
    /// Time to read the copies.
    pub load: Text<Picoseconds>,
    /// Time that the job loses to making the copies; default 0.
    #[serde(default)]
    pub write: Option<Text<Picoseconds>>,
    /// Number of nodes that hold the state of a node, including the node itself.
    #[serde(default = "two")]
    #[schemars(range(min = 2, max = 16))]
    pub copies: u32,
    /// The checkpoint to restart from if that many nodes fail simultaneously.
    pub checkpoint: CheckpointFile,
}

/// Migration to a spare node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateFile {
    /// Time of the migration after the ring is ready.
    pub takes: Text<Picoseconds>,
    /// The checkpoint to restart from if one node per replica fails simultaneously.
    pub checkpoint: CheckpointFile,
}

/// Continuing with fewer replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticFile {
    /// Time until the other replicas continue without a replica, after the node failure is
    /// detected.
    pub reform: Text<Picoseconds>,
    /// Time until a replica that has its nodes is ready, while the others continue.
    pub start: Text<Picoseconds>,
    /// Time until all replicas continue together.
    pub rejoin: Text<Picoseconds>,
    /// The least number of replicas; with fewer the job waits.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub least: u32,
    /// The checkpoint to restart from after waiting.
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

/// Returns the location of, and an alternative to, a setting that needs a span. `None` if there is no such setting.
pub(super) fn of_span(at: usize, file: RestartFile) -> Option<(String, &'static str)> {
    let key = |name: &str| format!("/train/{at}/restart/{name}");
    let help = match file {
        RestartFile::Barrier => return None,
        RestartFile::Checkpoint(checkpoint) => {
            let help = "write `span: 90d`, or leave it out";
            return checkpoint.write.map(|_| (key("checkpoint/write"), help));
        }
        RestartFile::InMemory(_) => {
            "write `span: 90d`; a run of a few steps takes `checkpoint` with the same `every` and \
             `load`"
        }
        RestartFile::Migrate(_) | RestartFile::Elastic(_) => {
            "write `span: 90d`; in a run of a few steps, `barrier` has the same effect"
        }
    };
    Some((key(Restart::from(file).name()), help))
}

/// Counts the nodes without a job.
fn spare_nodes(plan: &Plan, nodes: u32) -> u32 {
    let mut used: Vec<_> =
        plan.ranks.iter().filter(|rank| rank.job.is_some()).map(|rank| rank.gpu.node).collect();
    used.sort_unstable();
    used.dedup();
    nodes.saturating_sub(used.len() as u32)
}

/// Rejects policies that the fabric or the job does not support.
pub(super) fn require(
    raw: &ScenarioFile,
    scenario: &Scenario,
    start: &RunStart,
    check: &mut Check<'_>,
) {
    let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, start.plan.as_deref()) else {
        return;
    };
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
                    "give the jobs of the fabric fewer GPUs, or use `checkpoint`, `in_memory` or \
                     `elastic`",
                );
            }
            Restart::Elastic { .. } if step.owned.mapping.expert > 1 => {
                let message = format!(
                    "job `{}` shares its experts over {} replicas: it cannot continue without one",
                    train.job, step.owned.mapping.expert
                );
                refuse(message, "`checkpoint`, `in_memory` and `migrate` can be billed for it");
            }
            Restart::Elastic { least, .. } if least >= replicas => {
                let message = format!(
                    "job `{}` has {replicas} replicas, but should wait with fewer than {least}",
                    train.job
                );
                refuse(message, "write a smaller `least`, or another policy");
            }
            _ => {}
        }
    }
}
