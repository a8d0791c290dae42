// SPDX-License-Identifier: Apache-2.0
//! Effects of faults and new plans on training jobs: which groups wait or restart, and from where.

use std::collections::BTreeSet;

use lightloom_engine::LinkId;
use lightloom_fabric::fault::Part;
use lightloom_training::graph::{TaskId, TaskWork};
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::{Picoseconds, SimTime};
use petgraph::unionfind::UnionFind;

use super::super::super::RunResult;
use super::super::super::context::{Context, GroupMove};
use super::{Interruption, TrainTimer, TrainingJob, Trainings, tasks};
use crate::scenario::Checkpoints;

fn is_loose(purpose: TaskPurpose) -> bool {
    use TaskPurpose::{Data, Reshard, Samples, Weights};
    matches!(purpose, Data | Samples | Weights | Reshard)
}

impl TrainingJob<'_> {
    fn interrupt(&mut self, context: &mut Context<'_>, ring: usize, is_all: bool) {
        let tensor = self.order.tensor();
        for task in self.running.clone() {
            let is_hit = match &self.order.graph.tasks()[task.index()].work {
                TaskWork::Ring { ring: of, .. } => *of as usize == ring,
                TaskWork::Compute { rank, .. } => is_all && (rank / tensor) as usize == ring,
                _ => false,
            };
            if is_hit {
                self.hold(context, task);
            }
        }
    }

    /// Returns these groups and all groups that exchange more than gradients with them.
    fn tied_to(&self, rings: &[usize]) -> BTreeSet<u32> {
        let tensor = self.order.tensor();
        let mut joined = UnionFind::new(self.seats.len());
        for (task, dimension) in self.order.graph.tasks().iter().zip(&self.order.dimensions) {
            if is_loose(*dimension) {
                continue;
            }
            let tied = tasks::rings_of(&task.work, tensor);
            for pair in tied.windows(2) {
                joined.union(pair[0], pair[1]);
            }
        }
        let all = 0..self.seats.len() as u32;
        all.filter(|ring| rings.iter().any(|of| joined.equiv(*of as u32, *ring))).collect()
    }

    fn undo(&mut self, context: &mut Context<'_>, rings: &[usize]) {
        self.restarts += 1;
        let trainer: Vec<usize> =
            rings.iter().copied().filter(|ring| !self.order.is_pool(*ring)).collect();
        if !trainer.is_empty() {
            self.undo_training(context, &trainer);
        }
        if self.order.step.pool.is_some() {
            self.undo_generation(context, rings);
        }
        self.phases.recount(|task| self.schedule.is_done(task));
    }

    /// Finished chunks were passed on, so a replica restores its weights and caches and repeats the
    /// current chunk. Its transfers are also repeated.
    fn undo_generation(&mut self, context: &mut Context<'_>, rings: &[usize]) {
        let order = self.order;
        let theirs: BTreeSet<u32> = rings.iter().map(|ring| *ring as u32).collect();
        let mut lost = Vec::new();
        for (at, task) in order.graph.tasks().iter().enumerate() {
            let is_done = self.schedule.is_done(TaskId(at as u32));
            let is_undone = match (&task.work, order.dimensions[at]) {
                (TaskWork::Compute { rank, .. }, TaskPurpose::Generation) => {
                    let is_lost = !is_done && theirs.contains(&(rank / order.tensor()));
                    let is_next = task.after.iter().all(|task| self.schedule.is_done(*task));
                    self.tasks[at].is_again |= is_lost && is_next;
                    is_lost
                }
                (TaskWork::Transfer { from, to, .. }, purpose) if is_loose(purpose) => {
                    let [from, to] =
                        [from, to].map(|rank| theirs.contains(&(rank / order.tensor())));
                    let is_gone = is_done && purpose != TaskPurpose::Samples && to;
                    is_gone || !is_done && (from || to)
                }
                _ => false,
            };
            if is_undone {
                lost.push(TaskId(at as u32));
            }
        }
        for task in self.schedule.undo(&order.graph, &lost) {
            self.drop_task(context, task);
        }
    }

    fn undo_training(&mut self, context: &mut Context<'_>, rings: &[usize]) {
        let tied = self.rolled_back(rings);
        let (graph, tensor) = (&self.order.graph, self.order.tensor());
        let theirs = graph.tasks().iter().zip(&self.order.dimensions).enumerate();
        let theirs = theirs.filter(|(at, (task, dimension))| {
            let own = tasks::rings_of(&task.work, tensor);
            if !is_loose(**dimension) {
                return own.iter().any(|ring| tied.contains(ring));
            }
            // A group that was lost while gathering weights gathers them again, but weights gathered earlier are kept.
            let is_lost = own.iter().any(|ring| rings.contains(&(*ring as usize)));
            is_lost && self.running.contains(&TaskId(*at as u32))
        });
        let theirs: Vec<TaskId> = theirs.map(|(at, _)| TaskId(at as u32)).collect();
        for task in self.schedule.undo(graph, &theirs) {
            self.drop_task(context, task);
        }
        if let Some(Checkpoints { every, .. }) = self.order.train.restart.rolls_back_to() {
            let step = self.steps.len() as u32 - 1;
            self.rounds = step % every + 1;
            self.loads = true;
        }
    }

    fn rolled_back(&self, rings: &[usize]) -> BTreeSet<u32> {
        match self.order.train.restart.rolls_back_to() {
            None => self.tied_to(rings),
            Some(_) => (0..self.seats.len() as u32).collect(),
        }
    }

    fn note_outage(&mut self, context: &Context<'_>, group: usize, ring: usize, ended: SimTime) {
        let now = context.now();
        let causes = (0..context.faults.len()).filter(|fault| {
            let log = &context.faults[*fault];
            let is_open = log.restored.is_none_or(|at| at >= now);
            is_open && log.groups.contains(&group) && !context.events[*fault].planned().is_empty()
        });
        let rings = match self.order.is_pool(ring) {
            true => BTreeSet::from([ring as u32]),
            false => self.rolled_back(&[ring]),
        };
        self.outages.push(Interruption {
            began: self.seats[ring].down_since.unwrap_or(now),
            ended,
            fault: causes.min_by_key(|fault| context.faults[*fault].mattered),
            rings,
        });
    }

    fn all_can_work(&self) -> bool {
        self.seats.iter().all(super::Seat::can_work)
    }
}

impl Trainings<'_> {
    pub(super) fn fault_hits(&mut self, context: &mut Context<'_>, fault: usize, links: &[LinkId]) {
        let (event, now) = (&context.events[fault], context.now());
        let goes_dark = event.effect.goes_dark();
        let nodes: BTreeSet<_> = event
            .planned()
            .into_iter()
            .filter_map(|part| if let Part::Node(node) = part { Some(node) } else { None })
            .collect();
        for (group, place) in self.places.iter().enumerate() {
            let Some((job, ring)) = *place else { continue };
            let training = &mut self.jobs[job];
            let seat = &mut training.seats[ring];
            let [is_hit, on_ring] = [&seat.links, &seat.ring_links]
                .map(|own| links.iter().any(|link| own.binary_search(link).is_ok()));
            let rings = context.substrate.rings.as_ref();
            let mut gpus = seat.members.ranks.iter().filter_map(|rank| rings?.gpu(*rank));
            // A failed interface removes the node from the plan but does not erase its state.
            let is_dead = goes_dark
                && gpus.any(|gpu| nodes.contains(&gpu.node))
                && (on_ring || !seat.has_ring());
            if seat.is_lost || !(is_dead || is_hit) || training.is_done() {
                continue;
            }
            context.faults[fault].groups.insert(group);
            training.hit_by.insert(fault);
            let seat = &mut training.seats[ring];
            if !goes_dark {
                seat.slowed_by += u32::from(on_ring);
                continue;
            }
            if is_dead || on_ring {
                seat.goes_down(now);
                seat.is_dead |= is_dead;
                training.interrupt(context, ring, is_dead);
            }
        }
    }

    pub(super) fn fault_is_over(&mut self, context: &mut Context<'_>, fault: usize) {
        let event = &context.events[fault];
        let goes_dark = event.effect.goes_dark();
        let (links, soon) = (event.links(), context.now() + Picoseconds(1));
        for group in context.faults[fault].groups.clone() {
            let Some((job, ring)) = self.places.get(group).copied().flatten() else { continue };
            let seat = &mut self.jobs[job].seats[ring];
            let on_ring = links.iter().any(|link| seat.ring_links.binary_search(link).is_ok());
            if !goes_dark && on_ring {
                seat.slowed_by = seat.slowed_by.saturating_sub(1);
            }
            self.plan(context, soon, TrainTimer::Wake, job, 0, ring as u32);
        }
    }

    pub(super) fn move_groups(
        &mut self,
        context: &mut Context<'_>,
        moves: &[GroupMove],
    ) -> RunResult {
        let mut again: Vec<Vec<usize>> = vec![Vec::new(); self.jobs.len()];
        for moved in moves {
            let Some((job, ring)) = self.places.get(moved.group).copied().flatten() else {
                continue;
            };
            let training = &mut self.jobs[job];
            if training.is_done() {
                continue;
            }
            let moved_by = context.faults.iter().enumerate();
            let moved_by = moved_by.filter(|(_, log)| log.groups.contains(&moved.group));
            training.hit_by.extend(moved_by.map(|(fault, _)| fault));
            let seat = &mut training.seats[ring];
            seat.goes_down(context.now());
            let Some(members) = &moved.members else {
                seat.is_lost = true;
                training.interrupt(context, ring, true);
                continue;
            };
            let is_elsewhere = seat.members.ranks != members.ranks || seat.is_lost;
            let has_lost_state = seat.is_dead || is_elsewhere;
            seat.members = members.clone();
            (seat.is_lost, seat.is_dead, seat.is_stopped) = (false, false, true);
            training.interrupt(context, ring, true);
            // Links come up at this instant, but routes use them only afterwards.
            let resumes = moved.resumes + Picoseconds(1);
            if has_lost_state {
                again[job].push(ring);
                training.note_outage(context, moved.group, ring, resumes);
            }
            self.plan(context, resumes, TrainTimer::Resume, job, 0, ring as u32);
        }
        for (job, rings) in again.iter().enumerate().filter(|(_, rings)| !rings.is_empty()) {
            self.jobs[job].undo(context, rings);
            self.ask(context, job, false);
            self.begin_ready(context, job)?;
        }
        Ok(())
    }

    pub(super) fn resume(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        ring: usize,
    ) -> RunResult {
        let now = context.now();
        let seat = &mut self.jobs[job].seats[ring];
        if seat.is_lost || seat.is_dead {
            return Ok(());
        }
        seat.is_stopped = false;
        seat.find_links(context);
        if seat.has_light(context) {
            seat.comes_back(now);
        }
        self.go_on(context, job)
    }

    pub(super) fn wake(&mut self, context: &mut Context<'_>, job: usize, ring: usize) -> RunResult {
        let now = context.now();
        let place = self.places.iter().position(|place| *place == Some((job, ring)));
        let training = &mut self.jobs[job];
        let seat = &training.seats[ring];
        if seat.is_lost || seat.is_stopped || !seat.has_light(context) {
            return Ok(());
        }
        // The node returned before replanning, but has lost its state.
        if let (true, Some(group)) = (seat.is_dead, place) {
            training.note_outage(context, group, ring, now);
            training.seats[ring].is_dead = false;
            training.undo(context, &[ring]);
            self.ask(context, job, false);
        }
        self.jobs[job].seats[ring].comes_back(now);
        self.begin_ready(context, job)?;
        self.go_on(context, job)
    }

    fn go_on(&mut self, context: &mut Context<'_>, job: usize) -> RunResult {
        let training = &mut self.jobs[job];
        if training.loads && training.all_can_work() {
            if let Some(Checkpoints { load, .. }) = training.order.train.restart.rolls_back_to() {
                let turn = training.restarts as u16;
                if let Some(outage) = training.outages.last_mut() {
                    outage.ended = outage.ended.max(context.now() + load.0);
                }
                self.plan(context, context.now() + load.0, TrainTimer::Loaded, job, turn, 0);
            }
            return Ok(());
        }
        self.retry_held(context, job)
    }

    pub(super) fn loaded(&mut self, context: &mut Context<'_>, job: usize, turn: u16) -> RunResult {
        let training = &mut self.jobs[job];
        if training.restarts as u16 != turn || !training.loads || !training.all_can_work() {
            return Ok(());
        }
        training.loads = false;
        training.round = context.now();
        self.retry_held(context, job)
    }
}
