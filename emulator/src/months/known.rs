// SPDX-License-Identifier: Apache-2.0
//! Reuses losses from an earlier result with the same jobs. On other fabrics or with more GPUs, the
//! losses are scaled by the closed-form step times, and the result reports them as approximate.

use serde::Serialize;

use super::{Case, CaseRun, Cause, JobLossSample, LossSample, TrainedJob};
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
    let part = |(cause, time): &(Cause, i128)| LossPart {
        cause: cause.key().to_owned(),
        stage: cause.stage(),
        time_ps: saturated(*time),
    };
    RunLoss {
        job: job.name.clone(),
        gpus: job.gpus,
        once: loss.once.iter().map(part).collect(),
        slower_ps: saturated(loss.slower),
    }
}

/// JSON results store picoseconds in 64 bits, which is enough for 106 days.
fn saturated(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

fn read(loss: &RunLoss, stretch: f64) -> JobLossSample {
    let stretched = |time: i64| (time as f64 * stretch) as i128;
    let part = |part: &LossPart| {
        let cause = Cause::of_run(&part.cause, part.stage)?;
        let belongs_to_steps = matches!(cause, Cause::DoneAgain | Cause::Disturbed);
        let exact = i128::from(part.time_ps);
        Some((cause, if belongs_to_steps { stretched(part.time_ps) } else { exact }))
    };
    let once = loss.once.iter().filter_map(part).collect();
    JobLossSample { once, slower: stretched(loss.slower_ps) }
}

pub(super) fn runs(known: &KnownLosses, jobs: &[TrainedJob], from: &LossesFrom) -> Vec<CaseRun> {
    let run = |run: &KnownRun| {
        let of = |(job, stretch): (&TrainedJob, &f64)| {
            let loss = run.losses.iter().find(|loss| loss.job == job.name)?;
            Some(read(loss, *stretch))
        };
        let KnownRun { part, out, number, failed_at_start, fails, place, at_ps, losses } = run;
        CaseRun {
            case: Case { part: *part, out: *out, number: *number },
            failed_at_start: failed_at_start.clone(),
            fails: fails.clone(),
            place: if from.stand_in { usize::MAX } else { *place },
            at: *at_ps,
            losses: losses.clone(),
            sample: LossSample { jobs: jobs.iter().zip(&from.stretched).map(of).collect() },
        }
    };
    known.runs.iter().map(run).collect()
}
