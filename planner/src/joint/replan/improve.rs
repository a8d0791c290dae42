// SPDX-License-Identifier: Apache-2.0
//! Looks for a shorter step than the replan with the fewest moves leaves, within a limit on moves.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::plan::{GivenUp, Plan};
use lightloom_units::Picoseconds;
use lightloom_units::id::{GroupId, NodeId};

use super::super::mapping::Coordinates;
use super::model::Model;
use super::walk::{SeatingPoint, SeatingWalk};
use super::{
    CurvePoint, Found, MoveLimit, Network, PlanError, Searched, States, coordinates, groups_moved,
};
use crate::khop::{self, Layout, RingGroup, Survey};

/// On larger fabrics, groups move for a shorter step only on request; the search would delay a bypass.
const MOST_NODES: u32 = 2_048;

/// On larger fabrics, a repair does not compare its result with a plan from scratch.
const MOST_NODES_COLD: u32 = 1_024;

/// Groups move only if the step becomes shorter by this share.
const WORTH_A_MOVE: f64 = 0.01;

pub(super) struct Task<'a> {
    pub(super) network: &'a Network<'a>,
    pub(super) survey: &'a Survey<'a>,
    pub(super) start: &'a Layout,
    pub(super) states: &'a States,
    pub(super) is_repair: bool,
    pub(super) limit: MoveLimit,
    pub(super) hit: &'a BTreeSet<GroupId>,
}

pub(super) fn is_better(one: &Plan, other: &Plan) -> bool {
    let (one, other) = (&one.metrics, &other.metrics);
    one.step_time_ps < other.step_time_ps
        || one.step_time_ps == other.step_time_ps && one.cross_tor_share < other.cross_tor_share
}

/// Returns the point with the fewest moves among those with about the shortest step. After repairs
/// and to heal, the last point is best, because it also crosses the fewest ToRs.
fn chosen(points: &[SeatingPoint], is_heal: bool, most: usize) -> Option<&SeatingPoint> {
    let mut within = points.iter().filter(|point| point.moves <= most);
    if is_heal {
        return within.next_back();
    }
    let least = within.clone().map(|point| point.score.step).fold(f64::INFINITY, f64::min);
    within.find(|point| point.score.step <= least * (1.0 + WORTH_A_MOVE))
}

impl Task<'_> {
    pub(super) fn within_limit(
        &self,
        layout: &Layout,
        given_up: &[GivenUp],
        least: Found,
    ) -> Result<Searched, PlanError> {
        let (mut curve, mut found) = (Vec::new(), least);
        if let Some(most) = self.most() {
            let ranked = coordinates(&found.plan);
            let (points, better) = self.improved(layout, &ranked, given_up, &found, most)?;
            (curve, found) = (points, better.unwrap_or(found));
        }
        let Network { fabric, faults, options, .. } = *self.network;
        let reaches_cold = match self.limit {
            MoveLimit::Cold | MoveLimit::Heal(_) => true,
            MoveLimit::Least => false,
            _ => self.is_repair && fabric.hbd.nodes() <= MOST_NODES_COLD,
        };
        let cold = reaches_cold.then(|| super::super::plan(fabric, faults, options).ok()).flatten();
        let moved = cold
            .as_ref()
            .and_then(|cold| self.network.moved_to(cold, self.survey, self.start, self.hit));
        if let Some(cold) = moved {
            let moves = groups_moved(fabric, self.states, &cold.plan).len();
            // A plan from scratch moves groups of any job.
            let fits = !self.survey.is_bounded() && self.most().is_some_and(|most| moves <= most);
            let is_better = fits && is_better(&cold.plan, &found.plan);
            if self.limit == MoveLimit::Cold || is_better {
                found = cold;
            }
        }
        Ok(Searched { curve, cold, found })
    }

    fn most(&self) -> Option<usize> {
        match self.limit {
            MoveLimit::BeyondHit(extra) => {
                let is_small = self.network.fabric.hbd.nodes() <= MOST_NODES;
                is_small.then_some(self.hit.len() + extra)
            }
            MoveLimit::Total(most) | MoveLimit::Heal(most) => Some(most),
            MoveLimit::Least | MoveLimit::Cold => None,
        }
    }

    fn improved(
        &self,
        layout: &Layout,
        ranked: &BTreeMap<GroupId, Coordinates>,
        given_up: &[GivenUp],
        least: &Found,
        most: usize,
    ) -> Result<(Vec<CurvePoint>, Option<Found>), PlanError> {
        let Network { fabric, faults, .. } = *self.network;
        let model = Model::new(fabric, faults, layout, ranked, &least.plan)?;
        let Some(model) = model else { return Ok((Vec::new(), None)) };
        let walk = SeatingWalk::new(&model, self.survey, layout, self.states);
        let is_heal = self.is_repair || matches!(self.limit, MoveLimit::Heal(_));
        let points = walk.points(is_heal, most + 1);
        let curve = points.iter().map(|point| CurvePoint {
            moves: point.moves,
            step_time_ps: Picoseconds::from_secs_f64(point.score.step),
        });
        let curve = curve.collect();
        let Some(point) = chosen(&points, is_heal, most) else { return Ok((curve, None)) };
        let mut rebuilt = self.start.clone();
        let groups = self.groups(layout, &model, point);
        let change =
            khop::rebuilt(fabric, self.survey, &mut rebuilt, self.hit, groups, self.is_repair);
        let jobs = model.jobs.iter().zip(&point.seating);
        let ranked = jobs.flat_map(|(job, members)| {
            members.iter().zip(&job.coordinates).map(|(member, at)| (member.id, *at))
        });
        let plan = self.network.planned(&rebuilt, &ranked.collect(), given_up)?;
        let is_better = is_better(&plan, &least.plan);
        Ok((curve, is_better.then_some(Found { plan, change })))
    }

    fn groups(&self, layout: &Layout, model: &Model<'_>, point: &SeatingPoint) -> Vec<RingGroup> {
        let old: BTreeMap<GroupId, &RingGroup> =
            layout.groups.iter().map(|group| (group.id, group)).collect();
        let mut groups = Vec::new();
        for member in point.seating.iter().flatten() {
            let mut group = old[&member.id].clone();
            if let Some(chain) = &member.chain {
                let RingGroup { nodes, hops, .. } = RingGroup::chain(&model.fabric.hbd, chain);
                group = RingGroup { nodes, hops, ranks: member.ranks.clone(), ..group };
            }
            groups.push(group);
        }
        let used: BTreeSet<NodeId> =
            groups.iter().flat_map(|group| group.nodes.iter().copied()).collect();
        let spares = layout.groups.iter().filter(|group| group.job.is_none());
        let unused = spares.filter(|spare| spare.nodes.iter().all(|node| !used.contains(node)));
        groups.extend(unused.cloned());
        groups
    }
}

/// Returns `cold`, a plan from scratch, under the identifiers of former groups, and these identifiers.
pub(super) fn renamed(
    fabric: &Fabric,
    start: &Layout,
    cold: &Layout,
    keeps_ranks: bool,
) -> (Vec<RingGroup>, BTreeMap<GroupId, GroupId>) {
    let given = khop::matched(&start.groups, &cold.groups);
    let was: BTreeMap<usize, &RingGroup> =
        given.iter().map(|(place, at)| (*at, &start.groups[*place])).collect();
    let mut next = start.groups.iter().map(|group| group.id.0 + 1).max().unwrap_or(0);
    let mut groups = cold.groups.clone();
    let mut names = BTreeMap::new();
    for (at, group) in groups.iter_mut().enumerate() {
        let id = was.get(&at).map_or(GroupId(next), |was| was.id);
        next += u32::from(!was.contains_key(&at));
        names.insert(group.id, id);
        group.id = id;
    }
    let jobs: BTreeSet<u32> = groups.iter().filter_map(|group| group.job).collect();
    let set = fabric.dcn.nodes_per_tor().max(1) as usize;
    for job in jobs.into_iter().filter(|_| keeps_ranks) {
        let own: Vec<usize> = (0..groups.len()).filter(|at| groups[*at].job == Some(job)).collect();
        for set in own.chunks(set) {
            keep_ranks(&mut groups, &was, set);
        }
    }
    (groups, names)
}

/// Reorders the ranks of all groups in a set alike, so that as many groups as possible keep theirs.
fn keep_ranks(groups: &mut [RingGroup], was: &BTreeMap<usize, &RingGroup>, set: &[usize]) {
    let mut orders: Vec<Vec<usize>> = Vec::new();
    for at in set {
        let (Some(old), now) = (was.get(at), &groups[*at].ranks) else { continue };
        let ranks = old.ranks.iter().map(|node| now.iter().position(|other| other == node));
        let order: Option<Vec<usize>> = ranks.collect();
        orders.extend(order.filter(|order| order.len() == now.len()));
    }
    let best =
        orders.iter().max_by_key(|order| orders.iter().filter(|other| other == order).count());
    let Some(best) = best.cloned() else { return };
    for at in set {
        let ranks = &groups[*at].ranks;
        groups[*at].ranks = best.iter().map(|rank| ranks[*rank]).collect();
    }
}
