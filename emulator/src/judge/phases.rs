// SPDX-License-Identifier: Apache-2.0
//! Times of the phases of a step, the model's predictions for them, and the effects of faults on
//! them.

use lightloom_planner::rfabric::fluid;
use lightloom_units::Picoseconds;

use super::JudgedRun;
use super::shares::optical_ports;
use crate::outcome::{PhaseImpact, PhaseResult, PortTime, StepResult, Times};
use crate::run::RunLog;
use crate::scenario::CircuitPlan;

pub(super) fn results(ran: &JudgedRun<'_>) -> Vec<PhaseResult> {
    let Some(CircuitPlan { plan, phases, .. }) = &ran.start.circuits else { return Vec::new() };
    let count = plan.phases.len();
    let fluid = match &ran.start.substrate.circuits {
        Some(circuits) => fluid::plan_seconds(circuits.network(), phases, plan),
        None => vec![f64::INFINITY; count],
    };
    let longer = |time: Option<Picoseconds>| time.map(|time| ran.longer(time));
    let result = |(at, phase): (usize, &crate::run::log::PhaseLog)| {
        let planned = &plan.phases[at % count];
        let seconds = fluid[at % count];
        let there = ran.baseline.phases.get(at);
        PhaseResult {
            step: (at / count) as u32,
            name: planned.name.clone(),
            demand_bytes: planned.demand_bytes,
            circuits_up: phase.circuits_up,
            circuits_planned: planned.circuits.len(),
            start: ran.moment(phase.start),
            times: Times {
                packets: longer(phase.time),
                packets_without_faults: longer(there.and_then(|phase| phase.time)),
                fluid: seconds.is_finite().then(|| Picoseconds((seconds * 1e12).round() as u64)),
                closed_form: planned.duration_ps,
            },
            transition: ran.longer(phase.transition),
            resent_bytes: phase.resent * ran.scale,
            packets_lost: phase.packets_lost,
            held_bytes: phase.held * ran.scale,
            change_missed: phase.change_missed,
        }
    };
    ran.log.phases.iter().enumerate().map(result).collect()
}

/// Returns the steps: the sums over their phases.
pub(super) fn steps(ran: &JudgedRun<'_>, phases: &[PhaseResult]) -> Vec<StepResult> {
    let circuits = ran.start.circuits.as_ref().zip(ran.scenario.phases);
    let Some((CircuitPlan { plan, .. }, run)) = circuits else { return Vec::new() };
    let step = |step: u32| {
        let mine: Vec<&PhaseResult> = phases.iter().filter(|phase| phase.step == step).collect();
        let is_whole = mine.len() == plan.phases.len();
        let sum = |pick: fn(&Times) -> Option<Picoseconds>| {
            let times = mine.iter().map(|phase| pick(&phase.times));
            times.sum::<Option<Picoseconds>>().filter(|_| is_whole)
        };
        StepResult {
            step,
            times: Times {
                packets: sum(|times| times.packets),
                packets_without_faults: sum(|times| times.packets_without_faults),
                fluid: sum(|times| times.fluid),
                closed_form: plan.phases.iter().map(|phase| phase.duration_ps).sum(),
            },
        }
    };
    (0..run.steps).map(step).collect()
}

/// Returns how the time of the optical ports was spent.
pub(super) fn port_time(ran: &JudgedRun<'_>) -> Option<PortTime> {
    let all = (optical_ports(ran)? * ran.log.ended.0 as f64).max(1.0);
    Some(PortTime {
        switching_share: ran.log.switching as f64 / all,
        fault_share: ran.log.broken as f64 / all,
    })
}

/// Returns, by fault, its impact on phases, or `None` without phases.
pub(super) fn impacts(ran: &JudgedRun<'_>) -> Option<Vec<PhaseImpact>> {
    let names: Vec<&str> =
        ran.start.circuits.as_ref()?.plan.phases.iter().map(|phase| phase.name.as_str()).collect();
    let impact = |(at, log): (usize, &crate::run::FaultLog)| {
        let (with, without) = compared(ran, at);
        let lost = |log: &RunLog| lightloom_engine::steady::Stage::packets(log.engine()).lost;
        PhaseImpact {
            circuits_lost: log.circuits.len(),
            changes_missed: log.changes_missed,
            leaves_affected: log.leaves.iter().copied().collect(),
            packets_lost: lost(with).saturating_sub(lost(without)),
            phases_slowed: slowed(with, without, &names),
            delay: delay(with, without).map(|time| ran.longer(time)),
        }
    };
    Some(ran.log.faults.iter().enumerate().map(impact).collect())
}

/// Returns two runs that differ only in this fault: this one and the one without it. If those are
/// alike in every phase, returns the one with only this fault and the one without faults.
fn compared<'a>(ran: &JudgedRun<'a>, fault: usize) -> (&'a RunLog, &'a RunLog) {
    let without = ran.without.get(fault).and_then(|one| one.log(ran.baseline));
    match (without, ran.alone.get(fault)) {
        (Some(other), None) => (ran.log, other),
        (Some(other), Some(_)) if times(other) != times(ran.log) => (ran.log, other),
        (_, Some(alone)) => (alone, ran.baseline),
        (None, None) => (ran.log, ran.baseline),
    }
}

fn times(log: &RunLog) -> Vec<Option<Picoseconds>> {
    log.phases.iter().map(|phase| phase.time).collect()
}

/// Returns whether some phase took another time than without faults, and still does in every run
/// that leaves out one fault.
pub(super) fn is_overdetermined(log: &RunLog, baseline: &RunLog, without: &[&RunLog]) -> bool {
    let (here, calm) = (times(log), times(baseline));
    let others: Vec<Vec<Option<Picoseconds>>> = without.iter().map(|other| times(other)).collect();
    let is_enough = |at: &usize| {
        here.get(*at) != calm.get(*at) && others.iter().all(|other| other.get(*at) == here.get(*at))
    };
    (0..here.len().max(calm.len())).any(|at| is_enough(&at))
}

fn slowed(only: &RunLog, baseline: &RunLog, names: &[&str]) -> Vec<String> {
    let is_longer =
        |(with, without): (Option<Picoseconds>, Option<Picoseconds>)| match (with, without) {
            (Some(with), Some(without)) => with.0 > without.0 + without.0 / 1000,
            (None, Some(_)) => true,
            _ => false,
        };
    let time = |log: &RunLog, at: usize| log.phases.get(at).and_then(|phase| phase.time);
    (0..baseline.phases.len())
        .filter(|at| is_longer((time(only, *at), time(baseline, *at))))
        .map(|at| format!("{}/{}", at / names.len(), names[at % names.len()]))
        .collect()
}

fn delay(only: &RunLog, baseline: &RunLog) -> Option<Picoseconds> {
    let whole = |log: &RunLog| -> Option<Picoseconds> {
        let is_whole = log.phases.len() == baseline.phases.len();
        is_whole.then(|| log.phases.iter().map(|phase| phase.time).sum()).flatten()
    };
    Some(whole(only)?.saturating_sub(whole(baseline)?))
}
