// SPDX-License-Identifier: Apache-2.0
//! Measured and modelled duration of each phase, and the effects of faults on it.

use lightloom_planner::rfabric::fluid;
use lightloom_units::Picoseconds;

use super::JudgedRun;
use super::account::Levels;
use super::shares::optical_ports;
use crate::outcome::{PhaseImpact, PhaseResult, PortTime, StepResult, Times};
use crate::scenario::CircuitPlan;

pub(super) fn results(ran: &JudgedRun<'_>) -> Vec<PhaseResult> {
    let Some(CircuitPlan { plan, phases, .. }) = &ran.start.circuits else { return Vec::new() };
    let count = plan.phases.len();
    let circuits = ran.start.substrate.circuits.as_ref();
    let fluid = circuits.map(|circuits| fluid::plan_seconds(circuits.network(), phases, plan));
    let results = ran.log.phases.iter().enumerate().map(|(at, phase)| {
        let planned = &plan.phases[at % count];
        let modelled = fluid.as_ref().map(|seconds| seconds[at % count]);
        let modelled = modelled.filter(|seconds| seconds.is_finite());
        let modelled = modelled.map(Picoseconds::from_secs_f64);
        let there = ran.baseline.phases.get(at);
        PhaseResult {
            step: (at / count) as u32,
            name: planned.name.clone(),
            demand_bytes: planned.demand_bytes,
            circuits_up: phase.circuits_up,
            circuits_planned: planned.circuits.len(),
            start: ran.moment(phase.start),
            times: Times {
                packets: phase.time.map(|time| ran.longer(time)),
                packets_without_faults: there
                    .and_then(|phase| phase.time)
                    .map(|time| ran.longer(time)),
                fluid: modelled.or(phase.fullest.map(|time| ran.longer(time))),
                closed_form: planned.duration_ps,
            },
            transition: ran.longer(phase.transition),
            resent_bytes: phase.resent * ran.scale,
            packets_lost: phase.packets_lost,
            held_bytes: phase.held * ran.scale,
            change_missed: phase.change_missed,
        }
    });
    results.collect()
}

pub(super) fn steps(ran: &JudgedRun<'_>, phases: &[PhaseResult]) -> Vec<StepResult> {
    let circuits = ran.start.circuits.as_ref().zip(ran.scenario.phases);
    let Some((CircuitPlan { plan, .. }, run)) = circuits else { return Vec::new() };
    let steps = (0..run.steps).map(|step| {
        let mine: Vec<&PhaseResult> = phases.iter().filter(|phase| phase.step == step).collect();
        let is_whole = mine.len() == plan.phases.len();
        StepResult {
            step,
            times: Times {
                packets: sum(&mine, |times| times.packets).filter(|_| is_whole),
                packets_without_faults: sum(&mine, |times| times.packets_without_faults)
                    .filter(|_| is_whole),
                fluid: sum(&mine, |times| times.fluid).filter(|_| is_whole),
                closed_form: plan.phases.iter().map(|phase| phase.duration_ps).sum(),
            },
        }
    });
    steps.collect()
}

fn sum(phases: &[&PhaseResult], pick: fn(&Times) -> Option<Picoseconds>) -> Option<Picoseconds> {
    phases.iter().map(|phase| pick(&phase.times)).sum()
}

pub(super) fn port_time(ran: &JudgedRun<'_>) -> Option<PortTime> {
    let all = (optical_ports(ran)? * ran.log.ended.0 as f64).max(1.0);
    Some(PortTime {
        switching_share: ran.log.switching as f64 / all,
        fault_share: ran.log.broken as f64 / all,
    })
}

pub(super) fn impacts(ran: &JudgedRun<'_>) -> Option<Vec<PhaseImpact>> {
    let has_phases = ran.scenario.phases.is_some() || ran.start.substrate.circuits.is_some();
    let planned = &ran.start.circuits.as_ref().filter(|_| has_phases)?.plan.phases;
    let impacts = ran.log.faults.iter().map(|log| PhaseImpact {
        circuits_lost: log.circuits.len(),
        changes_missed: log.changes_missed,
        leaves_affected: log.leaves.iter().copied().collect(),
        packets_lost: 0,
        phases_slowed: Vec::new(),
        delay: Some(Picoseconds::ZERO),
    });
    let mut impacts: Vec<PhaseImpact> = impacts.collect();
    let mut late = vec![0; impacts.len()];
    let mut levels: Vec<Levels<1>> = planned.iter().map(|_| Levels::default()).collect();
    let phases = &ran.log.phases;
    for (at, (phase, calm)) in phases.iter().zip(&ran.baseline.phases).enumerate() {
        let kind = at % planned.len();
        let name = format!("{}/{}", at / planned.len(), planned[kind].name);
        let Some(without) = calm.time else { break };
        let end = phases.get(at + 1).map_or(ran.log.ended, |next| next.start);
        let culprit = ran.culprit(phase.start, end, &|_| true, &|fault| {
            let lost = &ran.log.faults[fault].circuits;
            planned[kind].circuits.iter().any(|circuit| lost.contains(circuit))
        });
        if let Some(fault) = culprit {
            impacts[fault].packets_lost += phase.packets_lost.saturating_sub(calm.packets_lost);
        }
        let Some(time) = phase.time else {
            if let Some(fault) = culprit {
                impacts[fault].phases_slowed.push(name);
                impacts[fault].delay = None;
            }
            break;
        };
        let more = time.0.cast_signed() - without.0.cast_signed();
        for (fault, [more]) in levels[kind].next(ran, phase.start, culprit, [more]) {
            late[fault] += more;
            if *more > without.0.cast_signed() / 1000 {
                impacts[fault].phases_slowed.push(name.clone());
            }
        }
    }
    for (impact, late) in impacts.iter_mut().zip(late) {
        let delay = ran.longer(Picoseconds(late.max(0).cast_unsigned()));
        impact.delay = impact.delay.and(Some(delay));
    }
    Some(impacts)
}
