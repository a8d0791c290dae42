// SPDX-License-Identifier: Apache-2.0
//! A step of tasks beside other traffic or alone: computing in its time, what ranks exchange packet by packet over the
//! network of the run; on a machine rings by the time of the ring alone.

use std::collections::BTreeMap;

use lightloom_collective::Directions;
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, FlowId, VertexId};
use lightloom_training::described::Described;
use lightloom_training::graph::{self, TaskId, TaskWork};
use lightloom_units::{Picoseconds, SimTime};

use super::super::RunError;
use super::super::context::Context;
use super::jobs::{JobTurn, Jobs, Repetition};
use super::ring_time::{ReuseError, RingClass, RingReuse};
use super::sends::Sends;
use crate::scenario::Pattern;
use crate::substrate::Members;

/// A step under way.
pub(super) struct Playing {
    schedule: graph::Schedule,
    /// By task: when it could end at the earliest, were each message alone on its path.
    earliest: Vec<Picoseconds>,
    /// Tasks that could not begin, for a host had no way.
    blocked: Vec<TaskId>,
    /// By batch: its task.
    batches: BTreeMap<BatchId, TaskId>,
    /// Rings with a collective on them, where times of idle ones are used.
    busy: BTreeMap<u32, (u32, bool)>,
    /// By ring of a machine: how it is built, if its times are used again.
    classes: BTreeMap<u32, Option<RingClass>>,
}

impl Playing {
    /// Whether a task waits for a way.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Share of its tasks that are done.
    pub(super) fn share_done(&self) -> f64 {
        1.0 - self.schedule.open() as f64 / self.earliest.len().max(1) as f64
    }
}

impl<'a> Jobs<'a> {
    /// Begins the tasks of a step that wait for none.
    pub(super) fn begin_recorded(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        mut step: Repetition,
    ) -> Result<(), RunError> {
        let described = self.described(place);
        let tasks = described.graph.tasks().len();
        let schedule = graph::Schedule::of(&described.graph);
        let ready = schedule.ready();
        step.flows = vec![0..0; tasks];
        step.spans = vec![(SimTime::START, SimTime::START); tasks];
        let playing = Playing {
            schedule,
            earliest: vec![Picoseconds::ZERO; tasks],
            blocked: Vec::new(),
            batches: BTreeMap::new(),
            busy: BTreeMap::new(),
            classes: BTreeMap::new(),
        };
        self.playing.insert(place, playing);
        self.enter(place, step, tasks);
        if tasks == 0 {
            self.step_done(place, context.now(), context.now());
        }
        ready.into_iter().try_for_each(|task| self.begin_task(context, place, task))
    }

    fn described(&self, place: usize) -> &'a Described {
        let traffic: &'a _ = &self.traffic[place];
        match &traffic.run {
            Pattern::Recorded(described) => described,
            _ => unreachable!("only recorded steps have tasks"),
        }
    }

    /// The step under way of a workload.
    fn step(&mut self, place: usize) -> &mut Repetition {
        self.jobs[place].steps.last_mut().expect("a task is of a step")
    }

    /// Begins a task, now. Where a host has no way it waits until it has one.
    fn begin_task(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        id: TaskId,
    ) -> Result<(), RunError> {
        let task = &self.described(place).graph.tasks()[id.index()];
        let now = context.now();
        let sends = self.sends_of(context, place, id);
        let lag = self.lag(context, place, id);
        let timed = match (&task.work, &sends) {
            (TaskWork::Compute { took, .. }, _) => Some((*took, Picoseconds::ZERO)),
            // One rank alone has no other to send to.
            (_, None) => Some((Picoseconds::ZERO, Picoseconds::ZERO)),
            (work, Some(sends)) => {
                let took = self.ring_time(context, (place, id), (work, sends))?;
                took.map(|took| (lag + took, context.substrate.network.shortest_delay()))
            }
        };
        let Some(sends) = sends.filter(|_| timed.is_none()) else {
            let (took, news) = timed.unwrap_or_default();
            self.step(place).spans[id.index()] = (now, now + took);
            self.could_end(place, id, took);
            self.plan(context, now + took + news, JobTurn::Worked(place, id));
            return Ok(());
        };
        let started = context.add(|engine| sends.start_after(lag, engine)).map_err(|error| {
            let workload = format!("{}`, task `{}", self.traffic[place].name, task.name);
            RunError::Workload { workload, error }
        });
        let Some((collective, flows)) = started? else {
            self.playing.entry(place).and_modify(|playing| playing.blocked.push(id));
            return Ok(());
        };
        context.note_flows(flows.clone());
        self.could_end(place, id, lag + collective.ideal);
        let sent = flows.clone().map(|flow| context.engine.record(FlowId(flow)).size).sum();
        let step = self.step(place);
        step.spans[id.index()].0 = now;
        step.flows[id.index()] = flows;
        step.size += sent;
        if let Some(playing) = self.playing.get_mut(&place) {
            playing.batches.insert(collective.batch, id);
        }
        context.own(collective.batch, self.me);
        Ok(())
    }

    /// Notes when a task that takes `least` could end at the earliest.
    fn could_end(&mut self, place: usize, id: TaskId, least: Picoseconds) {
        let task = &self.described(place).graph.tasks()[id.index()];
        let Some(playing) = self.playing.get_mut(&place) else { return };
        let before = task.after.iter().map(|before| playing.earliest[before.index()]).max();
        let end = before.unwrap_or_default() + least;
        playing.earliest[id.index()] = end;
        let step = self.step(place);
        step.ideal = step.ideal.max(end);
    }

    /// What a task sends. `None` if it computes, or has one rank.
    fn sends_of(&self, context: &Context<'_>, place: usize, id: TaskId) -> Option<Sends> {
        let (traffic, described) = (&self.traffic[place], self.described(place));
        let work = &described.graph.tasks()[id.index()].work;
        let (kind, ranks, bytes) = match work {
            TaskWork::Compute { .. } => return None,
            TaskWork::Transfer { from, to, bytes } => (None, vec![*from, *to], *bytes),
            TaskWork::Ring { kind, ring, bytes } => {
                (Some(*kind), described.ring(*ring).into_iter().flatten().collect(), *bytes)
            }
            TaskWork::Across { kind, ranks, bytes } => (Some(*kind), ranks.clone(), *bytes),
        };
        let hosts: Vec<VertexId> = ranks.iter().map(|rank| traffic.hosts[*rank as usize]).collect();
        if hosts.len() < 2 || kind.is_none() && hosts[0] == hosts[1] {
            return None;
        }
        let is_ring = matches!(work, TaskWork::Ring { .. });
        let mut of_hosts = Vec::new();
        if context.substrate.domains.is_some() {
            // A ring has links of its own, whatever joins it.
            let domain = |host: &VertexId| context.substrate.domain_of(*host);
            of_hosts = hosts.iter().map(|host| domain(host).or(is_ring.then_some(0))).collect();
        }
        let sends = Sends::over(context.substrate.route.clone(), kind, (hosts, bytes));
        let (pace, transport) = (described.graph.pace(id), context.engine.transport());
        let mut sends = sends.paced(&pace, transport, of_hosts);
        sends.priority = traffic.priority;
        if let Some(domains) = &context.substrate.domains {
            sends.imbalance = domains.imbalance;
            if is_ring && domains.are_wired && ranks.len() > 2 {
                sends.directions = Directions::Both;
            }
        }
        Some(sends)
    }

    /// What software takes before the packets of a task leave.
    fn lag(&self, context: &Context<'_>, place: usize, id: TaskId) -> Picoseconds {
        let cables =
            context.substrate.domains.as_ref().map_or([Picoseconds::ZERO; 2], |of| of.cables);
        self.described(place).graph.pace(id).lag(cables)
    }

    /// What goes round an idle ring of a machine takes what it took before. `None` if it is to run.
    fn ring_time(
        &mut self,
        context: &Context<'_>,
        (place, id): (usize, TaskId),
        (work, sends): (&TaskWork, &Sends),
    ) -> Result<Option<Picoseconds>, RunError> {
        let described = self.described(place);
        let Some(domains) = &context.substrate.domains else { return Ok(None) };
        let Some(playing) = self.playing.get_mut(&place) else { return Ok(None) };
        if self.times.reuse == RingReuse::Never {
            return Ok(None);
        }
        // What runs packet by packet may share links; a time that is reused is of an idle ring.
        let is_ring = matches!(work, TaskWork::Ring { .. });
        for ring in domains.rings_under(work) {
            let (users, is_reused) = playing.busy.entry(ring).or_default();
            if *is_reused || (is_ring && *users > 0) {
                let task = described.graph.tasks()[id.index()].name.clone();
                return Err(ReuseError::BusyRing { task, ring }.into());
            }
            (*users, *is_reused) = (*users + 1, is_ring);
        }
        let (TaskWork::Ring { ring, .. }, Some(around)) = (work, sends.around()) else {
            return Ok(None);
        };
        let ranks = &sends.hosts;
        let class = playing.classes.entry(*ring).or_insert_with(|| {
            let members = Members::of_ring(ranks.clone());
            self.times.class_of(context, &members)
        });
        let Some(class) = *class else { return Ok(None) };
        self.times.time_of(context.engine.settings(), class, around)
    }

    /// A batch of a recorded step has ended, if it is one.
    pub(super) fn task_done(
        &mut self,
        context: &mut Context<'_>,
        batch: BatchId,
        at: SimTime,
    ) -> Result<(), RunError> {
        let found = self
            .playing
            .iter_mut()
            .find_map(|(place, playing)| Some((*place, playing.batches.remove(&batch)?)));
        let Some((place, id)) = found else { return Ok(()) };
        let span = &mut self.step(place).spans[id.index()];
        span.1 = at;
        let took = at.since(span.0);
        self.check_time(context, (place, id), took)?;
        self.worked(context, (place, id))
    }

    /// What ran round a ring whose time is known must take it.
    fn check_time(
        &mut self,
        context: &Context<'_>,
        (place, id): (usize, TaskId),
        now: Picoseconds,
    ) -> Result<(), RunError> {
        let task = &self.described(place).graph.tasks()[id.index()];
        let TaskWork::Ring { ring, .. } = &task.work else { return Ok(()) };
        let class = self.playing.get(&place).and_then(|playing| playing.classes.get(ring));
        let Some(Some(class)) = class else { return Ok(()) };
        let now = now.saturating_sub(self.lag(context, place, id));
        let around = self.sends_of(context, place, id).and_then(|sends| sends.around());
        let first = around.and_then(|around| self.times.check(*class, around, now));
        first.map_or(Ok(()), |first| {
            let task = task.name.clone();
            Err(ReuseError::Changed { task, first, now }.into())
        })
    }

    /// A task has ended: those that waited for it alone begin.
    pub(super) fn worked(
        &mut self,
        context: &mut Context<'_>,
        (place, task): (usize, TaskId),
    ) -> Result<(), RunError> {
        let work = &self.described(place).graph.tasks()[task.index()].work;
        let mut ready = Vec::new();
        if let Some(playing) = self.playing.get_mut(&place) {
            ready = playing.schedule.finish(task);
            let has_busy = !playing.busy.is_empty();
            let domains = context.substrate.domains.iter().filter(|_| has_busy);
            for ring in domains.flat_map(|domains| domains.rings_under(work)) {
                if let Some((users, is_reused)) = playing.busy.get_mut(&ring) {
                    (*users, *is_reused) = (users.saturating_sub(1), false);
                }
            }
        }
        ready.into_iter().try_for_each(|next| self.begin_task(context, place, next))?;
        let mut ended = SimTime::START;
        if self.jobs[place].open == 1 {
            self.playing.remove(&place);
            ended = self.step(place).spans.iter().map(|span| span.1).max().unwrap_or(ended);
        }
        self.part_done(place, ended, context.now());
        Ok(())
    }

    /// Tasks that could not begin try again.
    pub(super) fn retry_tasks(&mut self, context: &mut Context<'_>) -> Result<(), RunError> {
        let places: Vec<usize> = self.playing.keys().copied().collect();
        for place in places {
            let blocked = self.playing.get_mut(&place).map(|one| std::mem::take(&mut one.blocked));
            for task in blocked.into_iter().flatten() {
                self.begin_task(context, place, task)?;
            }
        }
        Ok(())
    }
}
