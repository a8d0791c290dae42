// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_fabric::plan::Plan;
use lightloom_training::calibration::ZeroStage;
use lightloom_units::{Picoseconds, Text};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ScenarioFile, codes};
use crate::scenario::{Checkpoints, MemoryCopies, On, Restart, RunStart, Scenario, TrainStep};

/// Response of a job to a lost node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RestartFile {
    /// The node's groups restart the step together with all groups that exchange more than
    /// gradients with them. Other replicas continue.
    #[default]
    Barrier,
    /// The whole job restarts from its last checkpoint.
    Checkpoint(CheckpointFile),
    /// The whole job restarts from its last copy in the memory of other nodes. Only with `span`.
    InMemory(InMemoryFile),
    /// The node's groups move to a spare node, together with the replicas' state. Only with `span`.
    Migrate(MigrateFile),
    /// The job continues without the node's replicas until they have a node again. Only with
    /// `span`.
    Elastic(ElasticFile),
}

/// Checkpoints of a job. The first one exists at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
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
pub struct InMemoryFile {
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
    pub checkpoint: CheckpointFile,
}

/// Migration to a spare node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateFile {
    /// Duration of the migration after the ring is ready.
    pub takes: Text<Picoseconds>,
    /// Fallback if all replicas lose a node simultaneously.
    pub checkpoint: CheckpointFile,
}

/// Continuing with fewer replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticFile {
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

pub(super) fn of_span(at: usize, file: RestartFile) -> Option<(String, &'static str)> {
    let key = |name: &str| format!("/train/{at}/restart/{name}");
    let help = match file {
        RestartFile::Barrier => return None,
        RestartFile::Checkpoint(checkpoint) => {
            let help = "add `span: 90d`, or leave it out";
            return checkpoint.write.map(|_| (key("checkpoint/write"), help));
        }
        RestartFile::InMemory(_) => {
            "add `span: 90d`; for a run of a few steps, use `checkpoint` with the same `every` and \
             `load`"
        }
        RestartFile::Migrate(_) | RestartFile::Elastic(_) => {
            "add `span: 90d`; in a run of a few steps, `barrier` has the same effect"
        }
    };
    Some((key(Restart::from(file).name()), help))
}

fn spare_nodes(plan: &Plan, nodes: u32) -> u32 {
    let mut used: Vec<_> =
        plan.ranks.iter().filter(|rank| rank.job.is_some()).map(|rank| rank.gpu.node).collect();
    used.sort_unstable();
    used.dedup();
    nodes.saturating_sub(used.len() as u32)
}

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
                "job `{}` has only one replica, so the state of a failed node is lost",
                train.job
            );
            refuse(message, "use `checkpoint` or `in_memory`");
            continue;
        }
        if step.owned.calibration.software.sharding == ZeroStage::Everything {
            let message = format!(
                "job `{}` shards its weights over its replicas, so the state of a failed node is lost",
                train.job
            );
            refuse(message, "use `checkpoint` or `in_memory`");
        }
        match train.restart {
            Restart::Migrate { .. } if spare_nodes(plan, fabric.hbd.nodes()) == 0 => {
                let message = format!("there is no spare node for job `{}`", train.job);
                refuse(
                    message,
                    "reduce the GPUs of the fabric's jobs, or use `checkpoint`, `in_memory` or \
                     `elastic`",
                );
            }
            Restart::Elastic { .. } if step.owned.mapping.expert > 1 => {
                let message = format!(
                    "job `{}` distributes its experts over {} replicas and cannot continue without one",
                    train.job, step.owned.mapping.expert
                );
                refuse(message, "use `checkpoint`, `in_memory` or `migrate`");
            }
            Restart::Elastic { least, .. } if least >= replicas => {
                let message = format!(
                    "job `{}` has {replicas} replicas, but its minimum is {least}",
                    train.job
                );
                refuse(message, "reduce `least`, or use another policy");
            }
            _ => {}
        }
    }
}
