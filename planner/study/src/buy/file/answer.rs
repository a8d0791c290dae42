// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_planner::goodput::Answer;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{BuyFile, DesignRecord, NothingRecord, check_range, refuse};
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
    pub every_minutes: f64,
    /// Seconds per copy.
    pub seconds: f64,
    /// Minutes from a fault to the next step.
    pub load_minutes: f64,
    /// Number of simultaneous node failures that destroys all copies, at least 1.
    #[serde(default = "two")]
    pub copies: u32,
}

/// Move to a spare node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MigrateRecord {
    /// Minutes to move.
    pub minutes: f64,
}

/// Continue with fewer GPUs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticRecord {
    /// Minutes until the job continues with fewer GPUs.
    pub reform_minutes: f64,
    /// Minutes that the job is paused to return to full size.
    pub rejoin_minutes: f64,
    /// Minimum share of the job's groups or nodes. With fewer, the job stops.
    #[serde(default = "half")]
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
                let takes =
                    picoseconds(place, "migrate/minutes", file.checkpoint.migrate_minutes, check);
                (Answer::Migrate { takes }, half())
            }
            "elastic" => {
                let reform = picoseconds(place, "elastic/reform_minutes", usual, check);
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
            (
                Answer::Migrate {
                    takes: picoseconds(place, "migrate/minutes", record.minutes, check),
                },
                half(),
            )
        }
        Some(AnswerRecord::InMemory(record)) => {
            let steps = record.every_minutes * 60.0 / file.workload.step.seconds;
            let write = picoseconds(place, "in_memory/seconds", record.seconds, check);
            let load = picoseconds(place, "in_memory/load_minutes", record.load_minutes, check);
            let every_path = format!("{place}/in_memory/every_minutes");
            check_range(&every_path, record.every_minutes, 1e-3, 1e6, check);
            if record.copies == 0 {
                refuse(
                    check,
                    &format!("{place}/in_memory/copies"),
                    "`copies` must be at least 1",
                    "use 1 or more, or replace `in_memory` with `restart: {}`",
                );
            }
            let (every, copies) = (steps.round().clamp(1.0, 1e9) as u32, record.copies);
            (Answer::InMemory { every, load, write, copies }, half())
        }
        Some(AnswerRecord::Elastic(record)) => {
            let reform = picoseconds(place, "elastic/reform_minutes", record.reform_minutes, check);
            let rejoin = picoseconds(place, "elastic/rejoin_minutes", record.rejoin_minutes, check);
            check_range(&format!("{place}/elastic/least"), record.least, 1e-6, 1.0, check);
            (Answer::Elastic { reform, start: 0, rejoin, least: 1 }, record.least)
        }
    }
}

fn picoseconds(place: &str, key: &str, time: f64, check: &mut Check<'_>) -> i128 {
    check_range(&format!("{place}/{key}"), time, 0.0, 1e5, check);
    let seconds = if key.ends_with("seconds") { time } else { time * 60.0 };
    (seconds * 1e12).round() as i128
}
