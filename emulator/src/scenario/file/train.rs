// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::document::Check;
use lightloom_training::cards;
use lightloom_units::{Picoseconds, SimTime};

use super::{ScenarioFile, codes};
use crate::scenario::{On, Restart, RunStart, Scenario, Train, TrainStep};

pub(super) fn lower(raw: &ScenarioFile, check: &mut Check<'_>) -> Vec<Train> {
    let mut trains = Vec::new();
    for (at, file) in raw.train.iter().enumerate() {
        let path = format!("/train/{at}");
        if raw.train[..at].iter().any(|before| before.job == file.job) {
            let message = format!("job `{}` is listed twice", file.job);
            check
                .error(codes::BAD_WORKLOAD, &format!("{path}/job"), message)
                .help("keep one of them, and increase its `steps`");
        }
        match cards::accelerator(&file.accelerator) {
            Ok(card) => trains.push(Train { card: Some(card), ..file.clone() }),
            Err(error) => {
                let path = format!("{path}/accelerator");
                check.error(codes::BAD_WORKLOAD, &path, error.to_string());
            }
        }
    }
    refuse_beside(raw, check);
    trains
}

pub(super) fn require(
    raw: &ScenarioFile,
    scenario: &Scenario,
    start: &RunStart,
    check: &mut Check<'_>,
) {
    for train in &scenario.train {
        let at = raw.train.iter().position(|file| file.job == train.job);
        let path = format!("/train/{}", at.unwrap_or(0));
        let (On::Fabric(fabric), Some((plan, _))) = (&scenario.on, start.plan.as_deref()) else {
            continue;
        };
        let step = match TrainStep::of(train, fabric, plan) {
            Ok(step) => step,
            Err(error) => {
                check.error(codes::BAD_WORKLOAD, &path, error.to_string()).depends_on("/on");
                continue;
            }
        };
        let file = at.map(|at| &raw.train[at]);
        if step.pool.is_none() && file.is_some_and(|file| file.rollout.is_some()) {
            let message = format!("job `{}` does not generate samples", train.job);
            check
                .error(codes::NO_EFFECT, &format!("{path}/rollout"), message)
                .help("leave `rollout` out, or use `step: {rl: …}` for the job in the fabric file")
                .depends_on("/on");
        }
        if step.pool.is_some() && scenario.span.is_some() {
            let message = format!(
                "job `{}` generates samples, which is not supported over months",
                train.job
            );
            check
                .error(codes::BAD_WORKLOAD, &path, message)
                .help("leave `span` out, or use a job with `step: {training: …}`")
                .depends_on("/span");
        }
        if step.pool.is_some() && train.restart != Restart::Barrier {
            let message = format!(
                "job `{}` generates samples, so its steps restart from the barrier rather than a checkpoint",
                train.job
            );
            check
                .error(codes::BAD_WORKLOAD, &format!("{path}/restart"), message)
                .help(
                    "write `restart: barrier`: replicas repeat their chunk, and the trainer \
                    repeats its micro-batches",
                )
                .depends_on("/on");
        }
        if step.pool.is_some() && file.is_some_and(|file| file.sequence.is_some()) {
            check
                .error(codes::NO_EFFECT, &format!("{path}/sequence"), "a micro-batch always contains one sample")
                .help(
                    "leave `sequence` out: `tokens_per_sample` in the fabric file determines the length",
                )
                .depends_on("/on");
        }
    }
}

fn refuse_beside(raw: &ScenarioFile, check: &mut Check<'_>) {
    if raw.train.is_empty() {
        return;
    }
    let beside = [
        ("/collectives", !raw.collectives.is_empty(), "the rings carry its training steps"),
        ("/phases", raw.phases.is_some(), "its jobs define the traffic"),
    ];
    for (key, _, why) in beside.iter().filter(|(_, there, _)| *there) {
        let message = format!("{} cannot be combined with `train`: {why}", &key[1..]);
        check.error(codes::NO_EFFECT, key, message).help("leave one of them out");
    }
}

/// Returns a hundred times the fault-free duration, including slack.
pub(super) fn time_limit(scenario: &Scenario, start: &RunStart) -> SimTime {
    let On::Fabric(fabric) = &scenario.on else { return scenario.time_limit };
    if scenario.ends_at_limit {
        return scenario.time_limit;
    }
    let Some((plan, _)) = start.plan.as_deref() else { return scenario.time_limit };
    let trains = scenario.train.iter().filter_map(|train| {
        let step = TrainStep::of(train, fabric, plan).ok()?;
        Some(step.closed_form().step_seconds * f64::from(train.steps))
    });
    let phases = scenario.phases.zip(start.circuits.as_ref()).map(|(run, circuits)| {
        let durations = circuits.plan.phases.iter().map(|phase| phase.duration_ps);
        let slack = circuits.phases.iter().map(|phase| phase.slack);
        let step: Picoseconds = durations.chain(slack).sum();
        step.as_secs_f64() * f64::from(run.steps)
    });
    let longest = trains.chain(phases).fold(0.0, f64::max);
    scenario.time_limit.max(SimTime((longest * 1e14) as u64))
}
