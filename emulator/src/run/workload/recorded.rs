// SPDX-License-Identifier: Apache-2.0
//! Runs a recorded step of tasks: computation takes its recorded time, and exchanges are simulated
//! packet by packet. On a machine, ring collectives can reuse the time of an idle ring.

use std::collections::{BTreeMap, VecDeque};

use lightloom_collective::Directions;
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, FlowId, VertexId};
use lightloom_training::described::Described;
use lightloom_training::graph::{self, TaskId, TaskWork};
use lightloom_units::{Picoseconds, SimTime};

use super::super::context::Context;
use super::super::{RunError, RunResult};
use super::foresight::may_begin;
use super::jobs::{JobTurn, Jobs, Repetition};
use super::ring_time::{ReuseError, RingClass, RingReuse};
use super::sends::Sends;
use crate::scenario::Pattern;
use crate::substrate::Members;

pub(super) struct Playing {
    schedule: graph::Schedule,
    earliest: Vec<Picoseconds>,
    blocked: Vec<TaskId>,
    batches: BTreeMap<BatchId, TaskId>,
    is_begun: Vec<bool>,
    /// Use of each ring of a machine. Empty if times of idle rings are not reused.
    busy: BTreeMap<u32, RingUse>,
    classes: BTreeMap<u32, Option<RingClass>>,
}

#[derive(Default)]
struct RingUse {
    count: u32,
    is_reused: bool,
    others: VecDeque<TaskId>,
}

const OTHERS: usize = 64;

impl Playing {
    fn is_alone(
        &mut self,
        graph: &graph::TaskGraph,
        task: TaskId,
        ring: u32,
        now: SimTime,
        took: Picoseconds,
        spans: &[(SimTime, SimTime)],
    ) -> bool {
        let Some(of_ring) = self.busy.get_mut(&ring) else { return true };
        while of_ring.others.front().is_some_and(|first| self.schedule.is_done(*first)) {
            of_ring.others.pop_front();
        }
        let left = |other: TaskId| match other {
            _ if other == task => Some(Picoseconds(u64::MAX)),
            _ if self.schedule.is_done(other) => Some(Picoseconds::ZERO),
            _ if self.is_begun[other.index()] => {
                Some(Picoseconds(spans[other.index()].1.0.saturating_sub(now.0)))
            }
            _ => None,
        };
        of_ring.count == 1
            && !of_ring.others.iter().take(OTHERS).any(|other| {
                let is_open = !self.schedule.is_done(*other);
                is_open && (self.is_begun[other.index()] || may_begin(graph, &left, *other, took))
            })
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub(super) fn share_done(&self) -> f64 {
        1.0 - self.schedule.open() as f64 / self.earliest.len().max(1) as f64
    }
}

impl<'a> Jobs<'a> {
    pub(super) fn begin_recorded(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        mut step: Repetition,
    ) -> RunResult {
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
            is_begun: vec![false; tasks],
            busy: self.ring_uses(context, place),
            classes: BTreeMap::new(),
        };
        self.playing.insert(place, playing);
        self.enter(place, step, tasks);
        if tasks == 0 {
            self.step_done(place, context.now(), context.now());
        }
        ready.into_iter().try_for_each(|task| self.begin_task(context, place, task))
    }

    fn ring_uses(&self, context: &Context<'_>, place: usize) -> BTreeMap<u32, RingUse> {
        let mut uses: BTreeMap<u32, RingUse> = BTreeMap::new();
        let domains = context.substrate.domains.as_ref();
        let Some(domains) = domains.filter(|_| self.times.reuse != RingReuse::Never) else {
            return uses;
        };
        for (task, of) in self.described(place).graph.tasks().iter().enumerate() {
            if matches!(of.work, TaskWork::Ring { .. }) {
                continue;
            }
            for ring in domains.rings_under(&of.work) {
                uses.entry(ring).or_default().others.push_back(TaskId(task as u32));
            }
        }
        uses
    }

    fn described(&self, place: usize) -> &'a Described {
        let traffic: &'a _ = &self.traffic[place];
        match &traffic.run {
            Pattern::Recorded(described) => described,
            _ => unreachable!("only recorded steps have tasks"),
        }
    }

    fn step(&mut self, place: usize) -> &mut Repetition {
        self.jobs[place].steps.last_mut().expect("every task belongs to a step")
    }

    fn begin_task(&mut self, context: &mut Context<'_>, place: usize, id: TaskId) -> RunResult {
        let task = &self.described(place).graph.tasks()[id.index()];
        let now = context.now();
        self.playing.entry(place).and_modify(|playing| playing.is_begun[id.index()] = true);
        let sends = self.sends_of(context, place, id);
        let lag = self.lag(context, place, id);
        let timed = match (&task.work, &sends) {
            (TaskWork::Compute { took, .. }, _) => Some((*took, Picoseconds::ZERO)),
            (_, None) => Some((Picoseconds::ZERO, Picoseconds::ZERO)),
            (_, Some(sends)) => {
                let took = self.ring_time(context, place, id, sends)?;
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

    fn could_end(&mut self, place: usize, id: TaskId, least: Picoseconds) {
        let task = &self.described(place).graph.tasks()[id.index()];
        let Some(playing) = self.playing.get_mut(&place) else { return };
        let before = task.after.iter().map(|before| playing.earliest[before.index()]).max();
        let end = before.unwrap_or_default() + least;
        playing.earliest[id.index()] = end;
        let step = self.step(place);
        step.ideal = step.ideal.max(end);
    }

    fn sends_of(&self, context: &Context<'_>, place: usize, id: TaskId) -> Option<Sends> {
        let (traffic, described) = (&self.traffic[place], self.described(place));
        let work = &described.graph.tasks()[id.index()].work;
        let (kind, bytes) = (work.kind(), work.bytes());
        let ranks = match work {
            TaskWork::Compute { .. } => return None,
            TaskWork::Ring { ring, .. } => described.ring(*ring).into_iter().flatten().collect(),
            work => work.members(&[]).into_owned(),
        };
        let hosts: Vec<VertexId> = ranks.iter().map(|rank| traffic.hosts[*rank as usize]).collect();
        if hosts.len() < 2 || kind.is_none() && hosts[0] == hosts[1] {
            return None;
        }
        let is_ring = matches!(work, TaskWork::Ring { .. });
        let mut of_hosts = Vec::new();
        if context.substrate.domains.is_some() {
            let domains = hosts.iter().map(|host| context.substrate.domain_of(*host));
            of_hosts = domains.map(|domain| domain.or(is_ring.then_some(0))).collect();
        }
        let sends = Sends::over(context.substrate.route.clone(), kind, hosts, bytes);
        let (pace, transport) = (described.graph.pace(id), context.engine.transport());
        let mut sends = sends.paced(&pace, transport, of_hosts);
        sends.priority = traffic.priority;
        if let TaskWork::Pairs { bytes, .. } = work {
            sends.pairs = Some(bytes.clone());
        }
        if let Some(domains) = &context.substrate.domains {
            sends.imbalance = domains.imbalance;
            if is_ring && domains.are_wired && ranks.len() > 2 {
                sends.directions = Directions::Both;
            }
        }
        Some(sends)
    }

    fn lag(&self, context: &Context<'_>, place: usize, id: TaskId) -> Picoseconds {
        let cables =
            context.substrate.domains.as_ref().map_or([Picoseconds::ZERO; 2], |of| of.cables);
        self.described(place).graph.pace(id).lag(cables)
    }

    fn ring_time(
        &mut self,
        context: &Context<'_>,
        place: usize,
        id: TaskId,
        sends: &Sends,
    ) -> Result<Option<Picoseconds>, RunError> {
        let (described, lag) = (self.described(place), self.lag(context, place, id));
        let work = &described.graph.tasks()[id.index()].work;
        let Some(domains) = &context.substrate.domains else { return Ok(None) };
        let Some(playing) = self.playing.get_mut(&place) else { return Ok(None) };
        if self.times.reuse == RingReuse::Never {
            return Ok(None);
        }
        let ring_of = match work {
            TaskWork::Ring { ring, .. } => Some(*ring),
            _ => None,
        };
        // Reused times require an idle ring, and packet traffic may share links with it.
        for ring in domains.rings_under(work) {
            let of_ring = playing.busy.entry(ring).or_default();
            if of_ring.is_reused {
                let task = described.graph.tasks()[id.index()].name.clone();
                return Err(ReuseError::BusyRing { task, ring }.into());
            }
            of_ring.count += 1;
        }
        let (Some(ring), Some(around)) = (ring_of, sends.around()) else {
            return Ok(None);
        };
        let ranks = &sends.hosts;
        let class = playing.classes.entry(ring).or_insert_with(|| {
            let members = Members::of_ring(ranks.clone());
            self.times.class_of(context, &members)
        });
        let Some(class) = *class else { return Ok(None) };
        let (settings, now) = (context.engine.settings(), context.now());
        let spans = &self.jobs[place].steps.last().expect("every task belongs to a step").spans;
        let took = self.times.time_of(settings, class, around, |took| {
            playing.is_alone(&described.graph, id, ring, now, lag + took, spans)
        })?;
        if let Some(of_ring) = playing.busy.get_mut(&ring) {
            of_ring.is_reused = took.is_some();
        }
        Ok(took)
    }

    pub(super) fn task_done(
        &mut self,
        context: &mut Context<'_>,
        batch: BatchId,
        at: SimTime,
    ) -> RunResult {
        let found = self
            .playing
            .iter_mut()
            .find_map(|(place, playing)| Some((*place, playing.batches.remove(&batch)?)));
        let Some((place, id)) = found else { return Ok(()) };
        self.step(place).spans[id.index()].1 = at;
        self.worked(context, place, id)
    }

    pub(super) fn worked(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        task: TaskId,
    ) -> RunResult {
        let work = &self.described(place).graph.tasks()[task.index()].work;
        let mut ready = Vec::new();
        if let Some(playing) = self.playing.get_mut(&place) {
            ready = playing.schedule.finish(task);
            let has_busy = !playing.busy.is_empty();
            let domains = context.substrate.domains.iter().filter(|_| has_busy);
            for ring in domains.flat_map(|domains| domains.rings_under(work)) {
                if let Some(of_ring) = playing.busy.get_mut(&ring) {
                    (of_ring.count, of_ring.is_reused) = (of_ring.count.saturating_sub(1), false);
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

    pub(super) fn retry_tasks(&mut self, context: &mut Context<'_>) -> RunResult {
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
