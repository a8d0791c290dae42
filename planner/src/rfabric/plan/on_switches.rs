// SPDX-License-Identifier: Apache-2.0
//! Places the circuits of a schedule on switches, and computes the changes and times of its phases.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_units::Picoseconds;

use super::super::concurrent::{RateBound, RoutedRate};
use super::super::evaluate::Evaluator;
use super::super::one_hop;
use super::super::patch;
use super::super::phases::{Candidate, Phase, seconds_in_steps};
use super::super::realise::{realise, topology_of};
use super::super::switching::Schedule;
use super::super::transition;
use super::{CarriedStep, Options, PhasePlan, PlanError, SolverReport, TransitionPlan};

pub(super) struct Planner<'a> {
    pub(super) fabric: &'a ReconfigurableFatTree,
    pub(super) phases: &'a [Phase],
    pub(super) candidates: &'a [Candidate],
    pub(super) bounds: Vec<RateBound>,
    /// One per phase, or empty without a solver.
    pub(super) solved: Vec<SolverReport>,
    pub(super) options: Options,
}

impl Planner<'_> {
    pub(super) fn realise(
        &self,
        schedule: &Schedule,
        existing: &[CrossConnect],
    ) -> Result<CarriedStep, PlanError> {
        let circuits = self.place(schedule, existing);
        let rates = self.rates(&circuits);
        if let Some(stuck) = rates.iter().position(|rate| rate.lambda <= 0.0) {
            return Err(PlanError::unservable(self.fabric, &self.phases[stuck]));
        }
        let names = schedule.choice.iter().map(|choice| self.candidates[*choice].name.clone());
        Ok(self.assemble(&circuits, rates, names.collect()))
    }

    pub(super) fn rates(&self, circuits: &[Vec<CrossConnect>]) -> Vec<RoutedRate> {
        let phases = self.phases.iter().zip(&self.bounds).zip(circuits);
        let rates = phases.map(|((phase, bound), circuits)| {
            let topology = topology_of(self.fabric, circuits);
            bound.rate(&Evaluator::new(self.fabric, &phase.demand), &topology)
        });
        rates.collect()
    }

    pub(super) fn assemble(
        &self,
        circuits: &[Vec<CrossConnect>],
        rates: Vec<RoutedRate>,
        names: Vec<String>,
    ) -> CarriedStep {
        let mut transitions = Vec::new();
        let mut phases = Vec::new();
        for ((at, phase), RoutedRate { lambda, routes }) in
            self.phases.iter().enumerate().zip(rates)
        {
            let before = (at + self.phases.len() - 1) % self.phases.len();
            let evaluator = Evaluator::new(self.fabric, &phase.demand);
            let mut seconds = 1.0 / lambda;
            if circuits[before] != circuits[at] {
                let change = self.transition(before, at, circuits, &evaluator);
                seconds = self.seconds_of(&change, at, &circuits[before], &evaluator, lambda);
                transitions.push(change);
            }
            let solver = self.solved.get(at).cloned();
            let RateBound { lambda: proven, mut prices, .. } = self.bounds[at].clone();
            // A solver that considered all routes may find a better bound than the prices prove.
            let solved = solver.as_ref().filter(|solver| !solver.is_one_hop);
            let solved = solved.map(|solver| solver.lambda_upper_bound.max(lambda));
            let lambda_upper_bound = match solved.filter(|solved| *solved < proven) {
                Some(solved) => {
                    prices = None;
                    solved
                }
                None => proven.max(lambda),
            };
            phases.push(PhasePlan {
                routes,
                prices,
                name: phase.name.clone(),
                job: phase.job.clone(),
                order: u32::try_from(at).unwrap_or(u32::MAX),
                topology: names[at].clone(),
                demand_bytes: phase.demand.total(),
                ring_bytes: phase.demand.carried().rings,
                leaf_bytes: phase.demand.carried().leaves,
                circuits: circuits[at].clone(),
                lambda,
                lambda_upper_bound,
                gap: one_hop::gap(lambda, lambda_upper_bound),
                duration_ps: Picoseconds::from_secs_f64(seconds),
                interface_ps: None,
                solver,
            });
        }
        let step_time_ps: Picoseconds = phases.iter().map(|phase| phase.duration_ps).sum();
        let dark_port_time_share = self.dark_share(&transitions, step_time_ps);
        CarriedStep {
            phases,
            transitions,
            step_time_ps: Some(step_time_ps),
            static_step_time_ps: None,
            dark_port_time_share: Some(dark_port_time_share),
        }
    }

    fn place(&self, schedule: &Schedule, existing: &[CrossConnect]) -> Vec<Vec<CrossConnect>> {
        let mut placed = BTreeMap::<usize, Vec<CrossConnect>>::new();
        let mut by_phase: Vec<Vec<CrossConnect>> = Vec::new();
        for &choice in &schedule.choice {
            let circuits = match placed.get(&choice) {
                Some(circuits) => circuits.clone(),
                None => {
                    let before = by_phase.last().map_or(existing, Vec::as_slice);
                    let topology = &self.candidates[choice].topology;
                    let realisation = realise(self.fabric, topology, before);
                    // Odd or held ports can leave a circuit without a switch.
                    let circuits = match realisation.unplaced.is_empty() {
                        true => realisation.cross_connects,
                        false => self.patched(schedule, choice, realisation.cross_connects),
                    };
                    with_idle_ports_left_alone(circuits, before)
                }
            };
            placed.insert(choice, circuits.clone());
            by_phase.push(circuits);
        }
        by_phase
    }

    fn patched(
        &self,
        schedule: &Schedule,
        choice: usize,
        circuits: Vec<CrossConnect>,
    ) -> Vec<CrossConnect> {
        let own = self.phases.iter().zip(&schedule.choice).filter(|(_, own)| **own == choice);
        let evaluators: Vec<Evaluator> =
            own.map(|(phase, _)| Evaluator::new(self.fabric, &phase.demand)).collect();
        let live: Vec<(&Evaluator, f64)> = evaluators
            .iter()
            .map(|evaluator| (evaluator, evaluator.upper_bound(self.fabric)))
            .collect();
        patch::patch(self.fabric, &live, circuits, super::NEAR_ENOUGH, super::EXCHANGES)
    }

    fn transition(
        &self,
        before: usize,
        at: usize,
        circuits: &[Vec<CrossConnect>],
        live: &Evaluator,
    ) -> TransitionPlan {
        let (from, to) = (&circuits[before], &circuits[at]);
        let (stages, floor) =
            transition::stage_above_lower_floor(self.fabric, from, to, live, self.options.floor);
        let timing = self.fabric.spec().timing.total();
        let dark_time_ps = timing * stages.len() as u64;
        let removed: usize = stages.iter().map(|stage| stage.remove.len()).sum();
        let without = 1.0 / live.lambda(&topology_of(self.fabric, from));
        TransitionPlan {
            from: self.phases[before].name.clone(),
            to: self.phases[at].name.clone(),
            circuits_kept: from.len() - removed,
            dark_time_ps,
            exposed_ps: dark_time_ps.saturating_sub(self.phases[at].slack),
            without_ps: without.is_finite().then(|| Picoseconds::from_secs_f64(without)),
            stages,
            floor,
        }
    }

    /// Slack hides the first part of a staged change; the phase lasts at least until its end.
    fn seconds_of(
        &self,
        change: &TransitionPlan,
        at: usize,
        from: &[CrossConnect],
        live: &Evaluator,
        settled: f64,
    ) -> f64 {
        let stage_seconds = self.fabric.spec().timing.total().as_secs_f64();
        let slack = self.phases[at].slack.as_secs_f64();
        let lambdas = transition::stage_lambdas(self.fabric, from, &change.stages, live);
        let steps: Vec<(f64, f64)> = lambdas
            .into_iter()
            .enumerate()
            .map(|(stage, lambda)| {
                let end = (stage + 1) as f64 * stage_seconds;
                ((end - slack).clamp(0.0, stage_seconds), lambda)
            })
            .collect();
        seconds_in_steps(&steps, settled).max(change.exposed_ps.as_secs_f64())
    }

    fn dark_share(&self, transitions: &[TransitionPlan], step: Picoseconds) -> f64 {
        let stage = self.fabric.spec().timing.total();
        let changed: usize = transitions
            .iter()
            .flat_map(|transition| &transition.stages)
            .map(|stage| stage.remove.len().max(stage.add.len()))
            .sum();
        let slack: Picoseconds = self.phases.iter().map(|phase| phase.slack).sum();
        let ports = self.fabric.optical_ports() as usize * self.fabric.leaves();
        let dark = 2.0 * changed as f64 * stage.as_secs_f64();
        dark / (ports as f64 * (step + slack).as_secs_f64())
    }
}

/// Keeps circuits on ports that would become idle, because there is no gain in removing them.
fn with_idle_ports_left_alone(
    mut circuits: Vec<CrossConnect>,
    before: &[CrossConnect],
) -> Vec<CrossConnect> {
    let ports = circuits.iter().flat_map(|own| [(own.ocs, own.a_port), (own.ocs, own.b_port)]);
    let busy: BTreeSet<_> = ports.collect();
    let idle = before.iter().filter(|own| {
        !busy.contains(&(own.ocs, own.a_port)) && !busy.contains(&(own.ocs, own.b_port))
    });
    circuits.extend(idle);
    circuits.sort_unstable();
    circuits
}
