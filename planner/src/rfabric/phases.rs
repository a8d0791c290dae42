// SPDX-License-Identifier: Apache-2.0
//! Chooses the topology for each phase of a repeating step, and when to keep the previous one.
//!
//! The candidates are the best topologies for every phase and every run of consecutive phases, the templates, the
//! uniform mesh, and topologies provided by the caller. Choosing among them is a shortest-cycle problem, where a phase
//! costs its time on the topology, and a change costs the switching time not hidden by the phase's slack. During a
//! change, traffic uses the remaining circuits and the electrical core.
//!
//! RFabric keeps a topology if the predicted idle window is shorter than the switching time. This
//! planner changes circuits only if the change saves more time than it exposes.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use lightloom_units::{Bytes, Picoseconds};

use super::concurrent::{self, RateBound};
use super::demand::Demand;
use super::evaluate::Evaluator;
use super::exact::Hops;
use super::one_hop::{self, Effort};
use super::switching::{Costs, Schedule, shortest_cycle};
use super::templates::templates;
use super::topology::Topology;

/// A part of the step with its own traffic matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Name in tables.
    pub name: String,
    /// Name of the job, if several jobs have a step.
    pub job: Option<String>,
    /// The traffic of the phase.
    pub demand: Demand,
    /// Idle network time before the phase. A change within it is free.
    pub slack: Picoseconds,
}

/// A topology considered for one or more phases.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name in the phase table, which states the topology's purpose.
    pub name: String,
    /// The circuits of the topology.
    pub topology: Topology,
}

/// For more phases, the only merged candidates are pairs of consecutive phases and the whole step.
const PHASES_FOR_ALL_MERGES: usize = 8;

/// Returns the best circuits for each phase and each run of phases, the templates and the mesh.
pub fn candidates(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    effort: Effort,
) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let all = phases.len();
    for length in 1..=all {
        if all > PHASES_FOR_ALL_MERGES && length > 2 && length < all {
            continue;
        }
        // All runs that are as long as the step contain the same phases.
        let starts = if length == all { 1 } else { all };
        for start in 0..starts {
            let run: Vec<&Phase> = (0..length).map(|at| &phases[(start + at) % all]).collect();
            candidates.push(merged(fabric, &run, effort));
        }
    }
    if all > 1 {
        candidates.push(hedged(fabric, phases, effort));
    }
    for phase in phases {
        candidates.extend(templates(fabric, &phase.name, &phase.demand));
    }
    let mesh = Topology::uniform_mesh(fabric);
    candidates.push(Candidate { name: "uniform mesh".into(), topology: mesh });
    candidates
}

fn merged(fabric: &ReconfigurableFatTree, run: &[&Phase], effort: Effort) -> Candidate {
    let demand = match run {
        [phase] => phase.demand.clone(),
        _ => together(fabric.leaves(), run),
    };
    let names: Vec<&str> = run.iter().map(|phase| phase.name.as_str()).collect();
    Candidate {
        name: format!("planned for {}", names.join(" + ")),
        topology: one_hop::plan(fabric, &demand, effort).topology,
    }
}

/// Excludes interface limits, which may apply to only one phase.
fn together(leaves: usize, run: &[&Phase]) -> Demand {
    let mut sum = Demand::none(leaves);
    for demand in run.iter().map(|phase| &phase.demand) {
        for (from, to, bytes) in demand.flows() {
            sum.add(from, to, Bytes((demand.bits(bytes) / 8.0) as u64));
        }
    }
    sum
}

/// Returns a topology that does not slow any phase more than necessary. It is planned for the
/// pairwise maximum of all demands, each scaled by the upper bound on its rate.
pub fn hedged(fabric: &ReconfigurableFatTree, phases: &[Phase], effort: Effort) -> Candidate {
    let leaves = fabric.leaves();
    let mut worst = Demand::none(leaves);
    let bounds: Vec<f64> = phases
        .iter()
        .map(|phase| Evaluator::new(fabric, &phase.demand).upper_bound(fabric))
        .collect();
    let slowest = bounds.iter().copied().fold(f64::MAX, f64::min);
    for (phase, bound) in phases.iter().zip(&bounds) {
        for (from, to, bytes) in phase.demand.flows() {
            let scaled = (phase.demand.bits(bytes) / 8.0 * bound / slowest) as u64;
            let more = scaled.saturating_sub(worst.bytes(from, to).0);
            worst.add(from, to, Bytes(more));
        }
    }
    let topology = one_hop::plan(fabric, &worst, effort).topology;
    Candidate { name: "hedged over all phases".into(), topology }
}

/// Returns the duration in seconds of `phase` on `to` after a change from `from` that lasts `switching` seconds. A
/// phase lasts at least as long as its change, so the next one starts on settled circuits.
pub fn seconds_with_change(
    phase: &Phase,
    evaluator: &Evaluator,
    from: &Topology,
    to: &Topology,
    switching_seconds: f64,
) -> f64 {
    seconds_settling(phase, evaluator, from, to, evaluator.lambda(to), switching_seconds)
}

fn seconds_settling(
    phase: &Phase,
    evaluator: &Evaluator,
    from: &Topology,
    to: &Topology,
    settled: f64,
    switching_seconds: f64,
) -> f64 {
    if from == to {
        return 1.0 / settled;
    }
    let exposed = (switching_seconds - phase.slack.as_secs_f64()).max(0.0);
    let staying = evaluator.lambda_in_common(from, to);
    seconds_in_steps(&[(exposed, staying)], settled).max(exposed)
}

/// Returns the time in seconds to serve a demand through `steps` of (seconds, rate), then at the rate `last`.
pub fn seconds_in_steps(steps: &[(f64, f64)], last: f64) -> f64 {
    let (mut elapsed, mut served) = (0.0, 0.0);
    for &(seconds, lambda) in steps {
        let in_step = lambda * seconds;
        if in_step > 0.0 && served + in_step >= 1.0 {
            return elapsed + (1.0 - served) / lambda;
        }
        elapsed += seconds;
        served += in_step;
    }
    elapsed + (1.0 - served) / last
}

/// Chooses a topology for each phase of a repeating step, as a shortest cycle through the phases.
///
/// Failure domains change one at a time, and each takes one switching time.
pub fn schedule(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    candidates: &[Candidate],
) -> Schedule {
    schedule_at(fabric, phases, candidates, &CandidateRates::of_one_hop(fabric, phases, candidates))
}

pub(super) fn schedule_at(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    candidates: &[Candidate],
    rates: &CandidateRates,
) -> Schedule {
    shortest_cycle(&costs(fabric, phases, candidates, rates))
}

/// Returns the best single topology for all phases.
pub fn best_static(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    candidates: &[Candidate],
) -> Schedule {
    best_static_at(&CandidateRates::of_one_hop(fabric, phases, candidates))
}

pub(super) fn best_static_at(rates: &CandidateRates) -> Schedule {
    let candidates = 0..rates.of[0].len();
    let (best, seconds) = candidates
        .map(|at| (at, rates.of.iter().map(|own| 1.0 / own[at]).sum::<f64>()))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .expect("there is at least one candidate");
    Schedule { choice: vec![best; rates.of.len()], seconds }
}

pub(super) struct CandidateRates {
    pub(super) of: Vec<Vec<f64>>,
    pub(super) bounds: Vec<RateBound>,
    worth: Vec<f64>,
}

fn routed(bound: &RateBound, evaluator: &Evaluator, topology: &Topology, worth: f64) -> f64 {
    let rate = bound.rate(evaluator, topology).lambda;
    if rate >= worth { rate } else { evaluator.lambda(topology) }
}

/// Above this limit, candidates are compared by one-hop rates; only chosen ones get routes.
const LEAVES_ROUTED: usize = 16;

/// Above [`LEAVES_ROUTED`], circuits are searched for routes only if these could halve the phase.
const WORTH_SEARCH: f64 = 0.5;

impl CandidateRates {
    fn of_one_hop(
        fabric: &ReconfigurableFatTree,
        phases: &[Phase],
        candidates: &[Candidate],
    ) -> Self {
        let of = evaluators(fabric, phases).into_iter().map(|evaluator| {
            candidates.iter().map(|candidate| evaluator.lambda(&candidate.topology)).collect()
        });
        Self { of: of.collect(), bounds: Vec::new(), worth: Vec::new() }
    }

    pub(super) fn new(
        fabric: &ReconfigurableFatTree,
        phases: &[Phase],
        candidates: &[Candidate],
        hops: Hops,
    ) -> Self {
        let mut rates = Self::of_one_hop(fabric, phases, candidates);
        for (own, evaluator) in rates.of.iter_mut().zip(evaluators(fabric, phases)) {
            let reached = own.iter().copied().fold(0.0, f64::max);
            let mut bound = concurrent::bound(fabric, &evaluator, reached);
            bound.has_room &= hops == Hops::Any;
            let worth = reached / concurrent::NEAR;
            if bound.has_room && (fabric.leaves() <= LEAVES_ROUTED || reached <= 0.0) {
                for (rate, candidate) in own.iter_mut().zip(candidates) {
                    *rate = routed(&bound, &evaluator, &candidate.topology, worth);
                }
            }
            rates.worth.push(worth);
            rates.bounds.push(bound);
        }
        rates
    }

    pub(super) fn search(
        &mut self,
        fabric: &ReconfigurableFatTree,
        phases: &[Phase],
        candidates: &mut Vec<Candidate>,
    ) {
        let evaluators = evaluators(fabric, phases);
        for (at, phase) in phases.iter().enumerate() {
            let bound = self.bounds[at].lambda;
            let own = &self.of[at];
            let mut best: Vec<usize> = (0..candidates.len()).collect();
            best.sort_by(|a, b| own[*b].total_cmp(&own[*a]));
            let is_large = fabric.leaves() > LEAVES_ROUTED;
            let enough = if is_large { WORTH_SEARCH } else { concurrent::NEAR };
            if !self.bounds[at].has_room || own[best[0]] >= enough * bound {
                continue;
            }
            let from = &candidates[best[0]].topology;
            let found = concurrent::search(fabric, &evaluators[at], from, &self.bounds[at]);
            let Some(topology) = found else { break };
            if concurrent::rate(&evaluators[at], &topology, bound).lambda < self.worth[at] {
                continue;
            }
            let of_phases = self.of.iter_mut().zip(&evaluators).zip(&self.bounds).zip(&self.worth);
            for (((own, evaluator), bound), worth) in of_phases {
                own.push(routed(bound, evaluator, &topology, *worth));
            }
            candidates.push(Candidate { name: format!("routed for {}", phase.name), topology });
        }
        // If multi-hop routes do not pay off on any candidate, the phase uses one-hop traffic.
        for ((own, bound), worth) in self.of.iter().zip(&mut self.bounds).zip(&self.worth) {
            bound.has_room &=
                fabric.leaves() > LEAVES_ROUTED || own.iter().any(|rate| rate >= worth);
        }
    }
}

/// Prepares the demands of all phases.
pub fn evaluators(fabric: &ReconfigurableFatTree, phases: &[Phase]) -> Vec<Evaluator> {
    phases.iter().map(|phase| Evaluator::new(fabric, &phase.demand)).collect()
}

fn costs(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    candidates: &[Candidate],
    rates: &CandidateRates,
) -> Costs {
    let domains = fabric.spec().failure_domains.min(fabric.switches() as u32);
    let switching = fabric.spec().timing.total().as_secs_f64() * f64::from(domains);
    let mut costs = Vec::new();
    for ((phase, evaluator), rates) in phases.iter().zip(evaluators(fabric, phases)).zip(&rates.of)
    {
        let mut of_phase = Vec::new();
        for Candidate { topology: from, .. } in candidates {
            let to = candidates.iter().zip(rates).map(|(Candidate { topology: to, .. }, rate)| {
                seconds_settling(phase, &evaluator, from, to, *rate, switching)
            });
            of_phase.push(to.collect());
        }
        costs.push(of_phase);
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::super::testkit::spec;
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::seed::Seed;

    fn phases(slack: Picoseconds) -> Vec<Phase> {
        [("train", shapes::moe(16, Seed(1))), ("sync", shapes::weight_sync(16, Seed(1)))]
            .map(|(name, demand)| Phase { job: None, name: name.into(), demand, slack })
            .to_vec()
    }

    fn with_bring_up(bring_up: Picoseconds) -> ReconfigurableFatTree {
        let mut spec = spec(16, 8);
        spec.timing.bring_up = bring_up;
        ReconfigurableFatTree::new(spec).unwrap()
    }

    #[test]
    fn fast_switches_follow_the_phases() {
        let fabric = with_bring_up(Picoseconds::ZERO);
        let phases = phases(Picoseconds::from_millis(100));
        let candidates = candidates(&fabric, &phases, Effort::default());
        let schedule = schedule(&fabric, &phases, &candidates);
        assert_eq!(schedule.choice, [0, 1], "each phase gets the topology planned for it");
        assert!(schedule.seconds < best_static(&fabric, &phases, &candidates).seconds);
    }

    #[test]
    fn slow_link_training_keeps_one_topology() {
        let fabric = with_bring_up(Picoseconds::from_millis(5_700));
        let phases = phases(Picoseconds::from_millis(100));
        let candidates = candidates(&fabric, &phases, Effort::default());
        let schedule = schedule(&fabric, &phases, &candidates);
        assert_eq!(schedule.choice[0], schedule.choice[1]);
        let best = best_static(&fabric, &phases, &candidates);
        assert!((schedule.seconds / best.seconds - 1.0).abs() < 1e-9);
    }

    #[test]
    fn schedule_is_the_best_of_all_choices() {
        let fabric = with_bring_up(Picoseconds::from_millis(60));
        let mut phases = phases(Picoseconds::from_millis(30));
        phases.push(Phase {
            job: None,
            name: "dense".into(),
            demand: shapes::dense(16, Seed(2)),
            slack: Picoseconds::ZERO,
        });
        let candidates = candidates(&fabric, &phases, Effort::default());
        let rates = CandidateRates::of_one_hop(&fabric, &phases, &candidates);
        let costs = costs(&fabric, &phases, &candidates, &rates);
        let count = candidates.len();
        let mut best = f64::MAX;
        for number in 0..count.pow(3) {
            let choice = [number % count, number / count % count, number / count / count];
            let seconds: f64 = (0..3).map(|at| costs[at][choice[(at + 2) % 3]][choice[at]]).sum();
            best = best.min(seconds);
        }
        let found = schedule(&fabric, &phases, &candidates).seconds;
        assert!((found / best - 1.0).abs() < 1e-12, "{found} {best}");
    }

    #[test]
    fn time_to_serve_includes_steps_at_other_rates() {
        assert!((seconds_in_steps(&[(1.0, 0.25), (1.0, 0.0)], 0.5) - 3.5).abs() < 1e-12);
        assert!((seconds_in_steps(&[(9.0, 0.25)], 0.5) - 4.0).abs() < 1e-12);
    }
}
