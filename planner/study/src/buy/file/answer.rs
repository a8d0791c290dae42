// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_planner::goodput::Answer;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{BuyFile, DesignRecord, NothingRecord, refuse};
use crate::architecture::FaultPolicy;

const fn two() -> u32 {
    2
}
const fn half() -> f64 {
    0.5
}

/// How a job responds to the loss of a node. Set exactly one variant, as for `restart` in a
/// scenario.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AnswerRecord {
    /// Restart from the last checkpoint.
    Restart(NothingRecord),
    /// Restart from an in-memory copy on other nodes.
    InMemory(InMemoryRecord),
    /// Move to a spare node with the state of its replicas. Requires `policy: backup`.
    Migrate(MigrateRecord),
    /// Continue without the node's group until another one is free. With `policy: reduced-tp`,
    /// continue without the node.
    Elastic(ElasticRecord),
}

/// In-memory copies.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InMemoryRecord {
    /// Minutes between copies.
    #[schemars(range(min = 0.001, max = 1000000))]
    pub every_minutes: f64,
    /// Seconds per copy.
    #[schemars(range(min = 0, max = 100000))]
    pub seconds: f64,
    /// Minutes from a fault to the next step.
    #[schemars(range(min = 0, max = 100000))]
    pub load_minutes: f64,
    /// Number of simultaneous node failures that destroys all copies, at least 1.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub copies: u32,
}

/// Move to a spare node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateRecord {
    /// Minutes to move.
    #[schemars(range(min = 0, max = 100000))]
    pub minutes: f64,
}

/// Continue with fewer GPUs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticRecord {
    /// Minutes until the job continues with fewer GPUs.
    #[schemars(range(min = 0, max = 100000))]
    pub reform_minutes: f64,
    /// Minutes that the job is paused to return to full size.
    #[schemars(range(min = 0, max = 100000))]
    pub rejoin_minutes: f64,
    /// Minimum share of the job's groups or nodes. With fewer, the job stops.
    #[serde(default = "half")]
    #[schemars(range(min = 0.000001, max = 1))]
    pub least: f64,
}

pub(super) fn answer(
    record: &DesignRecord,
    policy: FaultPolicy,
    file: &BuyFile,
    place: &str,
    check: &mut Check<'_>,
) -> (Answer, f64) {
    let usual = file.checkpoint.reform_minutes;
    match &record.answer {
        None => match policy.usual_answer() {
            "migrate" => {
                let takes = picoseconds(60.0 * file.checkpoint.migrate_minutes);
                (Answer::Migrate { takes }, half())
            }
            "elastic" => {
                let reform = picoseconds(60.0 * usual);
                (Answer::Elastic { reform, start: 0, rejoin: reform, least: 1 }, half())
            }
            _ => (Answer::Restart, half()),
        },
        Some(AnswerRecord::Restart(NothingRecord {})) => (Answer::Restart, half()),
        Some(AnswerRecord::Migrate(record)) => {
            if policy != FaultPolicy::Backup {
                let message = format!("the policy `{policy}` reserves no spare to move to");
                refuse(
                    check,
                    &format!("{place}/migrate"),
                    message,
                    "use `policy: backup` or `restart: {}`",
                );
            }
            (Answer::Migrate { takes: picoseconds(60.0 * record.minutes) }, half())
        }
        Some(AnswerRecord::InMemory(record)) => {
            let steps = record.every_minutes * 60.0 / file.workload.step.seconds;
            let write = picoseconds(record.seconds);
            let load = picoseconds(60.0 * record.load_minutes);
            let (every, copies) = (steps.round().clamp(1.0, 1e9) as u32, record.copies);
            (Answer::InMemory { every, load, write, copies }, half())
        }
        Some(AnswerRecord::Elastic(record)) => {
            let reform = picoseconds(60.0 * record.reform_minutes);
            let rejoin = picoseconds(60.0 * record.rejoin_minutes);
            (Answer::Elastic { reform, start: 0, rejoin, least: 1 }, record.least)
        }
    }
}

fn picoseconds(seconds: f64) -> i128 {
    (seconds * 1e12).round() as i128
}
