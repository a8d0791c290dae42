// SPDX-License-Identifier: Apache-2.0

use lightloom_training::step::StepTime;
use lightloom_units::Picoseconds;

use super::JudgedRun;
use crate::outcome::{ClosedForm, Exposed, JobStep};
use crate::run::workload::TrainLog;

pub(super) fn results(ran: &JudgedRun<'_>) -> Vec<JobStep> {
    let mut results = Vec::new();
    for (log, calm) in ran.log.trained.iter().zip(&ran.baseline.trained) {
        let closed = parts(&log.closed_form, log.step.pool_seconds().unwrap_or_default());
        results.extend((0..log.steps.len()).map(|at| step(log, calm, closed, at)));
    }
    results
}

fn step(log: &TrainLog, calm: &TrainLog, closed_form_parts: ClosedForm, at: usize) -> JobStep {
    let step = &log.steps[at];
    let took = step.end.map(|end| end.since(step.start));
    let there = calm.steps.get(at);
    let same = there.filter(|there| there.end.map(|end| end.since(there.start)) == took);
    JobStep {
        job: log.name.clone(),
        gpus: log.step.gpus(),
        index: at as u32,
        start: step.start,
        end: step.end,
        end_without_faults: there.and_then(|step| step.end),
        // Rounded to nine digits to survive the JSON round trip.
        mfu: took.map(|took| (log.step.mfu(took) * 1e9).round() / 1e9),
        closed_form: Picoseconds::from_secs_f64(log.closed_form.step_seconds),
        closed_form_parts,
        why: step.end.map(|_| same.unwrap_or(step).why.parts),
        restarts: step.restarts,
    }
}

fn parts(step: &StepTime, [generation, weights]: [f64; 2]) -> ClosedForm {
    let idle = step.bubble_seconds + step.jitter_seconds;
    ClosedForm {
        compute: Picoseconds::from_secs_f64(step.compute_seconds + idle + step.optimizer_seconds),
        generation: Picoseconds::from_secs_f64(generation),
        exposed: Exposed {
            tp: Picoseconds::from_secs_f64(step.tensor_seconds),
            pp: Picoseconds::from_secs_f64(step.transfer_seconds),
            dp: Picoseconds::from_secs_f64(step.data_seconds),
            cp: Picoseconds::from_secs_f64(step.context_seconds),
            ep: Picoseconds::from_secs_f64(step.expert_seconds),
            samples: Picoseconds::ZERO,
            weights: Picoseconds::from_secs_f64(weights),
        },
    }
}
