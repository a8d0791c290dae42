// SPDX-License-Identifier: Apache-2.0
//! Computes the next plan with the least change.
//!
//! Groups without a new fault stay unchanged. A group that lost a part gets the first possible option of the list in
//! docs/khop.md ("The next plan"). Before these options, a ring with a spare node drops the failed node (`spare`).
//!
//! If a group would be lost, as few groups without a fault as possible move to make room (`least`).
//! If that search runs out of steps, the groups move to the placement of a new plan (`cold`).
//!
//! Circuits between idle nodes stay lit until a group needs one end. If the far end of a bundle
//! fails or switches away, the bundle returns to loopback.

mod change;
mod cold;
mod least;
mod neighbourhood;
mod region;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Path;
use lightloom_units::id::{BundleId, GroupId, NodeId, TorId};

use super::document::selected_port;
use super::grouping::chains_on_line;
use super::{Layout, RingGroup, Survey, any_groups, islands, spare, spare_sizes};
pub use change::{Change, GroupChange, MovedForOthers};
pub(crate) use cold::matched;
use neighbourhood::Effort;

/// Adapts `layout` to the faults in `survey` with as little change as possible.
pub fn replan(fabric: &Fabric, survey: &Survey<'_>, layout: &mut Layout) -> Change {
    let before = layout.clone();
    let mut work = Work::new(fabric, survey, layout);
    work.mend_all();
    let change = work.finish();
    let mut sized = (0_u32..).zip(&fabric.jobs).filter(|(_, job)| least::is_sized(job));
    let has_lost =
        sized.any(|(job, _)| layout.groups_of(job).count() < before.groups_of(job).count());
    if !has_lost || !survey.may_cut_anywhere() {
        return change;
    }
    let mended = std::mem::replace(layout, before.clone());
    let mut work = Work::new(fabric, survey, layout);
    let is_hit = before.groups.iter().map(|group| {
        // Moving an open ring costs as little as moving a ring with a fault.
        work.is_broken_group(group)
            || survey.is_open(&group.nodes) && group.job.is_some_and(|job| survey.may_move(job))
    });
    let is_hit: Vec<bool> = is_hit.collect();
    let (groups, given, at_least, is_cold) =
        match least::rearranged(fabric, survey, &before, &mended, is_hit.clone()) {
            Ok(least::Rearranged { groups, given, at_least }) => (groups, given, at_least, false),
            Err(least::Nothing::InSight { at_least })
                if let Some(cold) = cold::with_more_groups(fabric, survey, &mended) =>
            {
                let given = cold::matched(&before.groups, &cold.groups);
                (cold.groups, given, at_least, true)
            }
            Err(_) => {
                *layout = mended;
                return change;
            }
        };
    work.place(&groups, given);
    work.fill_jobs();
    let change = work.finish();
    let groups = before.groups.iter().zip(&is_hit);
    let healthy = groups.filter(|(_, is_hit)| !**is_hit).map(|(group, _)| group);
    let moved = moved_for_others(fabric, healthy, layout);
    Change { moved: MovedForOthers { at_least, ..moved }, is_cold, ..change }
}

fn moved_for_others<'a>(
    fabric: &Fabric,
    healthy: impl Iterator<Item = &'a RingGroup>,
    layout: &Layout,
) -> MovedForOthers {
    let mut moved = MovedForOthers::default();
    for was in healthy.filter(|group| group.job.is_some()) {
        let ranks: BTreeSet<NodeId> = was.ranks.iter().copied().collect();
        let now = layout.groups.iter().find(|group| group.id == was.id);
        let has_moved = now.is_none_or(|now| ranks != now.ranks.iter().copied().collect());
        moved.rings += u32::from(has_moved);
        for (node, hop) in was.nodes.iter().zip(&was.hops) {
            let port = fabric.hbd.port(*node, *hop);
            let ends = [Some(port), fabric.hbd.peer(port)];
            let is_lit = ends
                .iter()
                .all(|end| end.is_some_and(|end| layout.path(end.bundle) == end.selects()));
            moved.circuits += u32::from(!is_lit);
        }
    }
    moved
}

/// Like [`replan`], but idle nodes also form spare rings. After a repair there is time for that.
pub fn replan_after_repairs(fabric: &Fabric, survey: &Survey<'_>, layout: &mut Layout) -> Change {
    let mut work = Work::new(fabric, survey, layout);
    work.mend_all();
    work.regain_spares();
    work.form_spares();
    // Jobs with rings inside a node can grow only by taking spare rings, so form spares first.
    work.fill_jobs();
    work.finish()
}

pub(crate) fn groups_hit(
    fabric: &Fabric,
    survey: &Survey<'_>,
    layout: &Layout,
) -> BTreeSet<GroupId> {
    let mut layout = layout.clone();
    let work = Work::new(fabric, survey, &mut layout);
    let own = work.layout.groups.iter().filter(|group| group.job.is_some());
    own.filter(|group| work.is_broken_group(group)).map(|group| group.id).collect()
}

/// A group with the identifier of an earlier group is that group, on the given nodes. A fault affects those in `hit`.
pub(crate) fn rebuilt(
    fabric: &Fabric,
    survey: &Survey<'_>,
    layout: &mut Layout,
    hit: &BTreeSet<GroupId>,
    groups: Vec<RingGroup>,
    forms_spares: bool,
) -> Change {
    let healthy: Vec<RingGroup> =
        layout.groups.iter().filter(|group| !hit.contains(&group.id)).cloned().collect();
    let mut work = Work::new(fabric, survey, layout);
    work.become_groups(groups);
    if forms_spares {
        work.form_spares();
    }
    let change = work.finish();
    let moved = moved_for_others(fabric, healthy.iter(), layout);
    Change { moved, ..change }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fresh {
    /// Forms rings as in a new plan: with a spare node if the design has one per ring.
    AsPlanned,
    /// Accepts a ring without a spare node, because the job would otherwise lose its group.
    Any,
}

struct Work<'a> {
    fabric: &'a Fabric,
    survey: &'a Survey<'a>,
    layout: &'a mut Layout,
    idle: Vec<bool>,
    before: BTreeMap<BundleId, Path>,
    places: BTreeMap<GroupId, usize>,
    groups: Vec<GroupChange>,
}

impl<'a> Work<'a> {
    fn new(fabric: &'a Fabric, survey: &'a Survey<'a>, layout: &'a mut Layout) -> Self {
        let idle = idle(fabric, survey, layout);
        let places =
            layout.groups.iter().zip(0..).map(|(group, place)| (group.id, place)).collect();
        let (before, groups) = (BTreeMap::new(), Vec::new());
        Self { fabric, survey, layout, idle, before, places, groups }
    }

    fn mend_all(&mut self) {
        self.drop_broken_spares();
        self.darken_idle();
        let groups = 0..self.layout.groups.len();
        let broken: Vec<usize> = groups.filter(|g| self.is_broken(*g)).collect();
        let lost: Vec<usize> = broken.into_iter().filter(|group| !self.mend(*group)).collect();
        for group in lost.into_iter().rev() {
            self.close_gap(group);
        }
        self.fill_jobs();
    }

    /// Moves the job's last group into the gap, so that no other group gets new neighbours.
    fn close_gap(&mut self, lost: usize) {
        let job = self.layout.groups[lost].job;
        let last = self.layout.groups.iter().rposition(|group| group.job == job).unwrap_or(lost);
        self.layout.groups.swap(lost, last);
        self.layout.groups.remove(last);
    }

    fn is_broken(&self, group: usize) -> bool {
        self.is_broken_group(&self.layout.groups[group])
    }

    fn is_broken_group(&self, group: &RingGroup) -> bool {
        let hbd = &self.fabric.hbd;
        if let Some(segment) = group.segment {
            let position = hbd.position_of(group.nodes[0]);
            let inner = segment.first..segment.first + segment.gpus - 1;
            let cut = self.survey.broken_bundles(position).any(|bundle| {
                inner.clone().any(|gpu| gpu % hbd.gpus_per_node() == hbd.ring_edge(bundle))
            });
            return cut || !self.survey.alive()[position.index()];
        }
        if !group.nodes.iter().all(|node| self.survey.is_whole(hbd.position_of(*node))) {
            return true;
        }
        let mut hops = group.nodes.iter().zip(&group.hops);
        !self.survey.all_fibres_work()
            && !hops.all(|(node, hop)| self.survey.has_fibre(hbd.position_of(*node), *hop))
    }

    /// Spare rings follow the groups of jobs, so no job's group changes its place.
    fn drop_broken_spares(&mut self) {
        for index in (0..self.layout.groups.len()).rev() {
            if self.layout.groups[index].job.is_none() && self.is_broken(index) {
                let spare = self.layout.groups.remove(index);
                self.free(&spare.nodes);
                self.put_out(&spare.nodes);
                self.groups.push(GroupChange::Lost { job: None, group: index, from: spare.nodes });
            }
        }
    }

    /// Idle nodes may have lit circuits from an earlier group. Circuits to a failed part go dark.
    fn darken_idle(&mut self) {
        let faults = self.survey.faults();
        let hbd = &self.fabric.hbd;
        let mut facing = Vec::new();
        for node in faults.nodes.iter().chain(faults.bundles.iter().map(|bundle| &bundle.node)) {
            facing.extend(self.far_ends(*node));
            self.put_out(&[*node]);
        }
        for (a, b) in faults.fibres.iter().map(|fibre| hbd.ports(*fibre)) {
            facing.extend([a.bundle.node, b.bundle.node]);
        }
        facing.retain(|node| self.idle[hbd.position_of(*node).index()]);
        self.put_out(&facing);
    }

    fn free(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            let position = self.fabric.hbd.position_of(*node);
            let index = position.index();
            self.idle[index] = self.survey.alive()[index] && self.survey.in_reach()[index];
        }
    }

    /// Returns false if the group is lost, and leaves its place in the layout empty.
    fn mend(&mut self, index: usize) -> bool {
        let old = self.layout.groups[index].clone();
        self.free(&old.nodes);
        let left = spare::given_up(self.fabric, self.survey, &old);
        let bridged = spare::bridged(self.fabric, self.survey, &old);
        let small = bridged
            .filter(|group| self.keeps_light(group))
            .or_else(|| self.bypass(&left, Effort::SmallOnly));
        let mended = small
            .map(|group| (group, true))
            .or_else(|| self.take_spare(&old).map(|group| (group, false)))
            .or_else(|| self.bypass(&left, Effort::Any).map(|group| (group, true)))
            .or_else(|| self.fresh_if_ring(&old, Fresh::Any).map(|group| (group, false)))
            .or_else(|| self.taken_from_spares(&old, &left));
        let Some((new, in_place)) = mended else {
            self.put_out(&old.nodes);
            self.groups.push(GroupChange::Lost { job: old.job, group: index, from: old.nodes });
            return false;
        };
        self.groups.push(if in_place {
            let (out, into) = replaced(&old, &new);
            GroupChange::Bypassed { group: index, out, into }
        } else {
            GroupChange::Moved { group: index, from: old.nodes.clone(), to: new.ranks.clone() }
        });
        self.settle(index, new, &old.nodes);
        true
    }

    fn keeps_light(&self, group: &RingGroup) -> bool {
        let hbd = &self.fabric.hbd;
        let mut next = self.layout.clone();
        next.light(hbd, group);
        let bundles = group
            .nodes
            .iter()
            .flat_map(|node| (0..hbd.k()).map(|bundle| BundleId { node: *node, bundle }));
        let mut cut = bundles.filter(|bundle| {
            self.is_answered(*bundle) && next.path(*bundle) != self.layout.path(*bundle)
        });
        cut.all(|bundle| {
            let far = selected_port(bundle, self.layout.path(bundle)).and_then(|p| hbd.peer(p));
            far.is_none_or(|far| self.survey.may_cut(bundle.node, far.bundle.node))
        })
    }

    /// Returns a group only if it cuts no circuit that must keep its light.
    fn bypass(&self, old: &RingGroup, effort: Effort) -> Option<RingGroup> {
        if old.segment.is_some() {
            return None;
        }
        let (fabric, survey, idle) = (self.fabric, self.survey, &self.idle);
        let group = match fabric.hbd.grouping() {
            Grouping::Line => {
                neighbourhood::rebuild(fabric, survey, self.layout, idle, old, effort)
            }
            Grouping::Island { .. } | Grouping::Anywhere => {
                islands::rebuild(fabric, survey, idle, old)
            }
        };
        group.filter(|group| self.keeps_light(group))
    }

    fn settle(&mut self, index: usize, new: RingGroup, left: &[NodeId]) {
        let mut disturbed = left.to_vec();
        for node in &new.nodes {
            self.idle[self.fabric.hbd.position_of(*node).index()] = false;
            disturbed.extend(self.far_ends(*node));
        }
        self.remember(&new.nodes);
        self.layout.light(&self.fabric.hbd, &new);
        let id = self.layout.groups[index].id;
        self.layout.groups[index] = RingGroup { id, ..new };
        self.put_out(&disturbed);
    }

    fn far_ends(&self, node: NodeId) -> Vec<NodeId> {
        let hbd = &self.fabric.hbd;
        let bundles = (0..hbd.k()).map(|bundle| BundleId { node, bundle });
        bundles
            .filter_map(|bundle| hbd.peer(selected_port(bundle, self.layout.path(bundle))?))
            .map(|far| far.bundle.node)
            .collect()
    }

    fn put_out(&mut self, nodes: &[NodeId]) {
        self.remember(nodes);
        for node in nodes {
            if !self.survey.in_reach()[self.fabric.hbd.position_of(*node).index()] {
                continue;
            }
            for bundle in 0..self.fabric.hbd.k() {
                let bundle = BundleId { node: *node, bundle };
                if !self.is_answered(bundle) {
                    self.layout.set_path(bundle, Path::Loopback);
                }
            }
        }
    }

    fn is_answered(&self, bundle: BundleId) -> bool {
        let port = selected_port(bundle, self.layout.path(bundle));
        port.is_some_and(|port| {
            self.survey
                .working_peer(port)
                .is_some_and(|far| self.layout.path(far.bundle) == far.selects())
        })
    }

    fn remember(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            for bundle in 0..self.fabric.hbd.k() {
                let bundle = BundleId { node: *node, bundle };
                let path = self.layout.path(bundle);
                self.before.entry(bundle).or_insert(path);
            }
        }
    }

    fn leaves(&self, group: &RingGroup) -> BTreeSet<TorId> {
        group.ranks.iter().map(|node| self.fabric.dcn.tor_of(*node)).collect()
    }

    /// Counts the ranks of `group` below `leaves`, because their traffic can stay below these leaves.
    fn near(&self, group: &RingGroup, leaves: &BTreeSet<TorId>) -> usize {
        let leaves_of_ranks = group.ranks.iter().map(|node| self.fabric.dcn.tor_of(*node));
        leaves_of_ranks.filter(|leaf| leaves.contains(leaf)).count()
    }

    fn take_spare(&mut self, old: &RingGroup) -> Option<RingGroup> {
        let per_node = self.fabric.hbd.gpus_per_node();
        let spares = (0..self.layout.groups.len()).filter(|g| {
            let group = &self.layout.groups[*g];
            let fits = group.job.is_none() && group.gpus(per_node) == old.gpus(per_node);
            fits && !self.is_broken(*g)
        });
        let leaves = self.leaves(old);
        let spare = spares.max_by_key(|g| self.near(&self.layout.groups[*g], &leaves))?;
        Some(RingGroup { job: old.job, ..self.layout.groups.remove(spare) })
    }

    fn fresh(&mut self, like: &RingGroup, kind: Fresh) -> Option<RingGroup> {
        let length = like.ranks.len();
        if self.idle.iter().filter(|idle| **idle).count() < length {
            return None;
        }
        let leaves = self.leaves(like);
        if self.fabric.hbd.grouping() != Grouping::Line {
            let tp = like.gpus(self.fabric.hbd.gpus_per_node());
            let groups = any_groups(self.fabric, self.survey, &self.idle, tp).into_iter();
            let group = groups.rev().max_by_key(|group| self.near(group, &leaves))?;
            return Some(RingGroup { job: like.job, ..group });
        }
        if spare::are_wanted(self.fabric) {
            let mut rings = spare::rings(self.fabric, self.survey, &self.idle, length).into_iter();
            let ring = rings.next().map(|ring| RingGroup { job: like.job, ..ring });
            if ring.is_some() || kind == Fresh::AsPlanned {
                return ring;
            }
        }
        let chains = chains_on_line(self.survey, &self.idle, length).into_iter();
        let rings = chains.map(|chain| RingGroup::chain(&self.fabric.hbd, &chain));
        let ring = rings.rev().max_by_key(|ring| self.near(ring, &leaves))?;
        Some(RingGroup { job: like.job, ..ring })
    }

    /// Also returns whether the group is a bypass of `old`. Dissolves every spare ring that loses a node.
    fn taken_from_spares(
        &mut self,
        old: &RingGroup,
        left: &RingGroup,
    ) -> Option<(RingGroup, bool)> {
        old.job?;
        let idle = self.idle.clone();
        self.free(&self.nodes_of_spares_alone(old));
        let mut found = match old.segment {
            Some(_) => self.inside(old),
            None => {
                let in_place = self.bypass(left, Effort::Any).map(|group| (group, true));
                in_place.or_else(|| self.fresh_if_ring(old, Fresh::Any).map(|group| (group, false)))
            }
        };
        self.idle = idle;
        let (group, _) = found.as_mut()?;
        self.take_apart(group);
        found
    }

    fn nodes_of_spares_alone(&self, old: &RingGroup) -> Vec<NodeId> {
        let others = self.layout.groups.iter().filter(|group| group.id != old.id);
        let (spares, used): (Vec<&RingGroup>, Vec<&RingGroup>) =
            others.partition(|group| group.job.is_none());
        let busy: BTreeSet<NodeId> = used.iter().flat_map(|group| &group.nodes).copied().collect();
        let spares = spares.iter().flat_map(|group| &group.nodes).copied();
        spares.filter(|node| !busy.contains(node)).collect()
    }

    fn take_apart(&mut self, group: &RingGroup) {
        for index in (0..self.layout.groups.len()).rev() {
            let spare = &self.layout.groups[index];
            if spare.job.is_none() && spare.nodes.iter().any(|node| group.nodes.contains(node)) {
                let spare = self.layout.groups.remove(index);
                self.free(&spare.nodes);
                self.spare_gone(&spare);
            }
        }
    }

    fn spare_gone(&mut self, spare: &RingGroup) {
        let (place, from) = (self.places.get(&spare.id).copied(), spare.nodes.clone());
        let lost = place.map(|group| GroupChange::Lost { job: None, group, from });
        self.groups.extend(lost);
    }

    fn inside(&self, like: &RingGroup) -> Option<(RingGroup, bool)> {
        let tp = like.gpus(self.fabric.hbd.gpus_per_node());
        let leaves = self.leaves(like);
        let groups = any_groups(self.fabric, self.survey, &self.idle, tp).into_iter();
        let groups = groups.filter(|group| self.keeps_light(group)).rev();
        let group = groups.max_by_key(|group| self.near(group, &leaves))?;
        Some((RingGroup { job: like.job, ..group }, false))
    }

    fn like_of(&self, job: u32) -> Option<RingGroup> {
        if let Some(own) = self.layout.groups_of(job).next() {
            return Some(own.clone());
        }
        let tp = self.layout.jobs[job as usize].tp;
        let groups = match tp {
            0 => Vec::new(),
            _ => any_groups(self.fabric, self.survey, &self.idle, tp),
        };
        groups.into_iter().next().map(|group| RingGroup { job: Some(job), ..group })
    }

    fn fill_jobs(&mut self) {
        for job in (0..).take(self.layout.jobs.len()) {
            while self.wants_more(job) {
                let Some(like) = self.like_of(job) else { break };
                let new = self.take_spare(&like).or_else(|| {
                    let group = self.fresh_if_ring(&like, Fresh::AsPlanned)?;
                    Some(RingGroup { id: self.layout.next_id(), ..group })
                });
                let Some(new) = new else { break };
                let (job, to) = (Some(job), new.ranks.clone());
                self.groups.push(GroupChange::Formed { job, to });
                let last_of_jobs =
                    self.layout.groups.iter().filter(|group| group.job.is_some()).count();
                self.layout.groups.insert(last_of_jobs, new.clone());
                self.settle(last_of_jobs, new, &[]);
            }
        }
        self.layout.groups.sort_by_key(|group| group.job.map_or((1, 0), |job| (0, job)));
    }

    fn regain_spares(&mut self) {
        for index in 0..self.layout.groups.len() {
            let old = self.layout.groups[index].clone();
            let new = spare::regained(self.fabric, self.survey, &self.idle, &old);
            let Some(new) = new else { continue };
            let (out, into) = (Vec::new(), Vec::new());
            self.groups.push(GroupChange::Bypassed { group: index, out, into });
            self.settle(index, new, &old.nodes);
        }
    }

    fn form_spares(&mut self) {
        for tp in spare_sizes(&self.fabric.jobs) {
            for spare in any_groups(self.fabric, self.survey, &self.idle, tp) {
                self.groups.push(GroupChange::Formed { job: None, to: spare.ranks.clone() });
                let spare = RingGroup { id: self.layout.next_id(), ..spare };
                self.layout.groups.push(spare.clone());
                self.settle(self.layout.groups.len() - 1, spare, &[]);
            }
        }
    }

    fn fresh_if_ring(&mut self, like: &RingGroup, kind: Fresh) -> Option<RingGroup> {
        let fresh = like.segment.is_none().then(|| self.fresh(like, kind)).flatten();
        fresh.filter(|group| self.keeps_light(group))
    }

    fn wants_more(&self, job: u32) -> bool {
        let outcome = &self.layout.jobs[job as usize];
        let has = self.layout.groups_of(job).count() as u64 * u64::from(outcome.tp);
        outcome.gpus_wanted.is_none_or(|wanted| has < wanted)
    }

    fn finish(self) -> Change {
        if !self.groups.is_empty() {
            // Computing the bound over all placements would take longer than a bypass may take.
            for job in &mut self.layout.jobs {
                (job.cross_tor_bound, job.most_rings) = (None, None);
            }
        }
        let bundles = self.before.iter().filter(|(bundle, _)| self.survey.bundle_works(**bundle));
        let bundles = bundles.map(|(bundle, from)| (*bundle, *from, self.layout.path(*bundle)));
        let bundles = bundles.filter(|(_, from, to)| from != to).collect();
        Change { bundles, groups: self.groups, ..Change::default() }
    }
}

fn idle(fabric: &Fabric, survey: &Survey<'_>, layout: &Layout) -> Vec<bool> {
    let reach = survey.alive().iter().zip(survey.in_reach());
    let mut idle: Vec<bool> = reach.map(|(alive, reach)| *alive && *reach).collect();
    for node in layout.groups.iter().flat_map(|group| &group.nodes) {
        idle[fabric.hbd.position_of(*node).index()] = false;
    }
    idle
}

fn replaced(old: &RingGroup, new: &RingGroup) -> (Vec<NodeId>, Vec<NodeId>) {
    let pairs = old.ranks.iter().zip(&new.ranks).filter(|(old, new)| old != new);
    pairs.map(|(old, new)| (*old, *new)).unzip()
}
