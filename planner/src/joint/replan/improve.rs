// SPDX-License-Identifier: Apache-2.0
//! Looks for a shorter step than the replan with the fewest moves leaves, within a limit on moves.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::plan::GivenUp;
use lightloom_units::Picoseconds;
use lightloom_units::id::{GroupId, NodeId};

use super::super::mapping::Coordinates;
use super::model::{Member, Model, Weights};
use super::walk::{Point, Walk};
use super::{CurvePoint, Found, Network, PlanError};
use crate::khop::{self, Layout, RingGroup, Survey};

/// Groups move only if the step becomes shorter by this share.
const WORTH_A_MOVE: f64 = 0.01;

pub(super) struct Task<'a> {
    pub(super) network: &'a Network<'a>,
    pub(super) survey: &'a Survey<'a>,
    /// The layout before the replan.
    pub(super) start: &'a Layout,
    pub(super) states: &'a BTreeMap<GroupId, (Vec<NodeId>, Weights)>,
    pub(super) is_repair: bool,
    /// The largest number of moves.
    pub(super) most: usize,
}

impl Task<'_> {
    /// Returns the placements found for each number of moves, and a better plan than `least` if one
    /// of them is worth its moves.
    pub(super) fn improved(
        &self,
        layout: &Layout,
        ranked: &BTreeMap<GroupId, Coordinates>,
        given_up: &[GivenUp],
        least: &Found,
    ) -> Result<(Vec<CurvePoint>, Option<Found>), PlanError> {
        let Network { fabric, faults, .. } = *self.network;
        let model = Model::new(fabric, faults, layout, ranked, &least.plan)?;
        let Some(model) = model else { return Ok((Vec::new(), None)) };
        let walk = Walk::new(&model, self.survey, layout, self.states);
        let jobs: BTreeSet<usize> = walk.changed().union(&walk.slowest()).copied().collect();
        let points = walk.points(&jobs, self.most + 1);
        if std::env::var("SHOW").is_ok() {
            for job in 0..model.jobs.len() { eprintln!("job {job} {:?} {:?}", model.of_job(job, &points[0].seating[job]), points[0].seating[job].iter().zip(&model.jobs[job].coordinates).map(|(m,c)| format!("{} pp{} dp{} {:?}", m.id, c.pp, c.dp, m.ranks.iter().map(|n| fabric.dcn.tor_of(*n).0).collect::<Vec<_>>())).collect::<Vec<_>>()); }
            for p in &points { eprintln!("{} {:?}", p.moves, p.score); }
        }
        let on_curve = |point: &Point| CurvePoint {
            moves: point.moves,
            step_time_ps: Picoseconds((point.score.step * 1e12).round() as u64),
        };
        let curve = points.iter().map(on_curve).collect();
        let Some(point) = self.chosen(&points) else { return Ok((curve, None)) };
        let mut rebuilt = self.start.clone();
        let groups = self.groups(layout, &model, point);
        let change = khop::rebuilt(fabric, self.survey, &mut rebuilt, groups, self.is_repair);
        let jobs = model.jobs.iter().zip(&point.seating);
        let ranked = jobs.flat_map(|(job, members)| {
            members.iter().zip(&job.coordinates).map(|(member, at)| (member.id, *at))
        });
        let plan = self.network.planned(&rebuilt, &ranked.collect(), given_up)?;
        let (now, was) = (&plan.metrics, &least.plan.metrics);
        let is_better = now.step_time_ps < was.step_time_ps
            || now.step_time_ps == was.step_time_ps && now.cross_tor_share < was.cross_tor_share;
        Ok((curve, is_better.then_some(Found { plan, change })))
    }

    /// Returns the point with the fewest moves among those with about the shortest step.
    fn chosen<'p>(&self, points: &'p [Point]) -> Option<&'p Point> {
        let within = || points.iter().filter(|point| point.moves <= self.most);
        let least = within().map(|point| point.score.step).fold(f64::INFINITY, f64::min);
        within().find(|point| point.score.step <= least * (1.0 + WORTH_A_MOVE))
    }

    fn groups(&self, layout: &Layout, model: &Model<'_>, point: &Point) -> Vec<RingGroup> {
        let old: BTreeMap<GroupId, &RingGroup> =
            layout.groups.iter().map(|group| (group.id, group)).collect();
        let hbd = &model.fabric.hbd;
        let group = |member: &Member| {
            let was = old[&member.id].clone();
            match &member.chain {
                None => was,
                Some(chain) => {
                    let RingGroup { nodes, hops, .. } = RingGroup::chain(hbd, chain);
                    RingGroup { nodes, hops, ranks: member.ranks.clone(), ..was }
                }
            }
        };
        let mut groups: Vec<RingGroup> = point.seating.iter().flatten().map(group).collect();
        let used: BTreeSet<NodeId> =
            groups.iter().flat_map(|group| group.nodes.iter().copied()).collect();
        let is_left = |spare: &&RingGroup| {
            spare.job.is_none() && !spare.nodes.iter().any(|node| used.contains(node))
        };
        groups.extend(layout.groups.iter().filter(is_left).cloned());
        groups
    }
}
