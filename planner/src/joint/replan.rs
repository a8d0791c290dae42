// SPDX-License-Identifier: Apache-2.0
//! Computes the next plan of a whole fabric with the least change in both halves.
//!
//! Groups without a fault stay in place. They and rebuilt groups keep their identifiers and ranks.
//! If the step then takes longer than before, the planner renumbers ranks if that helps, without
//! moving groups. A job that lost groups continues with fewer data-parallel replicas, and groups
//! from the last replicas take over the vacant ranks.
//!
//! Circuits also stay in place, and a circuit that lost a port is remade on another switch. New
//! circuits are planned only if they make the step faster.

mod improve;
mod model;
mod stages;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lightloom_fabric::fabric::{Fabric, Job};
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::file::{RlFile, StepFile};
use lightloom_fabric::plan::{GivenUp, Plan, Rank};
use lightloom_units::Picoseconds;
use lightloom_units::id::{GroupId, NodeId};

use super::mapping::Coordinates;
use super::traffic::generating_gpus;
use super::{Options, PlanError, mapping, network, phases};
use crate::khop::{self, Bounds, Change, DocumentError, Layout, MoveLimit, Survey};

pub use stages::stages;

/// The reason why no next plan exists.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplanError {
    /// The current plan is not for this fabric.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The next plan cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The change would move a job to nodes that it may not use.
    #[error("job `{0}` would leave its `nodes`: make a new plan with `lightloom plan`")]
    LeavesItsNodes(String),
}

/// The next plan and its changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Replanned {
    /// The plan.
    pub plan: Plan,
    /// The transceivers and groups that change.
    pub change: Change,
    /// The renumbering of ranks. `None` if all groups keep their ranks.
    pub ranks_changed: Option<RanksChanged>,
    /// Cross-connects that no phase of the previous plan has.
    pub circuits_made: usize,
    /// Cross-connects of the previous plan that no phase has now.
    pub circuits_removed: usize,
    /// Number of groups of jobs that a fault affects.
    pub groups_hit: usize,
    /// Groups of jobs with other nodes, another stage or other experts than before.
    pub moves: Vec<MovedGroup>,
    /// The shortest estimated steps by number of moves, fewest first. Empty without a search.
    pub curve: Vec<CurvePoint>,
    /// The plan from scratch, if the limit on moves required one.
    pub cold: Option<Plan>,
}

/// A group that moves, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedGroup {
    /// The group.
    pub group: GroupId,
    /// The reason.
    pub why: MoveReason,
}

/// The reason why a group moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// The group lost a part.
    Fault,
    /// Another group needs its nodes.
    Room,
    /// The step becomes shorter, or crosses fewer ToRs.
    Step,
}

/// Writes the word that text output and JSON use.
impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fault => "fault",
            Self::Room => "room",
            Self::Step => "step",
        })
    }
}

/// The shortest step that a search found for a number of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvePoint {
    /// Groups that move.
    pub moves: usize,
    /// Estimated communication time of the step.
    pub step_time_ps: Picoseconds,
}

/// A renumbering of ranks, made because the step would take longer with the old ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanksChanged {
    /// Number of groups that get another rank.
    pub groups: usize,
    /// Communication time of the step with the old ranks.
    pub step_time_kept_ps: Picoseconds,
}

/// Plans `fabric` around `faults` and changes `before` as little as possible. After repairs
/// (`is_repair`), idle nodes form spare groups again.
///
/// # Errors
/// Fails if `before` is not a plan for this fabric, or if the network cannot carry the traffic.
pub fn replan(
    fabric: &Fabric,
    before: &Plan,
    faults: &FaultSet,
    is_repair: bool,
    options: Options,
) -> Result<Replanned, ReplanError> {
    replan_within(fabric, before, faults, is_repair, &Bounds::default(), options)
}

/// Like [`replan`], within these limits. A group that cannot be repaired within them is lost.
pub fn replan_within(
    fabric: &Fabric,
    before: &Plan,
    faults: &FaultSet,
    is_repair: bool,
    bounds: &Bounds,
    options: Options,
) -> Result<Replanned, ReplanError> {
    let (mut layout, _) = khop::from_document(fabric, before)?;
    let known = coordinates(before);
    let survey = Survey::new(&fabric.hbd, faults).within(bounds);
    let start = layout.clone();
    let change = match is_repair {
        false => khop::replan(fabric, &survey, &mut layout),
        true => khop::replan_after_repairs(fabric, &survey, &mut layout),
    };
    let (ranked, given_up) = hand_on(fabric, &mut layout, known.clone());
    let network = Network { fabric, faults, before, options };
    let given_up: Vec<GivenUp> = before.given_up.iter().cloned().chain(given_up).collect();
    let plan = network.planned(&layout, &ranked, &given_up)?;
    let step_time_kept_ps = plan.metrics.step_time_ps.unwrap_or_default();
    let quicker = network.ranked_anew(&plan, &layout)?;
    let found = Found { plan: quicker.unwrap_or(plan), change };
    let groups_hit = khop::groups_hit(fabric, &survey, &start);
    let states = states(fabric, &start, &known);
    let needed = groups_moved(fabric, &states, &found.plan);
    let heals_some = matches!(bounds.limit, MoveLimit::Heal(_)) && bounds.cuts_at.is_none();
    let is_bound = fabric.jobs.iter().any(|job| job.nodes.is_some());
    let Searched { curve, cold, found } = match survey.is_bounded() && !heals_some {
        true => Searched { curve: Vec::new(), cold: None, found },
        false => {
            let task = improve::Task {
                network: &network,
                survey: &survey,
                start: &start,
                states: &states,
                is_repair,
                limit: if is_bound { MoveLimit::Least } else { bounds.limit },
                hit: &groups_hit,
            };
            task.within_limit(&layout, &given_up, found)?
        }
    };
    let Found { plan, change } = found;
    for group in &plan.groups {
        let Some(job) = group.job.map(|job| &fabric.jobs[job as usize]) else { continue };
        let Some(own) = &job.nodes else { continue };
        if group.nodes.iter().any(|node| !own.contains(node)) {
            return Err(ReplanError::LeavesItsNodes(job.name.clone()));
        }
    }
    let groups = groups_ranked_anew(&ranked, &plan);
    let ranks_changed = (groups > 0).then_some(RanksChanged { groups, step_time_kept_ps });
    let moves = reasons(groups_moved(fabric, &states, &plan), &groups_hit, &needed);
    let (circuits_made, circuits_removed) = changed(before, &plan);
    let groups_hit = groups_hit.len();
    Ok(Replanned {
        plan,
        change,
        ranks_changed,
        circuits_made,
        circuits_removed,
        groups_hit,
        moves,
        curve,
        cold,
    })
}

/// Groups in `needed` move in the plan with the fewest moves.
fn reasons(
    moved: BTreeSet<GroupId>,
    hit: &BTreeSet<GroupId>,
    needed: &BTreeSet<GroupId>,
) -> Vec<MovedGroup> {
    let moved = moved.into_iter().map(|group| {
        let why = match () {
            () if hit.contains(&group) => MoveReason::Fault,
            () if needed.contains(&group) => MoveReason::Room,
            () => MoveReason::Step,
        };
        MovedGroup { group, why }
    });
    moved.collect()
}

struct Found {
    plan: Plan,
    change: Change,
}

struct Searched {
    curve: Vec<CurvePoint>,
    cold: Option<Plan>,
    found: Found,
}

type States = BTreeMap<GroupId, (Vec<NodeId>, model::Weights)>;

fn states(fabric: &Fabric, layout: &Layout, at: &BTreeMap<GroupId, Coordinates>) -> States {
    let of_jobs = layout.groups.iter().filter_map(|group| Some((group.job?, group)));
    of_jobs
        .map(|(job, group)| {
            let at = at.get(&group.id).copied().unwrap_or_default();
            (group.id, (group.ranks.clone(), model::weights(&fabric.jobs[job as usize], &at)))
        })
        .collect()
}

fn groups_moved(fabric: &Fabric, states: &States, plan: &Plan) -> BTreeSet<GroupId> {
    let mut now: States = BTreeMap::new();
    for rank in plan.ranks.iter().filter(|rank| rank.gpu.gpu == 0 || rank.tp == 0) {
        let Some(job) = rank.job else { continue };
        let weights = model::weights(&fabric.jobs[job as usize], &Coordinates::of(rank));
        let own = now.entry(rank.group).or_insert_with(|| (Vec::new(), weights));
        if own.0.last() != Some(&rank.gpu.node) {
            own.0.push(rank.gpu.node);
        }
    }
    let moved = states.iter().filter(|(id, was)| now.get(id).is_some_and(|now| now != *was));
    moved.map(|(id, _)| *id).collect()
}

struct Network<'a> {
    fabric: &'a Fabric,
    faults: &'a FaultSet,
    before: &'a Plan,
    options: Options,
}

impl Network<'_> {
    fn planned(
        &self,
        layout: &Layout,
        ranked: &BTreeMap<GroupId, Coordinates>,
        given_up: &[GivenUp],
    ) -> Result<Plan, PlanError> {
        let mut plan = khop::to_document(self.fabric, self.faults, self.before.seed, layout);
        for rank in &mut plan.ranks {
            write(rank, ranked.get(&rank.group), self.fabric);
        }
        plan.given_up = given_up.to_vec();
        self.carry(&mut plan)?;
        Ok(plan)
    }

    fn carry(&self, plan: &mut Plan) -> Result<(), PlanError> {
        let sent = phases(self.fabric, &plan.ranks)?;
        let Self { fabric, faults, before, options } = *self;
        network::carry_on(fabric, faults, &sent, &before.phases, options)?.write_into(plan);
        Ok(())
    }

    fn moved_to(
        &self,
        cold: &Plan,
        survey: &Survey<'_>,
        start: &Layout,
        hit: &BTreeSet<GroupId>,
    ) -> Option<Found> {
        let fabric = self.fabric;
        let (layout, _) = khop::from_document(fabric, cold).ok()?;
        for keeps_ranks in [true, false] {
            let (groups, names) = improve::renamed(fabric, start, &layout, keeps_ranks);
            let ranked: BTreeMap<GroupId, Coordinates> =
                coordinates(cold).into_iter().map(|(id, at)| (names[&id], at)).collect();
            let mut rebuilt = start.clone();
            let change = khop::rebuilt(fabric, survey, &mut rebuilt, hit, groups, false);
            let plan = self.planned(&rebuilt, &ranked, &[]).ok()?;
            if !keeps_ranks || plan.metrics.step_time_ps <= cold.metrics.step_time_ps {
                return Some(Found { plan, change: Change { is_cold: true, ..change } });
            }
        }
        None
    }

    fn ranked_anew(&self, plan: &Plan, layout: &Layout) -> Result<Option<Plan>, PlanError> {
        let Self { fabric, faults, before, .. } = *self;
        let worth = 1.0 + network::WORTH_A_CHANGE;
        if step_seconds(plan) <= worth * step_seconds(before) {
            return Ok(None);
        }
        let mut anew = plan.clone();
        let jobs = jobs_with_other_nodes(before, layout);
        let mappings = mapping::mappings_of_groups(fabric, layout, &jobs);
        mapping::rank_in_best_order(fabric, faults, &mut anew.ranks, layout, &mappings)?;
        if self.estimated_seconds(plan)? <= worth * self.estimated_seconds(&anew)? {
            return Ok(None);
        }
        self.carry(&mut anew)?;
        Ok((step_seconds(plan) > worth * step_seconds(&anew)).then_some(anew))
    }

    fn estimated_seconds(&self, plan: &Plan) -> Result<f64, PlanError> {
        let sent = phases(self.fabric, &plan.ranks)?;
        Ok(network::estimate(self.fabric, self.faults, &sent).seconds)
    }
}

fn step_seconds(plan: &Plan) -> f64 {
    plan.metrics.step_time_ps.map_or(0.0, |time| time.as_secs_f64())
}

fn jobs_with_other_nodes(before: &Plan, layout: &Layout) -> BTreeSet<u32> {
    let nodes: BTreeMap<GroupId, &[NodeId]> =
        before.groups.iter().map(|group| (group.id, group.nodes.as_slice())).collect();
    layout
        .groups
        .iter()
        .filter(|group| nodes.get(&group.id) != Some(&group.nodes.as_slice()))
        .filter_map(|group| group.job)
        .collect()
}

fn groups_ranked_anew(known: &BTreeMap<GroupId, Coordinates>, plan: &Plan) -> usize {
    let now = coordinates(plan);
    known.iter().filter(|(id, was)| now.get(id).is_some_and(|now| now != *was)).count()
}

fn coordinates(plan: &Plan) -> BTreeMap<GroupId, Coordinates> {
    let ranks = plan.ranks.iter().filter(|rank| rank.job.is_some());
    ranks.map(|rank| (rank.group, Coordinates::of(rank))).collect()
}

fn write(rank: &mut Rank, at: Option<&Coordinates>, fabric: &Fabric) {
    let (Some(job), Some(at)) = (rank.job, at) else { return };
    let ep = match fabric.jobs.get(job as usize).and_then(|job| job.step.as_ref()) {
        Some(StepFile::Training(raw)) => raw.ep,
        _ => 1,
    };
    (rank.pp, rank.cp, rank.dp, rank.ep) = (at.pp, at.cp, at.dp, at.dp % ep);
}

fn hand_on(
    fabric: &Fabric,
    layout: &mut Layout,
    mut at: BTreeMap<GroupId, Coordinates>,
) -> (BTreeMap<GroupId, Coordinates>, Vec<GivenUp>) {
    let mut given_up = Vec::new();
    for (index, job) in (0_u32..).zip(&fabric.jobs) {
        let own: Vec<GroupId> = layout.groups_of(index).map(|group| group.id).collect();
        match &job.step {
            Some(StepFile::Training(raw)) => {
                let per_replica = (raw.pp * raw.cp) as usize;
                let most = (own.len() / per_replica) as u32 / raw.ep * raw.ep;
                let before = own.iter().filter_map(|id| at.get(id)).map(|at| at.dp + 1).max();
                let wanted = raw.dp.or(before).unwrap_or(most);
                let dp = most.min(wanted);
                let left = shrink(layout, &own, &mut at, raw.pp, raw.cp, dp);
                let gone = u64::from(wanted.saturating_sub(dp)) * per_replica as u64;
                if gone > 0 {
                    given_up.push(GivenUp {
                        job: job.name.clone(),
                        gpus: gone * u64::from(job.tp),
                        why: format!(
                            "{} groups of {} GPUs are left: {dp} of {wanted} data-parallel replicas fit, and {left} groups are spare",
                            own.len(), job.tp
                        ),
                    });
                }
            }
            step => {
                let mut own = own;
                if let Some(StepFile::Rl(raw)) = step {
                    given_up.extend(fewer_generate(layout, &mut own, job, raw));
                }
                let replicas = (0..).zip(own);
                at.extend(
                    replicas.map(|(dp, id)| (id, Coordinates { dp, ..Coordinates::default() })),
                );
            }
        }
    }
    layout.order_by_job();
    (at, given_up)
}

/// Reduces the number of generating replicas. Groups that do not fill a replica become spares.
fn fewer_generate(
    layout: &mut Layout,
    own: &mut Vec<GroupId>,
    job: &Job,
    raw: &RlFile,
) -> Option<GivenUp> {
    let gpus = own.len() as u64 * u64::from(job.tp);
    let there = gpus.checked_sub(raw.trainer_gpus.into())?;
    let generating = generating_gpus(raw, job.tp, there);
    let kept = (u64::from(raw.trainer_gpus) + generating) / u64::from(job.tp);
    let left: BTreeSet<GroupId> = own.split_off(own.len().min(kept as usize)).into_iter().collect();
    for group in layout.groups.iter_mut().filter(|group| left.contains(&group.id)) {
        group.job = None;
    }
    let gone = u64::from(raw.generation_gpus).saturating_sub(generating);
    (gone > 0).then(|| GivenUp {
        job: job.name.clone(),
        gpus: gone,
        why: format!(
            "{gpus} GPUs are left: {generating} of {} generate, in whole replicas",
            raw.generation_gpus
        ),
    })
}

fn shrink(
    layout: &mut Layout,
    own: &[GroupId],
    at: &mut BTreeMap<GroupId, Coordinates>,
    pp: u32,
    cp: u32,
    dp: u32,
) -> usize {
    let mut holes: BTreeSet<(u32, u32, u32)> =
        (0..dp).flat_map(|d| (0..pp).flat_map(move |p| (0..cp).map(move |c| (d, p, c)))).collect();
    let mut homeless = Vec::new();
    for id in own {
        let keeps_its_ranks = at.get(id).is_some_and(|at| holes.remove(&(at.dp, at.pp, at.cp)));
        if !keeps_its_ranks {
            homeless.push(*id);
        }
    }
    let mut left = BTreeSet::new();
    for id in homeless {
        match holes.pop_first() {
            Some((dp, pp, cp)) => {
                at.insert(id, Coordinates { pp, cp, dp });
            }
            None => {
                left.insert(id);
            }
        }
    }
    for group in layout.groups.iter_mut().filter(|group| left.contains(&group.id)) {
        group.job = None;
    }
    left.len()
}

/// Returns the step's communication time as a multiple of its time in `cold`, a plan from scratch
/// for the same faults. `None` if a plan has no step, or uses more GPUs than the other.
pub fn step_over_cold(next: &Plan, cold: &Plan) -> Option<f64> {
    let (next, cold) = (&next.metrics, &cold.metrics);
    let step = next.step_time_ps?.as_secs_f64();
    let least = cold.step_time_ps.filter(|step| *step > Picoseconds::ZERO)?.as_secs_f64();
    (next.gpus_used == cold.gpus_used).then_some(step / least)
}

/// A cross-connect of several phases counts once, and one that only moves to another phase does not count.
fn changed(before: &Plan, after: &Plan) -> (usize, usize) {
    let [old, new] = [before, after].map(|plan| {
        let circuits = plan.phases.iter().flat_map(|phase| phase.circuits.iter().copied());
        circuits.collect::<BTreeSet<CrossConnect>>()
    });
    (new.difference(&old).count(), old.difference(&new).count())
}
