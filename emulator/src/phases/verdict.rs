//! From what happened to the result: times beside those of the models, and what felt which fault.

use std::collections::BTreeSet;

use lightloom_engine::{FlowRecord, VertexId};
use lightloom_planner::rfabric::fluid;
use lightloom_units::Picoseconds;
use lightloom_units::id::LeafId;

use super::outcome::{FaultResult, Outcome, PhaseResult, PortTime, StepResult, Times};
use super::story::Told;
use super::{Run, expectation};
use crate::scenario::head::{Head, Of};
use crate::scenario::{FlowRow, Flows};

/// The result of a run, given the same without faults and, where there are several, with each alone.
pub(super) fn outcome(run: &Run<'_>, told: &Told, calm: &Told, alone: &[Told]) -> Outcome {
    let phases = phase_results(run, told, calm);
    let faults = fault_results(run, told, calm, alone);
    let scenario = run.scenario;
    let (name, sha256) = (&scenario.name, &run.input.sha256);
    let of = Of { scenario: name, sha256, seed: scenario.seed, threads: run.threads };
    let flows: Vec<FlowRecord> = told.flows.iter().map(|flow| full_size(run, flow)).collect();
    let mut outcome = Outcome {
        head: Head::new(of, run.moment(told.ended), &told.packets),
        scale: run.scale,
        payload_bytes: scenario.transport.payload,
        in_flight: scenario.in_flight,
        steps: (0..scenario.steps).map(|step| step_result(step, &phases, run)).collect(),
        phases,
        ports: port_time(run, told),
        flows: Flows::new(&flows),
        faults,
        collectives: Vec::new(),
        expectations: Vec::new(),
        flow_records: flows.iter().map(|flow| FlowRow::new(flow, leaf)).collect(),
        links: told.links.clone(),
    };
    outcome.expectations = expectation::judge(&scenario.expectations, &outcome);
    outcome
}

/// A flow of the run in the fabric's bytes and time.
fn full_size(run: &Run<'_>, flow: &FlowRecord) -> FlowRecord {
    FlowRecord {
        size: flow.size * run.scale,
        delivered: flow.delivered * run.scale,
        start: run.moment(flow.start),
        end: flow.end.map(|end| run.moment(end)),
        ..*flow
    }
}

fn phase_results(run: &Run<'_>, told: &Told, calm: &Told) -> Vec<PhaseResult> {
    let count = run.plan.phases.len();
    let fluid = fluid::plan_seconds(run.fabric(), &run.input.phases, run.plan);
    told.phases
        .iter()
        .enumerate()
        .map(|(at, phase)| {
            let planned = &run.plan.phases[at % count];
            let seconds = fluid[at % count];
            PhaseResult {
                step: (at / count) as u32,
                name: planned.name.clone(),
                demand_bytes: planned.demand_bytes,
                circuits_up: phase.circuits_up,
                circuits_planned: planned.circuits.len(),
                start: run.moment(phase.start),
                times: Times {
                    packets: phase.time.map(|time| run.longer(time)),
                    packets_without_faults: calm
                        .phases
                        .get(at)
                        .and_then(|phase| phase.time)
                        .map(|time| run.longer(time)),
                    fluid: seconds
                        .is_finite()
                        .then(|| Picoseconds((seconds * 1e12).round() as u64)),
                    closed_form: planned.duration_ps,
                },
                transition: run.longer(phase.transition),
                resent_bytes: phase.resent * run.scale,
                packets_lost: phase.packets_lost,
                held_bytes: phase.held * run.scale,
                change_missed: phase.change_missed,
            }
        })
        .collect()
}

fn step_result(step: u32, phases: &[PhaseResult], run: &Run<'_>) -> StepResult {
    let mine: Vec<&PhaseResult> = phases.iter().filter(|phase| phase.step == step).collect();
    let whole = mine.len() == run.plan.phases.len();
    let sum = |pick: fn(&Times) -> Option<Picoseconds>| {
        mine.iter().map(|phase| pick(&phase.times)).sum::<Option<Picoseconds>>().filter(|_| whole)
    };
    StepResult {
        step,
        times: Times {
            packets: sum(|times| times.packets),
            packets_without_faults: sum(|times| times.packets_without_faults),
            fluid: sum(|times| times.fluid),
            closed_form: run.plan.step_time_ps,
        },
    }
}

fn port_time(run: &Run<'_>, told: &Told) -> PortTime {
    let ports = u128::from(run.fabric().optical_ports()) * run.fabric().leaves() as u128;
    let all = (ports * u128::from(told.ended.0)).max(1) as f64;
    PortTime { switching_share: told.switching as f64 / all, fault_share: told.broken as f64 / all }
}

/// Hosts and leaves were made in turns, so the hosts of leaf i are vertex 2i.
fn leaf(vertex: VertexId) -> LeafId {
    LeafId::from_index(vertex.index() / 2)
}

fn fault_results(run: &Run<'_>, told: &Told, calm: &Told, alone: &[Told]) -> Vec<FaultResult> {
    run.scenario
        .faults
        .iter()
        .zip(&told.faults)
        .enumerate()
        .map(|(at, (fault, felt))| {
            let only = alone.get(at).unwrap_or(told);
            let leaves: BTreeSet<LeafId> = felt.leaves.clone();
            FaultResult {
                what: fault.kind,
                phase: fault.phase_name.clone(),
                step: fault.step,
                at: felt.at.map(|at| run.moment(at)),
                repaired: felt.repaired.map(|at| run.moment(at)),
                circuits_lost: felt.circuits.len(),
                changes_missed: felt.changes_missed,
                leaves_affected: leaves.into_iter().collect(),
                packets_lost: only.packets.lost.saturating_sub(calm.packets.lost),
                phases_slowed: slowed(run, only, calm),
                delay: delay(only, calm).map(|time| run.longer(time)),
            }
        })
        .collect()
}

fn slowed(run: &Run<'_>, only: &Told, calm: &Told) -> Vec<String> {
    let count = run.plan.phases.len();
    let longer = |(with, without): (Option<Picoseconds>, Option<Picoseconds>)| match (with, without)
    {
        (Some(with), Some(without)) => with.0 > without.0 + without.0 / 1000,
        (None, Some(_)) => true,
        _ => false,
    };
    (0..calm.phases.len())
        .filter(|at| {
            longer((only.phases.get(*at).and_then(|phase| phase.time), calm.phases[*at].time))
        })
        .map(|at| format!("{}/{}", at / count, run.plan.phases[at % count].name))
        .collect()
}

fn delay(only: &Told, calm: &Told) -> Option<Picoseconds> {
    let whole = |told: &Told| -> Option<Picoseconds> {
        (told.phases.len() == calm.phases.len())
            .then(|| told.phases.iter().map(|phase| phase.time).sum())
            .flatten()
    };
    Some(whole(only)?.saturating_sub(whole(calm)?))
}
