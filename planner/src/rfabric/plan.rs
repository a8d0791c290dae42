// SPDX-License-Identifier: Apache-2.0
//! Plans the circuits of a reconfigurable fat-tree for every phase, and the changes in between.
//!
//! Times are integer picoseconds and ratios are fractions. docs/rfabric.md defines every value.

mod on_switches;

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_fabric::plan::{PhasePlan, SolverReport, TransitionPlan};
use lightloom_units::{Bytes, Picoseconds};

use super::concurrent::{self, RateBound};
use super::evaluate::Evaluator;
use super::exact::{self, Hops, Limits, SOLVER};
use super::mistake::Mistake;
use super::one_hop::Effort;
use super::patch;
use super::phases::{self, Candidate, CandidateRates, Phase};
use super::{one_way, realise, unserved};
use on_switches::Planner;

/// Planning options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Search effort per topology.
    pub effort: Effort,
    /// Minimum rate during a change, as a share of the live demand's rate.
    pub floor: f64,
    /// Also solve every phase by integer programming within these limits.
    pub exact: Option<Limits>,
    /// Whether circuits may change between phases. False for several jobs, which are not synchronised.
    pub may_change: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { effort: Effort::default(), floor: 0.75, exact: None, may_change: true }
    }
}

/// The planned communication of a repeating step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CarriedStep {
    /// One entry per phase, in step order.
    pub phases: Vec<PhasePlan>,
    /// The changes of circuits between phases, including the one from the last to the first.
    pub transitions: Vec<TransitionPlan>,
    /// Communication time of a step, including exposed switching. `None` without phases.
    pub step_time_ps: Option<Picoseconds>,
    /// Communication time with the best single topology. `None` if no topology serves all phases.
    pub static_step_time_ps: Option<Picoseconds>,
    /// Fraction of a step, including slack, in which changes keep optical ports dark. `None` without circuits.
    pub dark_port_time_share: Option<f64>,
}

/// Why planning failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum PlanError {
    #[error("the step has no phases; add at least one with a demand")]
    NoPhases,
    #[error("two phases have the name `{0}`; rename one")]
    SameName(String),
    #[error("phase `{phase}`: {}; {}", mistake.message, mistake.fix)]
    Demand { phase: String, mistake: Mistake },
    #[error("phase `{0}` has no traffic; remove it and add its time to the slack of the next")]
    Silent(String),
    #[error("phase `{phase}` cannot be served: {why}")]
    Unservable { phase: String, why: String },
    #[error(
        "no circuits serve the steps of all jobs, and circuits cannot follow a single job because jobs are not \
         synchronised: {0}, or keep the step of only one job"
    )]
    NoneForAll(String),
    #[error("the solver does not model one-way circuits; plan without `--exact`")]
    OneWay,
}

impl PlanError {
    pub(super) fn unservable(fabric: &ReconfigurableFatTree, phase: &Phase) -> Self {
        Self::Unservable { phase: phase.name.clone(), why: unserved::why(fabric, &[phase]) }
    }
}

/// Plans a step of `phases` on `fabric` with as few changes to `existing` circuits as possible.
pub fn plan(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    existing: &[CrossConnect],
    options: Options,
) -> Result<CarriedStep, PlanError> {
    refuse_bad_phases(fabric, phases)?;
    if fabric.is_one_way() {
        return one_way::plan(fabric, phases, existing, options);
    }
    // Only circuits on working ports can be kept.
    let existing = &realise::repaired(fabric, existing);
    let mut candidates = phases::candidates(fabric, phases, options.effort);
    let (solved, reports) = match options.exact {
        Some(limits) => solve(fabric, phases, limits),
        None => (Vec::new(), Vec::new()),
    };
    let search = Search { fabric, phases, existing, reports, options };
    let searched = search.best_of(candidates.clone(), Hops::Any);
    if options.exact.is_some() {
        // The solver optimises each phase, which is not always best for the step.
        candidates.extend(solved);
        return quicker(searched, search.best_of(candidates, Hops::Any));
    }
    let has_routes =
        searched.iter().flat_map(|plan| &plan.phases).any(|own| !own.routes.is_empty());
    // On odd ports, the circuits of some routes fit on no switch.
    match fabric.has_odd_ports() && has_routes {
        true => quicker(searched, search.best_of(candidates, Hops::One)),
        false => searched,
    }
}

fn quicker(
    one: Result<CarriedStep, PlanError>,
    other: Result<CarriedStep, PlanError>,
) -> Result<CarriedStep, PlanError> {
    match (one, other) {
        (Ok(one), Ok(other)) if one.step_time_ps <= other.step_time_ps => Ok(one),
        (one, other) => other.or(one),
    }
}

struct Search<'a> {
    fabric: &'a ReconfigurableFatTree,
    phases: &'a [Phase],
    existing: &'a [CrossConnect],
    /// One per phase if the phases were also solved.
    reports: Vec<SolverReport>,
    options: Options,
}

impl Search<'_> {
    fn best_of(
        &self,
        mut candidates: Vec<Candidate>,
        hops: Hops,
    ) -> Result<CarriedStep, PlanError> {
        let Self { fabric, phases, existing, options, .. } = *self;
        let mut rates = CandidateRates::new(fabric, phases, &candidates, hops);
        rates.search(fabric, phases, &mut candidates);
        let fixed = phases::best_static_at(&rates);
        let moving = phases::schedule_at(fabric, phases, &candidates, &rates);
        if !moving.seconds.is_finite() {
            return Err(unservable(fabric, phases, &rates));
        }
        let (bounds, solved) = (rates.bounds, self.reports.clone());
        let planner = Planner { fabric, phases, candidates: &candidates, bounds, solved, options };
        // Without a packet core, each phase may be servable while no single set of circuits serves all.
        let fixed = match fixed.seconds.is_finite().then(|| planner.realise(&fixed, existing)) {
            // With failed ports, an essential circuit may not fit on any switch.
            None | Some(Err(PlanError::Unservable { .. })) => None,
            Some(realised) => Some(realised?),
        };
        let static_step_time_ps = fixed.as_ref().and_then(|fixed| fixed.step_time_ps);
        let best = match fixed {
            Some(fixed) if !options.may_change => fixed,
            None if !options.may_change => {
                let all: Vec<&Phase> = phases.iter().collect();
                return Err(PlanError::NoneForAll(unserved::why(fabric, &all)));
            }
            // The schedule ignores switches, so compare the step times after placement.
            fixed => match (fixed, planner.realise(&moving, existing)) {
                (Some(fixed), Ok(moving)) if fixed.step_time_ps <= moving.step_time_ps => fixed,
                (Some(fixed), Err(PlanError::Unservable { .. })) => fixed,
                (_, moving) => moving?,
            },
        };
        Ok(CarriedStep { static_step_time_ps, ..best })
    }
}

const NEAR_ENOUGH: f64 = 0.95;

/// Maximum exchanges for a changed demand. If more are needed, a new plan is better.
const EXCHANGES: u32 = 64;

/// Like [`plan`], but keeps the circuits on working ports and moves the others to free ports of other
/// switches. `None` if a phase then cannot be served, if the number of phases differs, or if circuits are one-way.
pub fn repaired(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    before: &[PhasePlan],
    options: Options,
) -> Option<CarriedStep> {
    let is_other = phases.len() != before.len() || fabric.is_one_way();
    if is_other || refuse_bad_phases(fabric, phases).is_err() {
        return None;
    }
    let evaluators = phases::evaluators(fabric, phases);
    let bounds: Vec<RateBound> = evaluators
        .iter()
        .zip(before)
        .map(|(evaluator, phase)| {
            let kept = realise::repaired(fabric, &phase.circuits);
            let reached = evaluator.lambda(&realise::topology_of(fabric, &kept));
            concurrent::bound(fabric, evaluator, reached)
        })
        .collect();
    let mut circuits: Vec<Vec<CrossConnect>> = Vec::new();
    for (at, phase) in before.iter().enumerate() {
        // Without changes, all phases share circuits, even those that previously had no traffic.
        let same: Vec<usize> = (0..before.len())
            .filter(|at| !options.may_change || before[*at].circuits == phase.circuits)
            .collect();
        let mut had = same.iter().map(|at| before[*at].circuits.as_slice());
        let had = had.find(|circuits| !circuits.is_empty()).unwrap_or_default();
        let first = same.first().copied().unwrap_or(at);
        let own = match circuits.get(first) {
            Some(shared) => shared.clone(),
            None => {
                let live: Vec<(&Evaluator, f64)> =
                    same.iter().map(|at| (&evaluators[*at], bounds[*at].lambda)).collect();
                let good = same.iter().map(|at| 1.0 - before[*at].gap).fold(NEAR_ENOUGH, f64::min);
                let kept = realise::repaired(fabric, had);
                let topology = realise::topology_of(fabric, &kept);
                let is_good = same.iter().all(|at| {
                    let rate = bounds[*at].rate(&evaluators[*at], &topology);
                    rate.lambda >= good * bounds[*at].lambda
                });
                match is_good {
                    true => kept,
                    false => patch::patch(fabric, &live, kept, good, EXCHANGES),
                }
            }
        };
        circuits.push(own);
    }
    let planner = Planner { fabric, phases, candidates: &[], bounds, solved: Vec::new(), options };
    let rates = planner.rates(&circuits);
    if rates.iter().any(|rate| rate.lambda <= 0.0) {
        return None;
    }
    let names = before.iter().map(|phase| phase.topology.clone());
    let plan = planner.assemble(&circuits, rates, names.collect());
    let static_step_time_ps = best_of_one(fabric, &evaluators, &planner.bounds, &circuits);
    Some(CarriedStep { static_step_time_ps, ..plan })
}

fn best_of_one(
    fabric: &ReconfigurableFatTree,
    evaluators: &[Evaluator],
    bounds: &[RateBound],
    circuits: &[Vec<CrossConnect>],
) -> Option<Picoseconds> {
    let mut different = circuits.to_vec();
    different.dedup();
    let seconds = different.iter().map(|circuits| {
        let topology = realise::topology_of(fabric, circuits);
        let phases = evaluators.iter().zip(bounds);
        phases.map(|(of, bound)| 1.0 / bound.rate(of, &topology).lambda).sum()
    });
    let best = seconds.fold(f64::INFINITY, f64::min);
    best.is_finite().then(|| Picoseconds::from_secs_f64(best))
}

fn solve(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    limits: Limits,
) -> (Vec<Candidate>, Vec<SolverReport>) {
    let (mut candidates, mut reports) = (Vec::new(), Vec::new());
    for phase in phases {
        let Some(exact) = exact::plan(fabric, &phase.demand, SOLVER, limits) else {
            reports.push(SolverReport {
                lambda: None,
                lambda_upper_bound: Evaluator::new(fabric, &phase.demand).upper_bound(fabric),
                hit_time_limit: true,
                is_one_hop: true,
            });
            continue;
        };
        let name = format!("solved for {}", phase.name);
        candidates.push(Candidate { name, topology: exact.plan.topology });
        reports.push(SolverReport {
            lambda: Some(exact.plan.lambda),
            lambda_upper_bound: exact.plan.lambda_upper_bound,
            hit_time_limit: exact.hit_time_limit,
            is_one_hop: exact.is_one_hop,
        });
    }
    (candidates, reports)
}

fn refuse_bad_phases(fabric: &ReconfigurableFatTree, phases: &[Phase]) -> Result<(), PlanError> {
    if phases.is_empty() {
        return Err(PlanError::NoPhases);
    }
    for (at, phase) in phases.iter().enumerate() {
        if phases[..at].iter().any(|other| other.name == phase.name) {
            return Err(PlanError::SameName(phase.name.clone()));
        }
        phase
            .demand
            .must_fit(fabric.leaves())
            .map_err(|mistake| PlanError::Demand { phase: phase.name.clone(), mistake })?;
        if phase.demand.total() == Bytes::ZERO {
            return Err(PlanError::Silent(phase.name.clone()));
        }
    }
    Ok(())
}

fn unservable(
    fabric: &ReconfigurableFatTree,
    phases: &[Phase],
    rates: &CandidateRates,
) -> PlanError {
    let stuck = rates.of.iter().position(|own| own.iter().all(|rate| *rate <= 0.0));
    PlanError::unservable(fabric, &phases[stuck.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::super::demand::Demand;
    use super::super::testkit::{check, fabric, spec};
    use super::super::workload::shapes;
    use super::*;
    use lightloom_units::BitsPerSecond;
    use lightloom_units::id::LeafId;
    use lightloom_units::seed::Seed;

    fn step(leaves: usize, slack: Picoseconds) -> Vec<Phase> {
        [
            ("train", shapes::moe(leaves, Seed(1))),
            ("sync", shapes::weight_sync(leaves, Seed(1))),
            ("generate", shapes::moe(leaves, Seed(2))),
        ]
        .map(|(name, demand)| Phase { job: None, name: name.into(), demand, slack })
        .to_vec()
    }

    fn demands(phases: &[Phase]) -> Vec<Demand> {
        phases.iter().map(|phase| phase.demand.clone()).collect()
    }

    #[test]
    fn plan_passes_the_checker() {
        for (leaves, ports) in [(8, 8), (32, 16)] {
            let fabric = fabric(leaves, ports);
            let phases = step(leaves as usize, Picoseconds::from_millis(50));
            let plan = plan(&fabric, &phases, &[], Options::default()).unwrap();
            assert_eq!(check(&fabric, &demands(&phases), &plan), Vec::<String>::new());
            assert!(!plan.transitions.is_empty());
            assert!(plan.step_time_ps <= plan.static_step_time_ps);
        }
    }

    #[test]
    fn checker_detects_every_mistake() {
        let fabric = fabric(8, 8);
        let phases = step(8, Picoseconds::from_millis(50));
        let sound = plan(&fabric, &phases, &[], Options::default()).unwrap();
        let found = |change: &dyn Fn(&mut CarriedStep)| {
            let mut plan = sound.clone();
            change(&mut plan);
            check(&fabric, &demands(&phases), &plan).join("\n")
        };
        assert!(found(&|plan| plan.phases[0].circuits[0].a_port += 2).contains("not wired"));
        assert!(found(&|plan| plan.phases[0].circuits[0].ocs.0 = 99).contains("no such switch"));
        assert!(found(&|plan| plan.phases[1].lambda *= 1.01).contains("on its routes, not"));
        let without_routes = |share: f64| {
            found(&|plan| {
                plan.phases[1].routes.clear();
                plan.phases[1].lambda *= share;
            })
        };
        assert!(without_routes(1.0).contains("cannot be served"));
        assert!(without_routes(0.01).contains("more often than the stated"));
        assert!(found(&|plan| plan.phases[1].gap += 0.1).contains("gap"));
        let doubled = found(&|plan| {
            let first = plan.phases[0].circuits[0];
            plan.phases[0].circuits.push(first);
        });
        assert!(doubled.contains("another peer"));
        let stages = &|plan: &mut CarriedStep| {
            plan.transitions[0].stages.pop();
        };
        assert!(found(stages).contains("do not produce"));
        let joined = &|plan: &mut CarriedStep| {
            let last = plan.transitions[0].stages.pop().unwrap();
            plan.transitions[0].stages[0].remove.extend(last.remove);
            plan.transitions[0].stages[0].add.extend(last.add);
        };
        assert!(found(joined).contains("failure domains"));
    }

    #[test]
    fn slow_links_make_the_plan_static() {
        let mut slow = spec(16, 8);
        slow.timing.bring_up = Picoseconds::from_millis(5_700);
        let fabric = ReconfigurableFatTree::new(slow).unwrap();
        let plan = plan(&fabric, &step(16, Picoseconds::from_millis(50)), &[], Options::default())
            .unwrap();
        assert!(plan.transitions.is_empty());
        assert_eq!(plan.step_time_ps, plan.static_step_time_ps);
        assert!(plan.dark_port_time_share.unwrap().abs() < 1e-12);
    }

    #[test]
    fn error_names_the_unplannable_phase() {
        let plain = fabric(8, 8);
        let message = |fabric: &ReconfigurableFatTree, phases: &[Phase]| {
            plan(fabric, phases, &[], Options::default()).unwrap_err().to_string()
        };
        assert!(message(&plain, &[]).contains("no phases"));
        let mut phases = step(8, Picoseconds::ZERO);
        phases[2].name = "train".into();
        assert!(message(&plain, &phases).contains("have the name `train`"));
        assert!(message(&plain, &step(16, Picoseconds::ZERO)).contains("16 leaves"));
        phases = step(8, Picoseconds::ZERO);
        phases[1].demand = Demand::none(8);
        assert!(message(&plain, &phases).contains("phase `sync` has no traffic"));
        let mut closed = spec(4, 4);
        closed.electrical.rate_per_leaf = BitsPerSecond::ZERO;
        closed.forbidden = (1..4).map(|other| (LeafId(0), LeafId(other))).collect();
        let closed = ReconfigurableFatTree::new(closed).unwrap();
        let mut demand = Demand::none(4);
        demand.add(LeafId(0), LeafId(1), Bytes(1));
        let phase = Phase { job: None, name: "p".into(), demand, slack: Picoseconds::ZERO };
        assert!(message(&closed, &[phase]).contains("cannot be served"));
    }
}
