// SPDX-License-Identifier: Apache-2.0
//! Healing: after repairs, rings return to the circuits of the applied plan. If too many groups would
//! move, or if that plan uses failed parts, they move towards the quality of a plan from scratch.
//!
//! Only jobs that consented, or whose nodes an operator drained, lose light. All other rings stay.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::{Group, Plan};
use lightloom_planner::joint::{Bounds, MoveLimit};
use lightloom_units::id::NodeId;

use super::Facts;
use crate::change::Mode;
use crate::kept_plan::KeptPlan;
use crate::messages::{Apply, Note};
use crate::record::{Cause, Failed};
use crate::replan;
use crate::state::Now;

pub(super) const HOUR_MS: u64 = 3_600_000;

/// Groups that may move in one change, as in `lightloom replan --heal`.
const MOVES_MAX: usize = 8;

/// On larger fabrics, the search for a placement would delay the bypass of a fault.
const MOST_NODES_SEARCHED: u32 = 1_024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealPolicy {
    pub jobs: BTreeSet<String>,
    /// The first hour of the day and the hour after the last one, in UTC. `None` heals after each
    /// repair.
    pub hours: Option<[u64; 2]>,
}

impl HealPolicy {
    pub(super) fn is_due(&self, now: &Now, is_repaired: bool) -> bool {
        let hour = now.wall_ms / HOUR_MS % 24;
        self.hours.map_or(is_repaired, |[from, to]| match from <= to {
            true => (from..to).contains(&hour),
            false => hour >= from || hour < to,
        })
    }

    pub(super) fn movable(&self, facts: Facts<'_>) -> BTreeSet<u32> {
        let jobs = facts.replannable().map_or(&[][..], |fabric| &fabric.jobs);
        let movable = (0..).zip(jobs).filter(|(index, job)| {
            let groups = facts.plan.iter().flat_map(|plan| &plan.groups);
            let mut nodes = groups.filter(|group| group.job == Some(*index)).flat_map(nodes);
            self.jobs.contains(&job.name) || nodes.all(|node| is_drained(facts, node))
        });
        movable.map(|(index, _)| index).collect()
    }
}

pub(super) fn decide(
    facts: Facts<'_>,
    applied: &Plan,
    movable: &BTreeSet<u32>,
    now: &Now,
) -> Option<(Option<Apply>, Note)> {
    let (fabric, plan) = (facts.replannable()?, facts.plan?);
    let back = Some(applied).filter(|back| facts.used(back, &facts.failed_parts()).is_empty());
    let home = back.filter(|back| fits(plan, back, movable)).cloned();
    let better = home.or_else(|| search(fabric, plan, movable));
    let apply = better.and_then(|next| change_to(facts, plan, next, now));
    let healed = match apply.as_ref().and_then(|apply| apply.plan.as_ref()) {
        Some(next) => names(fabric, &moved_groups(plan, next.plan())),
        None => BTreeSet::new(),
    };
    let mut left = back.map(|to| names(fabric, &moved_groups(plan, to))).unwrap_or_default();
    left.retain(|group| !healed.contains(group));
    let is_any = apply.is_some() || !left.is_empty();
    is_any.then_some((apply, Note::Healing { healed, left }))
}

fn fits(plan: &Plan, next: &Plan, movable: &BTreeSet<u32>) -> bool {
    let moved = moved_groups(plan, next);
    (1..=MOVES_MAX).contains(&moved.len())
        && moved.iter().all(|group| group.job.is_some_and(|job| movable.contains(&job)))
}

fn search(fabric: &Fabric, plan: &Plan, movable: &BTreeSet<u32>) -> Option<Plan> {
    if fabric.hbd.nodes() > MOST_NODES_SEARCHED || movable.is_empty() {
        return None;
    }
    let (moves, limit) = (Some(movable.clone()), MoveLimit::Heal(MOVES_MAX));
    let bounds = Bounds { moves, limit, ..Bounds::default() };
    let next = replan::next_plan_within(fabric, plan, &[], &[], &bounds).ok()?.plan;
    fits(plan, &next, movable).then_some(next)
}

fn names(fabric: &Fabric, groups: &[&Group]) -> BTreeSet<String> {
    let names = groups.iter().map(|group| {
        let job = group.job.map_or("", |job| &fabric.jobs[job as usize].name);
        format!("{} of {job}", group.id)
    });
    names.collect()
}

fn nodes(group: &Group) -> impl Iterator<Item = NodeId> {
    group.nodes.iter().chain(&group.passing).copied()
}

fn is_drained(facts: Facts<'_>, node: NodeId) -> bool {
    facts.modules_of(node).all(|(_, device)| {
        let controls = facts.sightings.inventory().devices.get(device).map(|of| &of.levers);
        controls.is_some_and(|all| {
            !all.is_empty() && all.values().all(|one| facts.ledger.held.contains(one))
        })
    })
}

/// Returns the groups of jobs that lose light or nodes. Cross-connects concern all jobs.
fn moved_groups<'a>(plan: &'a Plan, next: &Plan) -> Vec<&'a Group> {
    let paths: BTreeMap<_, _> = next.transceivers.iter().map(|to| (to.bundle, to.path)).collect();
    let was = plan.transceivers.iter().filter(|was| paths.get(&was.bundle) != Some(&was.path));
    let switched: BTreeSet<NodeId> = was.map(|was| was.bundle.node).collect();
    let after: BTreeMap<_, _> = next.groups.iter().map(|group| (group.id, &group.nodes)).collect();
    let rewired = next.phases.iter().map(|phase| &phase.circuits);
    let is_rewired = plan.phases.iter().map(|phase| &phase.circuits).ne(rewired);
    let moved = plan.groups.iter().filter(|group| {
        let stays = after.get(&group.id) == Some(&&group.nodes);
        let is_moved = is_rewired || !stays || nodes(group).any(|node| switched.contains(&node));
        group.job.is_some() && is_moved
    });
    moved.collect()
}

/// `None` if a device does not respond, or if a job has the lease of the circuits to change.
fn change_to(facts: Facts<'_>, plan: &Plan, next: Plan, now: &Now) -> Option<Apply> {
    let kept = KeptPlan::new(next);
    let mut target = facts.both_halves(kept.plan(), plan, &facts.ledger.owned).ok()?;
    target.retain(|device, want| !facts.stays(device, want));
    let phase = facts.in_stages(plan, kept.plan(), &target);
    let is_leased = phase.is_some() && facts.ledger.lease.is_some();
    let is_reachable = target.keys().all(|device| facts.sightings.is_reachable(device));
    (is_reachable && !is_leased).then(|| Apply {
        target,
        phase,
        plan_sha256: kept.sha256().to_owned(),
        mode: Mode::Update,
        cause: Some(Cause::Repair),
        failed: Some(facts.failed_parts_with(kept.plan(), now, |_| Failed::default())),
        plan: Some(Box::new(kept)),
        ..Apply::default()
    })
}
