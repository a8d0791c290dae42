// SPDX-License-Identifier: Apache-2.0
//! Reuses losses from an earlier result with the same jobs. On other fabrics or with more GPUs, the
//! losses are scaled by the closed-form step times, and the result reports them as approximate.

use serde::Serialize;

use super::{CaseRun, Cause, JobLossSample, LossSample, TrainedJob};
use crate::scenario::{KnownLosses, KnownRun, LossPart, RunLoss};

/// Origin of reused losses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossesFrom {
    /// File name of the earlier result.
    pub file: String,
    /// Control plane of the earlier runs.
    pub control: String,
    /// GPUs per job in the earlier result, in this scenario's job order.
    pub gpus: Vec<u64>,
    /// Scale factor for each job's steps.
    pub stretched: Vec<f64>,
    /// Whether the losses come from a different fabric.
    pub stand_in: bool,
}

pub(super) fn written(job: &TrainedJob, loss: &JobLossSample) -> RunLoss {
    let once = loss.once.iter().map(|(cause, time)| LossPart {
        cause: cause.key().to_owned(),
        stage: cause.stage(),
        time_ps: saturated(*time),
    });
    RunLoss {
        job: job.name.clone(),
        gpus: job.gpus,
        once: once.collect(),
        slower_ps: saturated(loss.slower),
    }
}

/// JSON results store picoseconds in 64 bits, which is enough for 106 days.
fn saturated(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

fn read(loss: &RunLoss, stretch: f64) -> JobLossSample {
    let once = loss.once.iter().filter_map(|part| {
        let cause = Cause::of_run(&part.cause, part.stage)?;
        let belongs_to_steps = matches!(cause, Cause::DoneAgain | Cause::Disturbed);
        let stretched = (part.time_ps as f64 * stretch) as i128;
        Some((cause, if belongs_to_steps { stretched } else { i128::from(part.time_ps) }))
    });
    JobLossSample { once: once.collect(), slower: (loss.slower_ps as f64 * stretch) as i128 }
}

pub(super) fn runs(known: &KnownLosses, jobs: &[TrainedJob], from: &LossesFrom) -> Vec<CaseRun> {
    let runs = known.runs.iter().map(|run| {
        let losses_of_jobs = jobs.iter().zip(&from.stretched).map(|(job, stretch)| {
            let loss = run.losses.iter().find(|loss| loss.job == job.name)?;
            Some(read(loss, *stretch))
        });
        let place = if from.stand_in { usize::MAX } else { run.place };
        CaseRun {
            run: KnownRun { place, ..run.clone() },
            sample: LossSample { jobs: losses_of_jobs.collect() },
        }
    });
    runs.collect()
}
