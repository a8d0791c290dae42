// SPDX-License-Identifier: Apache-2.0
//! Time that each fault cost each training job, by cause. The losses add up to the job's delay.

use std::collections::BTreeMap;

use super::JudgedRun;
use super::account::Levels;
use crate::outcome::JobLoss;
use crate::run::WhyResult;
use crate::run::workload::{StepBreakdown, TrainLog, TrainStepLog};

pub(super) fn of_faults(ran: &JudgedRun<'_>) -> Vec<Vec<JobLoss>> {
    let mut losses = vec![Vec::new(); ran.start.events.len()];
    for (log, calm) in ran.log.trained.iter().zip(&ran.baseline.trained) {
        for (fault, loss) in of_job(ran, log, calm).unwrap_or_default() {
            if !loss.is_nothing() {
                losses[fault].push(loss);
            }
        }
    }
    losses
}

fn of_job(
    ran: &JudgedRun<'_>,
    log: &TrainLog,
    calm: &TrainLog,
) -> Option<BTreeMap<usize, JobLoss>> {
    let mut logs = [log, calm].into_iter();
    let is_open = logs.any(|log| log.steps.last().is_none_or(|step| step.end.is_none()));
    if is_open || log.steps.len() != calm.steps.len() {
        return None;
    }
    let mut losses: BTreeMap<usize, JobLoss> = BTreeMap::new();
    let none = JobLoss { job: log.name.clone(), gpus: log.step.gpus(), ..JobLoss::default() };
    let mut levels = Levels::default();
    for (step, calm) in log.steps.iter().zip(&calm.steps) {
        let end = step.end?;
        let more = took(step)? - took(calm)?;
        let why = if more == 0 { &calm.why } else { &step.why };
        let mut lost = 0;
        for (fault, [outage, redone]) in &why.by_fault {
            let loss = losses.entry(*fault).or_insert_with(|| none.clone());
            loss.outage += outage.0.cast_signed();
            loss.redone += redone.0.cast_signed();
            lost += (*outage + *redone).0.cast_signed();
        }
        let (here, there) = (undisturbed(why), undisturbed(&calm.why));
        let parts: [i64; 4] = std::array::from_fn(|part| here[part] - there[part]);
        let contention = more - lost - parts.iter().sum::<i64>();
        let [transition, exchange, compute, generation] = parts;
        let culprit = ran.culprit(step.start, end, &|_| true, &|fault| log.hit_by.contains(&fault));
        let all = [contention, transition, exchange, compute, generation];
        for (fault, level) in levels.next(ran, step.start, culprit, all) {
            let loss = losses.entry(fault).or_insert_with(|| none.clone());
            loss.contention += level[0];
            loss.transition += level[1];
            loss.exchange += level[2];
            loss.compute += level[3];
            loss.generation += level[4];
        }
    }
    losses.values_mut().for_each(JobLoss::settle);
    Some(losses)
}

fn took(step: &TrainStepLog) -> Option<i64> {
    Some(step.end?.since(step.start).0.cast_signed())
}

fn undisturbed(why: &StepBreakdown) -> [i64; 4] {
    let WhyResult { transition, compute, generation, exposed, .. } = &why.parts;
    [*transition, exposed.total(), *compute, *generation].map(|time| time.0.cast_signed())
}
