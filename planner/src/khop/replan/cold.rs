// SPDX-License-Identifier: Apache-2.0
//! Moves groups to the placement of a new plan in few moves. Used if the search for the least
//! change (`least`) does not apply or runs out of steps.
//!
//! Each former group keeps its identifier and moves to the new group that has the most nodes in
//! common with it. Nodes that remain in the group keep their ranks. A group whose nodes stay the
//! same does not move.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_units::id::NodeId;

use super::super::{Layout, Method, RingGroup, Survey, plan};
use super::least::{is_sized, unit};
use super::{GroupChange, Work, idle, replaced};

/// Returns a new plan if some job has more groups in it than in `least` and no job has fewer. Only sized jobs count.
pub(super) fn with_more_groups(
    fabric: &Fabric,
    survey: &Survey<'_>,
    least: &Layout,
) -> Option<Layout> {
    if survey.is_bounded() {
        return None;
    }
    let jobs = (0_u32..).zip(&fabric.jobs).filter(|(_, job)| is_sized(job));
    let cold = plan(fabric, survey.faults(), Method::Scan).ok()?;
    let units = jobs.map(|(index, job)| {
        [&cold, least].map(|layout| layout.groups_of(index).count() / unit(job))
    });
    let units: Vec<[usize; 2]> = units.collect();
    let is_worse = units.iter().any(|[cold, least]| cold < least);
    let is_better = units.iter().any(|[cold, least]| cold > least);
    (is_better && !is_worse).then_some(cold)
}

impl Work<'_> {
    /// `given` maps the place of a former group to the new group with its identifier and ranks.
    pub(super) fn place(&mut self, new: &[RingGroup], given: BTreeMap<usize, usize>) {
        let old = std::mem::take(&mut self.layout.groups);
        let (mut groups, mut lost) = (Vec::new(), Vec::new());
        for (place, was) in old.iter().enumerate() {
            match given.get(&place).map(|at| &new[*at]) {
                Some(now) => groups.push(self.moved(place, was, now)),
                None if was.job.is_some() => {
                    let from = was.nodes.clone();
                    self.groups.push(GroupChange::Lost { job: was.job, group: place, from });
                    lost.push(groups.len());
                    groups.push(was.clone());
                }
                None => self.spare_gone(was),
            }
        }
        self.layout.groups = groups;
        for group in lost.into_iter().rev() {
            self.close_gap(group);
        }
        let taken: BTreeSet<usize> = given.into_values().collect();
        for (_, group) in new.iter().enumerate().filter(|(at, _)| !taken.contains(at)) {
            let (job, to) = (group.job, group.ranks.clone());
            self.groups.push(GroupChange::Formed { job, to });
            let id = self.layout.next_id();
            self.layout.groups.push(RingGroup { id, ..group.clone() });
        }
        self.layout.groups.sort_by_key(|group| group.job.map_or((1, 0), |job| (0, job)));
        self.light_all();
        self.idle = idle(self.fabric, self.survey, self.layout);
    }

    pub(super) fn become_groups(&mut self, new: Vec<RingGroup>) {
        let old = std::mem::take(&mut self.layout.groups);
        let now: BTreeMap<_, _> = new.iter().map(|group| (group.id, group)).collect();
        for (place, was) in old.iter().enumerate() {
            match now.get(&was.id) {
                Some(now) if now.ranks != was.ranks => self.note_move(place, was, now),
                Some(_) => {}
                None if was.job.is_some() => {
                    let from = was.nodes.clone();
                    self.groups.push(GroupChange::Lost { job: was.job, group: place, from });
                }
                None => self.spare_gone(was),
            }
        }
        let known: BTreeSet<_> = old.iter().map(|group| group.id).collect();
        for group in new.iter().filter(|group| !known.contains(&group.id)) {
            let (job, to) = (group.job, group.ranks.clone());
            self.groups.push(GroupChange::Formed { job, to });
        }
        self.layout.keep_ids(new.iter().map(|group| group.id));
        self.layout.groups = new;
        self.light_all();
        self.idle = idle(self.fabric, self.survey, self.layout);
    }

    fn note_move(&mut self, place: usize, was: &RingGroup, new: &RingGroup) {
        self.groups.push(match new.ranks.iter().any(|node| was.ranks.contains(node)) {
            true => {
                let (out, into) = replaced(was, new);
                GroupChange::Bypassed { group: place, out, into }
            }
            false => {
                let (from, to) = (was.nodes.clone(), new.ranks.clone());
                GroupChange::Moved { group: place, from, to }
            }
        });
    }

    fn moved(&mut self, place: usize, was: &RingGroup, now: &RingGroup) -> RingGroup {
        let is_same = nodes_in_order(was) == nodes_in_order(now) && was.segment == now.segment;
        if is_same && !self.is_broken_group(was) {
            return was.clone();
        }
        let ranks = kept_ranks(&was.ranks, &now.ranks);
        let new = RingGroup { id: was.id, ranks, ..now.clone() };
        if was.job.is_some() {
            self.note_move(place, was, &new);
        }
        new
    }

    fn light_all(&mut self) {
        let nodes: Vec<NodeId> = (0..self.fabric.hbd.nodes()).map(NodeId).collect();
        self.remember(&nodes);
        for group in self.layout.groups.clone() {
            self.layout.light(&self.fabric.hbd, &group);
        }
        self.put_out(&nodes);
    }
}

fn nodes_in_order(group: &RingGroup) -> Vec<NodeId> {
    let mut nodes = group.nodes.clone();
    nodes.sort_unstable();
    nodes
}

fn kept_ranks(was: &[NodeId], now: &[NodeId]) -> Vec<NodeId> {
    if was.len() != now.len() {
        return now.to_vec();
    }
    let mut newcomers = now.iter().filter(|node| !was.contains(node));
    let ranks = was.iter().map(|node| match now.contains(node) {
        true => Some(*node),
        false => newcomers.next().copied(),
    });
    ranks.collect::<Option<Vec<NodeId>>>().unwrap_or_else(|| now.to_vec())
}

/// Maps places in `old` to indices in `new`. A spare is only matched to a group with the same nodes.
pub(crate) fn matched(old: &[RingGroup], new: &[RingGroup]) -> BTreeMap<usize, usize> {
    let mut of_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (place, group) in old.iter().enumerate() {
        for node in &group.nodes {
            of_node.entry(*node).or_default().push(place);
        }
    }
    let mut pairs = Vec::new();
    for (at, group) in new.iter().enumerate() {
        let mut common: BTreeMap<usize, usize> = BTreeMap::new();
        for place in group.nodes.iter().filter_map(|node| of_node.get(node)).flatten() {
            *common.entry(*place).or_default() += 2;
        }
        for (place, mut nodes) in common {
            let was = &old[place];
            nodes += usize::from(was.segment == group.segment);
            let is_same = nodes == 2 * was.nodes.len() + 1 && was.nodes.len() == group.nodes.len();
            if was.job == group.job && (was.job.is_some() || is_same) {
                pairs.push((std::cmp::Reverse(nodes), place, at));
            }
        }
    }
    pairs.sort_unstable();
    let mut given = BTreeMap::new();
    let mut is_taken = vec![false; new.len()];
    for (_, place, at) in pairs {
        if !is_taken[at] && !given.contains_key(&place) {
            is_taken[at] = true;
            given.insert(place, at);
        }
    }
    // Match the other groups of each job too, even though they share no nodes.
    for (at, group) in new.iter().enumerate().filter(|(_, group)| group.job.is_some()) {
        if !is_taken[at]
            && let Some(place) = (0..old.len())
                .find(|place| old[*place].job == group.job && !given.contains_key(place))
        {
            given.insert(place, at);
        }
    }
    given
}
