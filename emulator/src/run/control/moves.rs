// SPDX-License-Identifier: Apache-2.0
//! Applies a new plan to the groups, and attributes each move to faults.

use std::collections::BTreeMap;

use lightloom_fabric::fault::Part as PlannedPart;
use lightloom_planner::khop::{Change, GroupChange};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::{Picoseconds, SimTime};

use super::super::context::{Context, GroupMove, Notice};
use super::replan::{Placed, Replanner};
use crate::scenario::Effect;

impl Replanner<'_> {
    /// `before` lists the previous nodes of each group in rank order.
    pub(super) fn move_groups(
        &mut self,
        context: &mut Context<'_>,
        fault: Option<usize>,
        before: &[Vec<NodeId>],
        change: &Change,
        lit_at: &BTreeMap<BundleId, SimTime>,
    ) {
        let mut restored = lit_at.values().copied().max().unwrap_or(context.now());
        let mut moves = Vec::new();
        // Look up all groups before changing any, because groups can exchange nodes.
        let places = before.iter().map(|nodes| {
            self.groups.iter().position(|group| !group.is_lost && group.nodes == *nodes)
        });
        let places: Vec<Option<usize>> = places.collect();
        for changed in &change.groups {
            let Some((group, to)) = self.moved(changed, before, &places) else { continue };
            let is_formed = matches!(changed, GroupChange::Formed { .. });
            if !is_formed {
                self.attribute(context, fault, group, to.is_none());
            }
            let Some(nodes) = to else {
                self.groups[group].is_lost = true;
                let resumes = context.now();
                moves.push(GroupMove { group, members: None, is_formed, resumes });
                continue;
            };
            let resumes = self.resumes_at(context, &nodes, lit_at);
            restored = restored.max(resumes);
            self.groups[group].nodes = nodes;
            self.groups[group].resumes = resumes;
            if std::mem::take(&mut self.groups[group].is_lost) {
                self.credit(context, group, resumes);
            }
            moves.push(GroupMove { group, members: None, is_formed, resumes });
        }
        // Final members are known only after all moves.
        for moved in &mut moves {
            let is_lost = self.groups[moved.group].is_lost;
            moved.members = (!is_lost).then(|| self.members_of(moved.group));
        }
        if !moves.is_empty() {
            context.post(Notice::Groups(moves));
        }
        if let Some(fault) = fault {
            self.restore(context, fault, restored);
        }
    }

    /// A group lost to one fault does not delay the restoration of another fault.
    fn restore(&self, context: &mut Context<'_>, fault: usize, moved: SimTime) {
        let mut own = context.faults[fault].groups.iter().map(|group| &self.groups[*group]);
        let on_their_way = own.clone().map(|group| group.resumes).max().unwrap_or_default();
        if own.any(|group| group.is_lost) {
            return;
        }
        context.faults[fault].restored = Some(moved.max(on_their_way));
    }

    fn moved(
        &mut self,
        change: &GroupChange,
        before: &[Vec<NodeId>],
        places: &[Option<usize>],
    ) -> Option<(usize, Option<Vec<NodeId>>)> {
        let (group, to) = match change {
            GroupChange::Bypassed { group, out, into } => {
                let mut nodes = before[*group].clone();
                for node in &mut nodes {
                    if let Some(place) = out.iter().position(|gone| gone == node) {
                        *node = into[place];
                    }
                }
                (*group, Some(nodes))
            }
            GroupChange::Moved { group, to, .. } => (*group, Some(to.clone())),
            GroupChange::Lost { job: Some(_), group, .. } => (*group, None),
            GroupChange::Lost { job: None, .. } | GroupChange::Formed { job: None, .. } => {
                return None;
            }
            GroupChange::Formed { job: Some(job), to } => {
                return Some((self.group_to_fill(*job, to), Some(to.clone())));
            }
        };
        Some((places[group]?, to))
    }

    fn group_to_fill(&mut self, job: u32, to: &[NodeId]) -> usize {
        let lost = self.groups.iter().position(|group| group.is_lost && group.job == job);
        lost.unwrap_or_else(|| {
            let like = self.layout.groups_of(job).find(|group| group.ranks.len() == to.len());
            let like = like.expect("the plan contains the newly formed group");
            let gpus = like.gpus(self.fabric.hbd.gpus_per_node());
            let (nodes, is_lost, resumes) = (like.ranks.clone(), false, SimTime::START);
            self.groups.push(Placed { job, nodes, gpus, is_lost, resumes });
            self.groups.len() - 1
        })
    }

    fn credit(&self, context: &mut Context<'_>, group: usize, resumes: SimTime) {
        for log in &mut context.faults {
            let waits = log.groups.iter().any(|other| self.groups[*other].is_lost);
            if log.groups.contains(&group) && log.replanned.is_some() && !waits {
                log.restored.get_or_insert(resumes);
            }
        }
    }

    fn resumes_at(
        &self,
        context: &Context<'_>,
        nodes: &[NodeId],
        lit_at: &BTreeMap<BundleId, SimTime>,
    ) -> SimTime {
        let own = self.layout.groups.iter().find(|group| group.ranks == nodes);
        let passing = own.and_then(|group| group.passing);
        let mine = lit_at.iter().filter(|(bundle, _)| {
            nodes.contains(&bundle.node) || passing.is_some_and(|node| node == bundle.node)
        });
        let lit = mine.map(|(_, at)| *at).max();
        let software = match self.fabric.hbd.ring() {
            Some(_) => self.fabric.transceiver.software_delay,
            None => Picoseconds::ZERO,
        };
        lit.unwrap_or(context.now() + software)
    }

    fn attribute(
        &self,
        context: &mut Context<'_>,
        fault: Option<usize>,
        group: usize,
        is_lost: bool,
    ) {
        let hit = (0..context.faults.len()).filter(|fault| {
            context.active[*fault] && context.faults[*fault].groups.contains(&group)
        });
        let mut causes: Vec<usize> = hit.collect();
        causes.extend(fault.filter(|fault| self.is_stuck_in(context, *fault, group)));
        if causes.is_empty() {
            causes.extend(fault);
        }
        for fault in &causes {
            context.faults[*fault].groups.insert(group);
        }
        // Count a lost group's GPUs only once, for the first fault. GPUs of failed nodes are
        // counted for the fault of their node; a daemon identifies these nodes by their bundles.
        if let (true, Some(first)) = (is_lost, causes.first()) {
            let placed = &self.groups[group];
            let failed = context.failed_nodes(|_| true);
            let known = self.known.failed_nodes(&self.fabric.hbd);
            let nodes = placed.nodes.iter();
            let working = nodes.filter(|node| !failed.contains(node) && !known.contains(node));
            let working = working.count() as u64;
            let per_node = u64::from(self.fabric.hbd.gpus_per_node());
            context.faults[*first].gpus_lost += (working * per_node).min(u64::from(placed.gpus));
        }
    }

    fn is_stuck_in(&self, context: &Context<'_>, fault: usize, group: usize) -> bool {
        let event = &context.events[fault];
        let nodes = &self.groups[group].nodes;
        event.effect == Effect::Stuck
            && event.planned().iter().any(|part| match part {
                PlannedPart::Bundle(bundle) => nodes.contains(&bundle.node),
                _ => false,
            })
    }
}
