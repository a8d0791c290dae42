// SPDX-License-Identifier: Apache-2.0
//! What faults and new plans do to the groups of jobs that train: who waits, who begins again, and from where.

use std::collections::BTreeSet;

use lightloom_engine::LinkId;
use lightloom_fabric::fault::Part;
use lightloom_training::graph::{TaskId, TaskWork};
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::{Picoseconds, SimTime};

use super::super::super::RunError;
use super::super::super::context::{Context, GroupMove};
use super::{TrainTimer, TrainingJob, Trainings, tasks};
use crate::scenario::{Checkpoints, Effect};

/// Whether groups that exchange for this are not held by each other's state.
fn is_loose(purpose: TaskPurpose) -> bool {
    use TaskPurpose::{Data, Reshard, Samples, Weights};
    matches!(purpose, Data | Samples | Weights | Reshard)
}

impl TrainingJob<'_> {
    /// Holds the tasks under way of a group: all of them, or what goes round its ring.
    fn interrupt(&mut self, context: &mut Context<'_>, ring: usize, is_all: bool) {
        let tensor = self.order.tensor();
        let is_mine = |task: &TaskId| {
            let work = &self.order.graph.tasks()[task.index()].work;
            match work {
                TaskWork::Ring { ring: of, .. } => *of as usize == ring,
                TaskWork::Compute { rank, .. } => is_all && (rank / tensor) as usize == ring,
                _ => false,
            }
        };
        let mine: Vec<TaskId> = self.running.iter().copied().filter(is_mine).collect();
        mine.into_iter().for_each(|task| self.hold(context, task));
    }

    /// These groups and all that exchange anything but gradients with them, directly or not.
    fn tied_to(&self, rings: &[usize]) -> BTreeSet<u32> {
        let tensor = self.order.tensor();
        let mut first: Vec<u32> = (0..self.seats.len() as u32).collect();
        fn root(first: &mut [u32], mut ring: u32) -> u32 {
            while first[ring as usize] != ring {
                first[ring as usize] = first[first[ring as usize] as usize];
                ring = first[ring as usize];
            }
            ring
        }
        for (task, dimension) in self.order.graph.tasks().iter().zip(&self.order.dimensions) {
            if is_loose(*dimension) {
                continue;
            }
            let tied = tasks::rings_of(&task.work, tensor);
            for pair in tied.windows(2) {
                let [a, b] = [root(&mut first, pair[0]), root(&mut first, pair[1])];
                first[a as usize] = b;
            }
        }
        let roots: BTreeSet<u32> =
            rings.iter().map(|ring| root(&mut first, *ring as u32)).collect();
        let all = 0..self.seats.len() as u32;
        all.filter(|ring| roots.contains(&root(&mut first, *ring))).collect()
    }

    /// Undoes what groups that lost their state have to do again.
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

    /// A replica that lost its memory has handed on what ended before: it generates the chunk under way again, once it has its
    /// weights and caches back. What was under way to or from these groups is sent again, and weights that were lost.
    fn undo_generation(&mut self, context: &mut Context<'_>, rings: &[usize]) {
        let order = self.order;
        let is_theirs = |rank: &u32| rings.contains(&((rank / order.tensor()) as usize));
        let mut lost = Vec::new();
        for (at, task) in order.graph.tasks().iter().enumerate() {
            let is_done = self.schedule.is_done(TaskId(at as u32));
            let is_undone = match (&task.work, order.dimensions[at]) {
                (TaskWork::Compute { rank, .. }, TaskPurpose::Generation) => {
                    let is_lost = !is_done && is_theirs(rank);
                    let is_next = task.after.iter().all(|task| self.schedule.is_done(*task));
                    self.tasks[at].is_again |= is_lost && is_next;
                    is_lost
                }
                (TaskWork::Transfer { from, to, .. }, purpose) if is_loose(purpose) => {
                    let is_gone = is_done && purpose != TaskPurpose::Samples && is_theirs(to);
                    is_gone || !is_done && (is_theirs(from) || is_theirs(to))
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

    /// A trainer begins its step again, with all groups that exchange more than gradients with the lost ones.
    fn undo_training(&mut self, context: &mut Context<'_>, rings: &[usize]) {
        let tied = match self.order.train.restart.rolls_back_to() {
            None => self.tied_to(rings),
            Some(_) => (0..self.seats.len() as u32).collect(),
        };
        let (graph, tensor) = (&self.order.graph, self.order.tensor());
        let is_theirs =
            |work: &TaskWork| tasks::rings_of(work, tensor).iter().any(|r| tied.contains(r));
        // What waits for their tasks is undone with them: the exchange of gradients and what follows it.
        let theirs = graph.tasks().iter().zip(&self.order.dimensions).enumerate();
        let theirs =
            theirs.filter(|(_, (task, dimension))| !is_loose(**dimension) && is_theirs(&task.work));
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

    /// When the fault began for which these groups begin again.
    fn outage_began(&self, context: &Context<'_>, rings: &[usize]) -> SimTime {
        let since = rings.iter().filter_map(|ring| self.seats[*ring].down_since).min();
        since.unwrap_or(context.now())
    }

    fn all_can_work(&self) -> bool {
        self.seats.iter().all(super::Seat::can_work)
    }
}

impl Trainings<'_> {
    /// A fault begins on these links.
    pub(super) fn fault_hits(&mut self, context: &mut Context<'_>, fault: usize, links: &[LinkId]) {
        let (event, now) = (&context.events[fault], context.now());
        let goes_dark = matches!(event.effect, Effect::Down | Effect::Flapping { .. });
        let nodes: BTreeSet<_> = event
            .planned()
            .into_iter()
            .filter_map(|part| if let Part::Node(node) = part { Some(node) } else { None })
            .collect();
        for (group, place) in self.places.iter().enumerate() {
            let Some((job, ring)) = *place else { continue };
            let training = &mut self.jobs[job];
            let seat = &mut training.seats[ring];
            let is_hit = |own: &[LinkId]| links.iter().any(|link| own.binary_search(link).is_ok());
            let gpu = |rank| context.substrate.rings.as_ref().and_then(|rings| rings.gpu(rank));
            let mut gpus = seat.members.ranks.iter().filter_map(|rank| gpu(*rank));
            // An interface alone takes the node out of the plan, but not its state.
            let is_dead = goes_dark
                && gpus.any(|gpu| nodes.contains(&gpu.node))
                && (is_hit(&seat.ring_links) || !seat.has_ring());
            if seat.is_lost || !(is_dead || is_hit(&seat.links)) || training.is_done() {
                continue;
            }
            context.faults[fault].groups.insert(group);
            let seat = &mut training.seats[ring];
            let on_ring = is_hit(&seat.ring_links);
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

    /// A fault is over: groups that it hit look, once the links are up, whether they can go on.
    pub(super) fn fault_is_over(&mut self, context: &mut Context<'_>, fault: usize) {
        let event = &context.events[fault];
        let goes_dark = matches!(event.effect, Effect::Down | Effect::Flapping { .. });
        let (links, soon) = (event.links(), context.now() + Picoseconds(1));
        for group in context.faults[fault].groups.clone() {
            let Some((job, ring)) = self.places.get(group).copied().flatten() else { continue };
            let seat = &mut self.jobs[job].seats[ring];
            let on_ring = links.iter().any(|link| seat.ring_links.binary_search(link).is_ok());
            if !goes_dark && on_ring {
                seat.slowed_by = seat.slowed_by.saturating_sub(1);
            }
            self.plan(context, soon, (TrainTimer::Wake, job, 0, ring as u32));
        }
    }

    /// A new plan moves groups.
    pub(super) fn move_groups(
        &mut self,
        context: &mut Context<'_>,
        moves: &[GroupMove],
    ) -> Result<(), RunError> {
        let mut again: Vec<Vec<usize>> = vec![Vec::new(); self.jobs.len()];
        for moved in moves {
            let Some((job, ring)) = self.places.get(moved.group).copied().flatten() else {
                continue;
            };
            let training = &mut self.jobs[job];
            if training.is_done() {
                continue;
            }
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
            // Links that come up do so at that instant; routes over them exist right after it.
            let resumes = moved.resumes + Picoseconds(1);
            if has_lost_state {
                again[job].push(ring);
                let began = training.outage_began(context, &[ring]);
                training.outages.push((began, resumes));
            }
            self.plan(context, resumes, (TrainTimer::Resume, job, 0, ring as u32));
        }
        for (job, rings) in again.iter().enumerate().filter(|(_, rings)| !rings.is_empty()) {
            self.jobs[job].undo(context, rings);
            self.ask(context, job, false);
            self.begin_ready(context, job)?;
        }
        Ok(())
    }

    /// A group that was moved has light again.
    pub(super) fn resume(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        ring: usize,
    ) -> Result<(), RunError> {
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

    /// Something that hit a group was repaired.
    pub(super) fn wake(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        ring: usize,
    ) -> Result<(), RunError> {
        let now = context.now();
        let training = &mut self.jobs[job];
        let seat = &training.seats[ring];
        if seat.is_lost || seat.is_stopped || !seat.has_light(context) {
            return Ok(());
        }
        // The node came back before anybody planned around it, but not what it knew of the step.
        if seat.is_dead {
            let began = training.outage_began(context, &[ring]);
            training.outages.push((began, now));
            training.seats[ring].is_dead = false;
            training.undo(context, &[ring]);
            self.ask(context, job, false);
        }
        self.jobs[job].seats[ring].comes_back(now);
        self.begin_ready(context, job)?;
        self.go_on(context, job)
    }

    /// What was held goes on; a checkpoint is read once all groups can work.
    fn go_on(&mut self, context: &mut Context<'_>, job: usize) -> Result<(), RunError> {
        let training = &mut self.jobs[job];
        if training.loads && training.all_can_work() {
            if let Some(Checkpoints { load, .. }) = training.order.train.restart.rolls_back_to() {
                let turn = training.restarts as u16;
                if let Some(outage) = training.outages.last_mut() {
                    outage.1 = outage.1.max(context.now() + load);
                }
                self.plan(context, context.now() + load, (TrainTimer::Loaded, job, turn, 0));
            }
            return Ok(());
        }
        self.retry_held(context, job)
    }

    /// The checkpoint is read, unless the job was stopped again meanwhile.
    pub(super) fn loaded(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        turn: u16,
    ) -> Result<(), RunError> {
        let training = &mut self.jobs[job];
        if training.restarts as u16 != turn || !training.loads || !training.all_can_work() {
            return Ok(());
        }
        training.loads = false;
        training.round = context.now();
        self.retry_held(context, job)
    }
}
