// SPDX-License-Identifier: Apache-2.0
//! Recomputes the months with one scenario change at a time.

use lightloom_units::{Milliseconds, Picoseconds, Text};
use serde::Serialize;

use super::{Answer, LossTable, Month, Prepared};
use crate::scenario::{ControlDelays, DaemonSetup, FailureSource, Scenario};

/// A single change to the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Failures are detected in half the time. Requires new runs.
    DetectionHalved,
    /// One additional spare node.
    OneSpareMore,
    /// One spare node fewer.
    OneSpareFewer,
    /// Checkpoints are written at the Young–Daly optimum: √(2 · write time · MTBF).
    CheckpointAtOptimum,
    /// Checkpoints are written twice as often.
    CheckpointTwiceAsOften,
    /// Checkpoints are read in half the time.
    LoadHalved,
    /// The time to read in-memory copies, replace nodes, and remove or re-add replicas is halved.
    AnswerHalved,
    /// Parts are repaired in half the time.
    RepairHalved,
}

/// A change and its effect. Each number of GPU-hours is the mean over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// The change.
    pub change: Change,
    /// Description with figures.
    pub words: String,
    /// GPU-hours lost after the change.
    pub lost_gpu_hours: f64,
    /// GPU-hours saved by the change.
    pub saves_gpu_hours: f64,
    /// Savings in US dollars. `None` if GPU-hours have no price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_usd: Option<f64>,
}

pub(super) fn faster(control: &ControlDelays) -> Option<(ControlDelays, String)> {
    match control.lightloomd {
        Some(daemon) => {
            let [poll_every, heartbeat] =
                [daemon.poll_every, daemon.heartbeat].map(|time| Picoseconds(time.0.0 / 2));
            let words =
                format!("a polling interval of {poll_every} and a heartbeat of {heartbeat}");
            let (poll_every, heartbeat) = (Text(poll_every), Text(heartbeat));
            let daemon = DaemonSetup { poll_every, heartbeat, ..daemon };
            Some((ControlDelays { lightloomd: Some(daemon), ..*control }, words))
        }
        None if control.detection_delay.0 < 2 => None,
        None => {
            let detection_delay = Picoseconds(control.detection_delay.0 / 2);
            let words = format!("a detection delay of {detection_delay}");
            Some((ControlDelays { detection_delay, ..*control }, words))
        }
    }
}

pub(super) fn of_table(
    prepared: &Prepared,
    table: &LossTable,
    months: &[Month],
) -> Vec<(Change, String, LossTable)> {
    let mut all = spares(table);
    all.extend(checkpoints(prepared, table, months));
    if table.jobs.iter().any(|job| job.policy.load > 0) {
        let mut halved = table.clone();
        halved.jobs.iter_mut().for_each(|job| job.policy.load /= 2);
        all.push((Change::LoadHalved, "checkpoint reads in half the time".to_owned(), halved));
    }
    let mut words: Vec<&str> = table
        .jobs
        .iter()
        .filter_map(|job| job.policy.answer.halved())
        .map(|(_, words)| words)
        .collect();
    words.sort_unstable();
    words.dedup();
    if !words.is_empty() {
        let mut halved = table.clone();
        for job in &mut halved.jobs {
            if let Some((answer, _)) = job.policy.answer.halved() {
                job.policy.answer = answer;
            }
        }
        let words = format!("{} in half the time", words.join(", "));
        all.push((Change::AnswerHalved, words, halved));
    }
    all
}

fn spares(table: &LossTable) -> Vec<(Change, String, LossTable)> {
    let spare = table.spare_nodes();
    // Runs without a spare node cannot show how a job continues with one.
    if spare == 0 && !table.jobs.iter().all(|job| job.policy.answer.is_elastic()) {
        return Vec::new();
    }
    let (mut more, mut fewer) = (table.clone(), table.clone());
    more.gpus += table.gpus_per_node;
    let [one_more, one_fewer] = [spare + 1, spare.saturating_sub(1)].map(|now: usize| {
        format!("{now} spare node{} instead of {spare}", if now == 1 { "" } else { "s" })
    });
    let mut all = vec![(Change::OneSpareMore, one_more, more)];
    if spare > 0 {
        fewer.gpus -= table.gpus_per_node;
        all.push((Change::OneSpareFewer, one_fewer, fewer));
    }
    all
}

fn checkpoints(
    prepared: &Prepared,
    table: &LossTable,
    months: &[Month],
) -> Option<(Change, String, LossTable)> {
    let hits: u64 = months.iter().map(|month| month.hits).sum();
    let time = prepared.span().length.get() as f64 * 1e9 * months.len() as f64;
    let between = time / hits.max(1) as f64;
    let (mut other, mut words) = (table.clone(), Vec::new());
    let mut writes = false;
    for job in other.jobs.iter_mut().filter(|job| job.policy.answer == Answer::Restart) {
        let policy = &mut job.policy;
        let every = match policy.write {
            0 => policy.every / 2,
            write => {
                writes = true;
                let period = (2.0 * write as f64 * between).sqrt();
                (period / job.step.max(1) as f64).round().clamp(1.0, 1e9) as u32
            }
        };
        if every > 0 && every != policy.every {
            policy.every = every;
            words.push(format!("a checkpoint of {} every {every} steps", job.name));
        }
    }
    let change = match writes {
        true => Change::CheckpointAtOptimum,
        false => Change::CheckpointTwiceAsOften,
    };
    (!words.is_empty()).then(|| (change, words.join(", "), other))
}

pub(super) fn repaired_sooner(scenario: &Scenario) -> Option<Scenario> {
    let mut other = scenario.clone();
    match &mut other.span.as_mut()?.failures {
        FailureSource::Trace { .. } => None,
        FailureSource::Rates(rates) => {
            for rate in rates {
                rate.repair = Milliseconds((rate.repair.get() / 2).max(1));
            }
            Some(other)
        }
    }
}
