// SPDX-License-Identifier: Apache-2.0
//! A recorded or described step beside other traffic: its tasks in their order, computing in the recorded time, what ranks
//! exchange packet by packet over the network of the run.

use std::collections::BTreeMap;

use lightloom_collective::{AllToAll, CollectiveError, Directions, Exchange, Kind, Ring, Schedule};
use lightloom_engine::collective::{Collective, Placement, StartError, start_bag};
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, EngineError, FlowId, FlowSpec, VertexId};
use lightloom_training::described::Described;
use lightloom_training::graph::{self, Task, TaskId, Work};
use lightloom_units::{Picoseconds, SimTime};

use super::super::RunError;
use super::super::context::Context;
use super::jobs::{Jobs, Step, Turn};
use crate::scenario::Pattern;

/// A step under way.
pub(super) struct Playing {
    schedule: graph::Schedule,
    /// By task: when it could end at the earliest, were each message alone on its path.
    earliest: Vec<Picoseconds>,
    /// Tasks that could not begin, for a host had no way.
    blocked: Vec<TaskId>,
    /// By batch: its task.
    batches: BTreeMap<BatchId, TaskId>,
    /// When the last task of those that are done ended.
    ended: SimTime,
}

impl Playing {
    /// Whether a task waits for a way.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }
}

impl<'a> Jobs<'a> {
    /// Begins the tasks of a step that wait for none.
    pub(super) fn begin_recorded(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        mut step: Step,
    ) -> Result<(), RunError> {
        let described = self.described(place);
        let tasks = described.graph.tasks().len();
        let schedule = graph::Schedule::of(&described.graph);
        let ready = schedule.ready();
        step.flows = vec![0..0; tasks];
        let earliest = vec![Picoseconds::ZERO; tasks];
        let (blocked, batches) = (Vec::new(), BTreeMap::new());
        let ended = context.now();
        let playing = Playing { schedule, earliest, blocked, batches, ended };
        self.playing.insert(place, playing);
        self.enter(place, step, tasks);
        ready.into_iter().try_for_each(|task| self.begin_task(context, place, task))
    }

    fn described(&self, place: usize) -> &'a Described {
        let traffic: &'a _ = &self.traffic[place];
        match &traffic.run {
            Pattern::Recorded(described) => described,
            _ => unreachable!("only recorded steps have tasks"),
        }
    }

    /// Begins a task, now. Where a host has no way it waits until it has one.
    fn begin_task(
        &mut self,
        context: &mut Context<'_>,
        place: usize,
        id: TaskId,
    ) -> Result<(), RunError> {
        let task = &self.described(place).graph.tasks()[id.index()];
        if let Work::Compute { took, .. } = task.work {
            self.could_end(place, id, took);
            let ends = context.now() + took;
            self.plan(context, ends, Turn::Worked(place, id));
            return Ok(());
        }
        let first = context.engine.flow_count() as u32;
        let started = self.exchange_of(context, place, task);
        let flows = first..context.engine.flow_count() as u32;
        let collective = match started {
            Ok(Some(collective)) => collective,
            // One rank alone has nobody to send to.
            Ok(None) => {
                let now = context.now();
                self.plan(context, now, Turn::Worked(place, id));
                return Ok(());
            }
            Err(StartError::Flow(EngineError::Route(_))) => {
                flows.for_each(|flow| context.engine.cancel_flow(FlowId(flow)));
                self.playing.entry(place).and_modify(|playing| playing.blocked.push(id));
                return Ok(());
            }
            Err(error) => {
                let workload = format!("{}`, task `{}", self.traffic[place].name, task.name);
                return Err(RunError::Workload { workload, error });
            }
        };
        context.note_flows(flows.clone());
        self.could_end(place, id, collective.ideal);
        let sent = flows.clone().map(|flow| context.engine.record(FlowId(flow)).size).sum();
        let step = self.jobs[place].steps.last_mut().expect("a task is of a step");
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
        let step = self.jobs[place].steps.last_mut().expect("a task is of a step");
        step.ideal = step.ideal.max(end);
    }

    /// What a task sends, begun now. `None` if it has one rank.
    fn exchange_of(
        &self,
        context: &mut Context<'_>,
        place: usize,
        task: &Task,
    ) -> Result<Option<Collective>, StartError> {
        let (traffic, described) = (&self.traffic[place], self.described(place));
        let route = context.substrate.route.clone();
        let now = context.now();
        let engine = context.engine.engine_mut();
        let (kind, ranks, size) = match &task.work {
            Work::Transfer { from, to, bytes } => {
                let [from, to] = [from, to].map(|rank| traffic.hosts[*rank as usize]);
                if from == to {
                    return Ok(None);
                }
                let flow = FlowSpec {
                    priority: traffic.priority,
                    ..FlowSpec::new(from, to, *bytes).at(now).over(route)
                };
                return start_bag(engine, vec![flow]).map(Some);
            }
            Work::Ring { kind, ring, bytes } => {
                (*kind, described.ring(*ring).into_iter().flatten().collect(), *bytes)
            }
            Work::Across { kind, ranks, bytes } => (*kind, ranks.clone(), *bytes),
            Work::Compute { .. } => return Ok(None),
        };
        let hosts: Vec<VertexId> = ranks.iter().map(|rank| traffic.hosts[*rank as usize]).collect();
        if hosts.len() < 2 {
            return Ok(None);
        }
        let schedule = schedule(kind, hosts.len(), size)?;
        let placement = Placement::new(hosts, route).at(now).in_priority(traffic.priority);
        placement.start(&schedule, engine).map(Some)
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
        found.map_or(Ok(()), |task| self.worked(context, task, at))
    }

    /// A task has ended: those that waited for it alone begin.
    pub(super) fn worked(
        &mut self,
        context: &mut Context<'_>,
        (place, task): (usize, TaskId),
        at: SimTime,
    ) -> Result<(), RunError> {
        let (mut ready, mut ended) = (Vec::new(), at);
        if let Some(playing) = self.playing.get_mut(&place) {
            ready = playing.schedule.finish(task);
            playing.ended = playing.ended.max(at);
            ended = playing.ended;
        }
        ready.into_iter().try_for_each(|next| self.begin_task(context, place, next))?;
        if self.jobs[place].open == 1 {
            self.playing.remove(&place);
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

fn schedule(
    kind: Kind,
    ranks: usize,
    size: lightloom_units::Bytes,
) -> Result<Schedule, CollectiveError> {
    match kind {
        Kind::AllToAll => AllToAll { ranks, size, exchange: Exchange::AtOnce }.schedule(),
        _ => Ring { kind, ranks, size, directions: Directions::One }.schedule(),
    }
}
