// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_fabric::plan::Plan;
use lightloom_training::calibration::ZeroStage;

use super::{ScenarioFile, codes};
use crate::scenario::{Elasticity, On, Restart, RunStart, Scenario, TrainStep};

pub(super) fn of_span(at: usize, restart: Restart) -> Option<(String, &'static str)> {
    let mut key = restart.name();
    let help = match restart {
        Restart::Barrier => return None,
        Restart::Checkpoint(checkpoint) => {
            checkpoint.write?;
            key = "checkpoint/write";
            "add `span: 90d`, or leave it out"
        }
        Restart::InMemory(_) => {
            "add `span: 90d`; for a run of a few steps, use `checkpoint` with the same `every` and \
             `load`"
        }
        Restart::Migrate(_) | Restart::Elastic(_) => {
            "add `span: 90d`; in a run of a few steps, `barrier` has the same effect"
        }
    };
    Some((format!("/train/{at}/restart/{key}"), help))
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
        let keeps_state = matches!(train.restart, Restart::Migrate(_) | Restart::Elastic(_));
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
            Restart::Migrate(_) if spare_nodes(plan, fabric.hbd.nodes()) == 0 => {
                let message = format!("there is no spare node for job `{}`", train.job);
                refuse(
                    message,
                    "reduce the GPUs of the fabric's jobs, or use `checkpoint`, `in_memory` or \
                     `elastic`",
                );
            }
            Restart::Elastic(_) if step.owned.mapping.expert > 1 => {
                let message = format!(
                    "job `{}` distributes its experts over {} replicas and cannot continue without one",
                    train.job, step.owned.mapping.expert
                );
                refuse(message, "use `checkpoint`, `in_memory` or `migrate`");
            }
            Restart::Elastic(Elasticity { least, .. }) if least >= replicas => {
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
