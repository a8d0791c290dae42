//! What a new plan means for the groups: which give up what they do, where they go on and when.

use std::collections::BTreeMap;

use lightloom_engine::steady::Stage;
use lightloom_fabric::fault::Part;
use lightloom_planner::khop::{Change, GroupChange};
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::{Picoseconds, SimTime};

use super::healing::Act;
use super::{Lane, Story};
use crate::scenario::{Effect, ScenarioError, Target};

/// One group that a new plan moves.
struct Move {
    lane: usize,
    /// Its nodes from now on; nothing if it is lost.
    to: Option<Vec<NodeId>>,
}

impl Story<'_> {
    /// Stops the lanes whose groups changed and plans when they go on. `before` are the nodes of each
    /// group before, in rank order; `lit_at` says when each switched bundle is lit.
    pub(super) fn move_lanes(
        &mut self,
        fault: Option<usize>,
        before: &[Vec<NodeId>],
        change: &Change,
        lit_at: &BTreeMap<BundleId, SimTime>,
    ) -> Result<(), ScenarioError> {
        let mut restored = lit_at.values().copied().max().unwrap_or(self.engine.now());
        let mut all_live = true;
        for group in &change.groups {
            let Some(Move { lane, to }) = self.moved(group, before) else { continue };
            if matches!(group, GroupChange::Formed { .. }) {
                self.lanes[lane].stopped = true;
            } else {
                self.stop(lane);
                self.blame(fault, lane, to.is_none());
            }
            let Some(ranks) = to else {
                all_live = false;
                self.lose(lane)?;
                continue;
            };
            let resumes = self.resumes_at(&ranks, lit_at);
            restored = restored.max(resumes);
            self.lanes[lane].ranks = ranks;
            if std::mem::take(&mut self.lanes[lane].lost) {
                self.credit(lane, resumes);
            }
            // Links that come up do so at that instant; routes over them exist right after it.
            self.at(resumes + Picoseconds(1), Act::Resume(lane));
        }
        if let Some(fault) = fault.filter(|_| all_live) {
            self.healings[fault].restored = Some(restored);
        }
        Ok(())
    }

    /// The lane that a change of a group is about, and where it goes.
    fn moved(&mut self, group: &GroupChange, before: &[Vec<NodeId>]) -> Option<Move> {
        let (old, to) = match group {
            GroupChange::Bypassed { group, out, into } => {
                let replaced = |node: &NodeId| match out.iter().position(|gone| gone == node) {
                    Some(place) => into[place],
                    None => *node,
                };
                (&before[*group], Some(before[*group].iter().map(replaced).collect()))
            }
            GroupChange::Moved { group, to, .. } => (&before[*group], Some(to.clone())),
            GroupChange::Lost { job: Some(_), group, .. } => (&before[*group], None),
            GroupChange::Lost { job: None, .. } | GroupChange::Formed { job: None, .. } => {
                return None;
            }
            GroupChange::Formed { job: Some(job), to } => {
                return Some(Move { lane: self.lane_to_fill(*job, to), to: Some(to.clone()) });
            }
        };
        let lane = self.lanes.iter().position(|lane| !lane.lost && lane.ranks == *old)?;
        Some(Move { lane, to })
    }

    /// A group that a repair makes possible takes up the work of a lost one; if none is lost, it is one
    /// more than there was at the start. It joins its job where the other groups are.
    fn lane_to_fill(&mut self, job: u32, to: &[NodeId]) -> usize {
        let lost = self.lanes.iter().position(|lane| lane.lost && lane.job == job);
        let index = lost.unwrap_or_else(|| {
            let like = self.layout.groups_of(job).find(|group| group.nodes.len() == to.len());
            let like = like.expect("the group that was formed is in the plan");
            let lane = Lane::of(like, self.fabric.hbd.gpus_per_node());
            self.lanes.push(lane.expect("it belongs to a job"));
            self.lanes.len() - 1
        });
        let passed = self.between[job as usize].passed;
        let lane = &mut self.lanes[index];
        lane.next = lane.next.max(passed);
        index
    }

    /// A lost lane is formed again: the faults that wait for nothing else are healed then.
    fn credit(&mut self, lane: usize, resumes: SimTime) {
        let lanes = &self.lanes;
        for healing in &mut self.healings {
            let waits = healing.lanes.iter().any(|other| lanes[*other].lost);
            if healing.lanes.contains(&lane) && healing.replanned.is_some() && !waits {
                healing.restored.get_or_insert(resumes);
            }
        }
    }

    fn resumes_at(&self, ranks: &[NodeId], lit_at: &BTreeMap<BundleId, SimTime>) -> SimTime {
        let mine = |bundle: &&BundleId| ranks.contains(&bundle.node);
        let lit = lit_at.keys().filter(mine).map(|bundle| lit_at[bundle]).max();
        lit.unwrap_or(self.engine.now() + self.fabric.transceiver.software_delay)
    }

    /// Puts the move of a lane down to the faults that hit it and to a bundle in it that did not obey, or
    /// else to the fault replanned for.
    fn blame(&mut self, fault: Option<usize>, lane: usize, is_lost: bool) {
        let hit = (0..self.healings.len()).filter(|fault| {
            self.broken.active[*fault] && self.healings[*fault].lanes.contains(&lane)
        });
        let mut to_blame: Vec<usize> = hit.collect();
        let disobeyed = fault.filter(|fault| self.is_stuck_in(*fault, lane));
        to_blame.extend(disobeyed);
        if to_blame.is_empty() {
            to_blame.extend(fault);
        }
        for fault in &to_blame {
            self.healings[*fault].lanes.insert(lane);
        }
        // GPUs of a lost group are lost once, to the first fault, beyond those on broken nodes.
        if let (true, Some(first)) = (is_lost, to_blame.first()) {
            let broken = |node: &&NodeId| self.control.known.nodes.contains(node);
            let working = self.lanes[lane].ranks.iter().filter(|node| !broken(node)).count() as u64;
            let per_node = u64::from(self.fabric.hbd.gpus_per_node());
            let gpus = (working * per_node).min(u64::from(self.lanes[lane].gpus));
            self.healings[*first].gpus_lost += gpus;
        }
    }

    /// Whether a fault is a bundle of a lane's nodes that hangs.
    fn is_stuck_in(&self, fault: usize, lane: usize) -> bool {
        let strike = &self.strikes[fault];
        let ranks = &self.lanes[lane].ranks;
        let is_here = |target: &Target| match target {
            Target::Part(Part::Bundle(bundle)) => ranks.contains(&bundle.node),
            _ => false,
        };
        strike.effect == Effect::Stuck && strike.targets.iter().any(is_here)
    }

    /// Gives up what a lane and its job are doing.
    fn stop(&mut self, index: usize) {
        let now = self.engine.now();
        let program_length = self.program_length;
        let lane = &mut self.lanes[index];
        lane.stopped = true;
        lane.goes_down(now, program_length);
        let running = lane.running.take();
        let job = lane.job as usize;
        let between = self.between[job].running.take();
        for given_up in running.into_iter().chain(between) {
            for part in given_up.parts {
                self.owner.remove(&part.batch);
                part.cancel(&mut self.engine);
            }
        }
    }

    /// A lane is gone; the others of its job go on without it.
    fn lose(&mut self, index: usize) -> Result<(), ScenarioError> {
        self.lanes[index].lost = true;
        self.lanes[index].links.clear();
        self.advance_between(self.lanes[index].job as usize)
    }

    pub(super) fn resume(&mut self, index: usize) -> Result<(), ScenarioError> {
        // Lost, or formed anew elsewhere, since this was planned.
        if self.lanes[index].lost {
            return Ok(());
        }
        let now = self.engine.now();
        self.lanes[index].links = self.links_of_lane(index);
        let group = self.group_of(index);
        self.lanes[index].stopped = false;
        if self.is_ready(&group) {
            self.lanes[index].comes_back(now);
        }
        self.advance_lane(index)?;
        self.advance_between(self.lanes[index].job as usize)
    }
}
