// SPDX-License-Identifier: Apache-2.0
//! Time that each fault cost each training job, by cause, compared with the run without the fault.

use super::JudgedRun;
use crate::outcome::JobLoss;
use crate::run::workload::{StepBreakdown, TrainLog};

/// Returns, by fault, the losses of the jobs that ended later or differently because of it. Empty
/// if there is no run without the fault or a job has steps left.
pub(super) fn of_faults(ran: &JudgedRun<'_>) -> Vec<Vec<JobLoss>> {
    let calm = (ran.start.events.len() == 1).then_some(ran.baseline);
    let of = |fault: usize| {
        let without = ran.without.get(fault).and_then(|one| one.log(ran.baseline));
        let Some(without) = without.or(calm) else { return Vec::new() };
        let jobs = ran.log.trained.iter().zip(&without.trained);
        jobs.filter_map(|(log, without)| loss(log, without)).collect()
    };
    (0..ran.start.events.len()).map(of).collect()
}

fn loss(log: &TrainLog, without: &TrainLog) -> Option<JobLoss> {
    let (end, calm) = (log.steps.last()?.end?, without.steps.last()?.end?);
    if log.steps.len() != without.steps.len() {
        return None;
    }
    let sum = |log: &TrainLog, part: fn(&StepBreakdown) -> u64| {
        log.steps.iter().map(|step| part(&step.why)).sum::<u64>().cast_signed()
    };
    let more = |part: fn(&StepBreakdown) -> u64| sum(log, part) - sum(without, part);
    let loss = JobLoss {
        job: log.name.clone(),
        gpus: log.step.gpus(),
        late: end.0.cast_signed() - calm.0.cast_signed(),
        outage: more(|why| why.fault.0),
        redone: more(|why| why.restart.0),
        contention: more(|why| why.contention.0),
        transition: more(|why| why.transition.0),
        exchange: more(|why| why.exposed.iter().map(|time| time.0).sum()),
        compute: more(|why| why.compute.0),
        generation: more(|why| why.generation.0),
    };
    (!loss.is_nothing()).then_some(loss)
}
