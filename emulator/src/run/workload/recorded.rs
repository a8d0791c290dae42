// SPDX-License-Identifier: Apache-2.0
//! Runs a step that consists of tasks, with or without other traffic. Computation takes its
//! recorded time, and exchanges run packet by packet over the network of the run. On a machine,
//! ring collectives can take the time measured on an otherwise idle ring.

use std::collections::BTreeMap;

use lightloom_collective::{CollectiveKind, Directions};
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, FlowId, Route, VertexId};
use lightloom_training::described::Described;
use lightloom_training::graph::{self, TaskId, TaskWork};
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::super::RunError;
use super::super::context::Context;
use super::jobs::{JobTurn, Jobs, Repetition};
use super::ring_time::{ReuseError, RingClass, RingReuse};
use super::sends::Sends;
use crate::scenario::Pattern;
use crate::substrate::{Domains, HBD, Members};

pub(super) struct Playing {
    schedule: graph::Schedule,
    /// The earliest possible end of each task, with every message alone on its path.
    earliest: Vec<Picoseconds>,
    /// Tasks that could not begin because a host had no path.
    blocked: Vec<TaskId>,
    batches: BTreeMap<BatchId, TaskId>,
    /// Rings that a collective is using, if times of idle rings are reused.
    busy: BTreeMap<u32, (u32, bool)>,
    /// The class of each of the machine's rings, if times are reused.
    classes: BTreeMap<u32, Option<RingClass>>,
}

impl Playing {
    /// Returns whether a task waits for a path.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Returns the share of finished tasks.
    pub(super) fn share_done(&self) -> f64 {
        1.0 - self.schedule.open() as f64 / self.earliest.len().max(1) as f64
    }
}

impl<'a> Jobs<'a> {
    /// Begins the tasks of a step that have no prerequisites.
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

    /// Returns the current step of a workload.
    fn step(&mut self, place: usize) -> &mut Repetition {
        self.jobs[place].steps.last_mut().expect("a task is of a step")
    }

    /// Begins a task now, or holds it until its hosts have a path.
    fn begin_task(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        id: TaskId,
    ) -> Result<(), RunError> {
        let task = &self.described(place).graph.tasks()[id.index()];
        let now = context.now();
        let sends = self.sends_of(context, place, &task.work);
        let timed = match (&task.work, &sends) {
            (TaskWork::Compute { took, .. }, _) => Some((*took, Picoseconds::ZERO)),
            // A single rank has no other rank to which it could send.
            (_, None) => Some((Picoseconds::ZERO, Picoseconds::ZERO)),
            (work, Some(sends)) => {
                let took = self.ring_time(context, (place, id), (work, sends))?;
                took.map(|took| (took, context.substrate.network.shortest_delay()))
            }
        };
        let Some(sends) = sends.filter(|_| timed.is_none()) else {
            let (took, news) = timed.unwrap_or_default();
            self.step(place).spans[id.index()] = (now, now + took);
            self.could_end(place, id, took);
            self.plan(context, now + took + news, JobTurn::Worked(place, id));
            return Ok(());
        };
        let started = context.add(|engine| sends.start(engine)).map_err(|error| {
            let workload = format!("{}`, task `{}", self.traffic[place].name, task.name);
            RunError::Workload { workload, error }
        });
        let Some((collective, flows)) = started? else {
            self.playing.entry(place).and_modify(|playing| playing.blocked.push(id));
            return Ok(());
        };
        context.note_flows(flows.clone());
        self.could_end(place, id, collective.ideal);
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

    /// Records the earliest possible end of a task that takes at least `least`.
    fn could_end(&mut self, place: usize, id: TaskId, least: Picoseconds) {
        let task = &self.described(place).graph.tasks()[id.index()];
        let Some(playing) = self.playing.get_mut(&place) else { return };
        let before = task.after.iter().map(|before| playing.earliest[before.index()]).max();
        let end = before.unwrap_or_default() + least;
        playing.earliest[id.index()] = end;
        let step = self.step(place);
        step.ideal = step.ideal.max(end);
    }

    /// Returns a task's traffic, or `None` if the task computes or has only one rank.
    fn sends_of(&self, context: &Context<'_>, place: usize, work: &TaskWork) -> Option<Sends> {
        let (traffic, described) = (&self.traffic[place], self.described(place));
        let (kind, ranks, bytes) = match work {
            TaskWork::Compute { .. } => return None,
            TaskWork::Transfer { from, to, bytes } => (None, vec![*from, *to], *bytes),
            TaskWork::Ring { kind, ring, bytes } => {
                (Some(*kind), described.ring(*ring).into_iter().flatten().collect(), *bytes)
            }
            TaskWork::Across { kind, ranks, bytes } => (Some(*kind), ranks.clone(), *bytes),
            TaskWork::Pairs { ranks, bytes } => {
                let mean = bytes.iter().sum::<u64>() / ranks.len().max(1) as u64;
                (Some(CollectiveKind::AllToAll), ranks.clone(), Bytes(mean))
            }
        };
        let hosts: Vec<VertexId> = ranks.iter().map(|rank| traffic.hosts[*rank as usize]).collect();
        if hosts.len() < 2 || kind.is_none() && hosts[0] == hosts[1] {
            return None;
        }
        let mut sends = Sends::over(context.substrate.route.clone(), kind, (hosts, bytes));
        sends.priority = traffic.priority;
        if let TaskWork::Pairs { bytes, .. } = work {
            sends.pairs = Some(bytes.clone());
        }
        if let Some(domains) = &context.substrate.domains {
            stay_inside(&mut sends, domains, (work, &ranks));
        }
        Some(sends)
    }

    /// Returns the known duration of a collective on an idle ring of a machine, or `None` if the
    /// collective must be run.
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
        // Traffic that runs packet by packet may share links, but a reused time requires an idle
        // ring.
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

    /// Handles the end of a batch if it belongs to a recorded step.
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

    /// Checks that a ring collective with a known duration took exactly that long.
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
        let around = self.sends_of(context, place, &task.work).and_then(|sends| sends.around());
        let first = around.and_then(|around| self.times.check(*class, around, now));
        first.map_or(Ok(()), |first| {
            let task = task.name.clone();
            Err(ReuseError::Changed { task, first, now }.into())
        })
    }

    /// Handles the end of a task by beginning the tasks that have no other open prerequisite.
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

/// Sets routes for traffic inside a machine's domains: rings in both directions if cables join more
/// than two ranks, and exchanges between ranks under one switch.
fn stay_inside(sends: &mut Sends, domains: &Domains, (work, ranks): (&TaskWork, &[u32])) {
    sends.imbalance = domains.imbalance;
    let is_ring = matches!(work, TaskWork::Ring { .. });
    if is_ring || domains.is_inside(ranks) {
        sends.route = Route::Within(HBD);
    } else {
        for (from, host) in ranks.iter().zip(&sends.hosts) {
            let inside = ranks
                .iter()
                .zip(&sends.hosts)
                .filter(|(to, _)| *to != from && domains.is_inside(&[*from, **to]));
            sends.ways.extend(inside.map(|(_, to)| ((*host, *to), Route::Within(HBD))));
        }
    }
    if is_ring && domains.are_wired && ranks.len() > 2 {
        sends.directions = Directions::Both;
    }
}
