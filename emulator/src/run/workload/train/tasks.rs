// SPDX-License-Identifier: Apache-2.0
//! The tasks of a step: computing by timer, exchange round rings by the time of the ring alone, everything else packet by
//! packet over the network.

use std::collections::BTreeMap;

use lightloom_engine::steady::Stage;
use lightloom_engine::{Route, VertexId};
use lightloom_training::graph::{TaskId, TaskWork};
use lightloom_units::{Picoseconds, SimTime};

use super::super::super::RunError;
use super::super::super::context::Context;
use super::super::groups::ways_past;
use super::super::sends::Sends;
use super::{Circuits, State, TrainOrder, TrainTimer, TrainingJob, Trainings};
use crate::substrate::HBD;

/// The TP groups that take part in a task of TP `tensor`, each once.
pub(super) fn rings_of(work: &TaskWork, tensor: u32) -> Vec<u32> {
    let mut rings = match work {
        TaskWork::Compute { rank, .. } => vec![rank / tensor],
        TaskWork::Ring { ring, .. } => vec![*ring],
        TaskWork::Across { ranks, .. } => ranks.iter().map(|rank| rank / tensor).collect(),
        TaskWork::Transfer { from, to, .. } => vec![from / tensor, to / tensor],
    };
    rings.sort_unstable();
    rings.dedup();
    rings
}

impl TrainOrder<'_> {
    /// What its software takes before the packets of an exchange leave.
    fn lag(&self, task: TaskId) -> Picoseconds {
        self.graph.pace(task).lag(self.cables)
    }

    /// By TP group: its exchanges with other groups.
    pub(super) fn across(&self) -> Vec<Vec<TaskId>> {
        let mut across = vec![Vec::new(); self.seats.len()];
        for (at, task) in self.graph.tasks().iter().enumerate() {
            let rings = rings_of(&task.work, self.tensor());
            for ring in rings.iter().filter(|_| rings.len() > 1) {
                across[*ring as usize].push(TaskId(at as u32));
            }
        }
        across
    }
}

impl TrainingJob<'_> {
    /// Where a rank is.
    fn host(&self, rank: u32) -> VertexId {
        let tensor = self.order.tensor();
        self.seats[(rank / tensor) as usize].members.ranks[(rank % tensor) as usize]
    }

    /// Whether ranks are on one ring.
    fn is_inside(&self, from: u32, to: u32) -> bool {
        let [a, b] = [from, to].map(|rank| rank / self.order.tensor());
        a == b && self.seats[a as usize].has_ring()
    }

    /// Whether a task cannot begin: a group of it stands still, or its ring is dark.
    fn is_held(&self, context: &Context<'_>, work: &TaskWork) -> bool {
        if self.loads {
            return true;
        }
        let cannot = |ring: &u32| !self.seats[*ring as usize].can_work();
        let dark = |ring: u32| !self.seats[ring as usize].has_light(context);
        let of_ring = match work {
            TaskWork::Ring { ring, .. } => dark(*ring),
            TaskWork::Transfer { from, to, .. } => {
                self.is_inside(*from, *to) && dark(from / self.order.tensor())
            }
            _ => false,
        };
        of_ring || rings_of(work, self.order.tensor()).iter().any(cannot)
    }

    /// Whether nothing else of the step passes the links of a TP group for so long, as far as the graph tells: the GPUs of a
    /// switched domain have one cable each.
    fn is_alone(&self, context: &Context<'_>, ring: u32, took: Picoseconds) -> bool {
        let domain =
            |ring: u32| context.substrate.domain_of(self.seats[ring as usize].members.ranks[0]);
        let Some(own) = domain(ring) else { return true };
        let (tasks, tensor) = (self.order.graph.tasks(), self.order.tensor());
        let is_inside = |task: &TaskId| {
            let rings = rings_of(&tasks[task.index()].work, tensor);
            rings.iter().any(|other| *other != ring && domain(*other) == Some(own))
        };
        let may_meet = |task: &TaskId| match self.tasks[task.index()].state {
            State::Done => false,
            State::Waits => self.may_begin(context.now(), *task, took, 4),
            State::Held | State::Timed | State::Sends => true,
        };
        !self.across[ring as usize].iter().any(|task| may_meet(task) && is_inside(task))
    }

    /// Whether a task may begin within `room`, as far as the tasks up to so many places before it tell.
    fn may_begin(&self, now: SimTime, task: TaskId, room: Picoseconds, places: u32) -> bool {
        let tasks = self.order.graph.tasks();
        tasks[task.index()].after.iter().all(|before| {
            let (log, work) = (&self.tasks[before.index()], &tasks[before.index()].work);
            match (log.state, work) {
                (State::Timed, TaskWork::Compute { .. }) => log.end <= now + room,
                (State::Waits, TaskWork::Compute { took, .. }) if *took > room => false,
                (State::Waits, work) if places > 0 => {
                    let took = if let TaskWork::Compute { took, .. } = work { took.0 } else { 0 };
                    self.may_begin(now, *before, Picoseconds(room.0 - took), places - 1)
                }
                _ => true,
            }
        })
    }

    /// A task that was begun, or could have been, is not any more: its timers and packets mean nothing.
    pub(super) fn drop_task(&mut self, context: &mut Context<'_>, task: TaskId) {
        self.running.remove(&task);
        self.held.remove(&task);
        if let Some(collective) = self.sending.remove(&task) {
            context.disown(collective.batch);
            collective.cancel(&mut context.engine);
        }
        let log = &mut self.tasks[task.index()];
        log.turn = log.turn.wrapping_add(1);
        log.state = State::Waits;
    }

    /// A task waits until its group can work.
    pub(super) fn hold(&mut self, context: &mut Context<'_>, task: TaskId) {
        self.drop_task(context, task);
        self.tasks[task.index()].state = State::Held;
        self.held.insert(task);
    }
}

impl Trainings<'_> {
    /// Begins a task, now; holds it if its groups cannot work.
    pub(super) fn begin_task(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        id: TaskId,
    ) -> Result<(), RunError> {
        let now = context.now();
        let is_early = self.waits_for_circuits(job, id);
        let training = &mut self.jobs[job];
        let order = training.order;
        let work = &order.graph.tasks()[id.index()].work;
        if is_early || training.is_held(context, work) {
            training.hold(context, id);
            return Ok(());
        }
        training.held.remove(&id);
        training.running.insert(id);
        let lag = order.lag(id);
        let mut least = Picoseconds::ZERO;
        let alone = match work {
            TaskWork::Compute { took, .. } => {
                let is_again = training.tasks[id.index()].is_again;
                let again = order.again.get(&id).filter(|_| is_again).copied();
                Some(*took + again.unwrap_or_default())
            }
            TaskWork::Ring { kind, ring, bytes } => {
                let seat = &training.seats[*ring as usize];
                let settings = context.engine.settings();
                let around = Sends::over(Route::Within(HBD), Some(*kind), (Vec::new(), *bytes));
                let around = Sends { directions: seat.directions(context), ..around };
                let what = around.paced(&order.graph.pace(id), &settings.transport, Vec::new());
                let class = self.times.class_of(context, &seat.members);
                let took = match class.filter(|_| seat.slowed_by == 0).zip(what.around()) {
                    Some((class, what)) => self.times.time_of(settings, class, what)?,
                    None => None,
                };
                let took = took.map(|took| lag + took);
                took.filter(|took| training.is_alone(context, *ring, *took))
            }
            _ => None,
        };
        let training = &mut self.jobs[job];
        let log = &mut training.tasks[id.index()];
        log.turn = log.turn.wrapping_add(1);
        (log.state, log.begun) = (State::Timed, now);
        let (act, time) = match alone {
            Some(took) => {
                (log.end, log.ideal) = (now + took, took);
                if !matches!(work, TaskWork::Compute { .. }) {
                    least = context.substrate.network.shortest_delay();
                }
                (TrainTimer::Worked, now + took + least)
            }
            None => (TrainTimer::Send, now + lag),
        };
        let turn = log.turn;
        if act == TrainTimer::Send && lag == Picoseconds::ZERO {
            return self.send(context, job, id);
        }
        self.plan(context, time, (act, job, turn, id.0));
        Ok(())
    }

    /// The packets of an exchange leave; where a rank has no way it waits until it has one.
    pub(super) fn send(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        id: TaskId,
    ) -> Result<(), RunError> {
        let training = &mut self.jobs[job];
        let task = &training.order.graph.tasks()[id.index()];
        if let Some(circuits) = &mut self.circuits {
            circuits.unload(job, id);
        }
        let sends = training.sends(context, (&mut self.circuits, (job, id)));
        let started = sends.map(|sends| context.add(|engine| sends.start(engine))).transpose();
        let started = started.map_err(|error| {
            let workload = format!("{}`, task `{}", training.order.train.job, task.name);
            RunError::Workload { workload, error }
        });
        // The light of its ring went before it began, no circuit and no core join its leaves, or a rank has no way.
        let Some((collective, flows)) = started?.flatten() else {
            training.hold(context, id);
            return Ok(());
        };
        if !matches!(task.work, TaskWork::Ring { .. }) {
            context.note_flows(flows);
        }
        let lag = training.order.lag(id);
        let log = &mut training.tasks[id.index()];
        (log.state, log.ideal) = (State::Sends, lag + collective.ideal.max(collective.interface));
        context.own(collective.batch, self.me);
        self.batches.insert(collective.batch, (job, id));
        training.sending.insert(id, collective);
        Ok(())
    }

    /// A task has ended: those that waited for it alone begin.
    pub(super) fn worked(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        id: TaskId,
    ) -> Result<(), RunError> {
        let training = &mut self.jobs[job];
        training.running.remove(&id);
        training.tasks[id.index()].state = State::Done;
        if let Some(circuits) = &mut self.circuits {
            circuits.unload(job, id);
        }
        let ready = training.schedule.finish(id);
        if training.phases.ends(id) {
            self.ask(context, job, false);
        }
        let training = &mut self.jobs[job];
        if training.schedule.open() == 0 {
            return self.round_done(context, job);
        }
        ready.into_iter().try_for_each(|next| self.begin_task(context, job, next))
    }

    /// Tasks that could not begin try again.
    pub(super) fn retry_held(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
    ) -> Result<(), RunError> {
        let held = std::mem::take(&mut self.jobs[job].held);
        held.into_iter().try_for_each(|task| self.begin_task(context, job, task))
    }
}

impl TrainingJob<'_> {
    /// What a task sends. `None` while its ring is dark, or nothing joins its leaves.
    fn sends(
        &self,
        context: &Context<'_>,
        (circuits, of): (&mut Option<Circuits<'_>>, (usize, TaskId)),
    ) -> Option<Sends> {
        let (task, transport) = (of.1, context.engine.transport());
        let (graph, pace) = (&self.order.graph, self.order.graph.pace(task));
        let (kind, hosts, bytes) = match &graph.tasks()[task.index()].work {
            TaskWork::Compute { .. } => return None,
            TaskWork::Ring { kind, ring, bytes } => {
                let members = &self.seats[*ring as usize].members;
                if self.seats[*ring as usize].has_ring() {
                    let ways = ways_past(context, members)?;
                    let around = (members.ring.clone(), *bytes);
                    let sends = Sends::over(Route::Within(HBD), Some(*kind), around);
                    let inside = vec![Some(0); members.ring.len()];
                    let sends = sends.paced(&pace, transport, inside);
                    let directions = self.seats[*ring as usize].directions(context);
                    return Some(Sends { ways, directions, ..sends });
                }
                (Some(*kind), members.ranks.clone(), *bytes)
            }
            // GPUs of one ring have it between them.
            TaskWork::Transfer { from, to, bytes } if self.is_inside(*from, *to) => {
                let around = (vec![self.host(*from), self.host(*to)], *bytes);
                let sends = Sends::over(Route::Within(HBD), None, around);
                return Some(sends.paced(&pace, transport, vec![Some(0); 2]));
            }
            TaskWork::Transfer { from, to, bytes } => {
                (None, vec![self.host(*from), self.host(*to)], *bytes)
            }
            TaskWork::Across { kind, ranks, bytes } => {
                let hosts = ranks.iter().map(|rank| self.host(*rank)).collect();
                (Some(*kind), hosts, *bytes)
            }
        };
        let domains = hosts.iter().map(|host| context.substrate.domain_of(*host)).collect();
        let ways = match circuits {
            Some(circuits) => circuits.ways(context, of, (kind, &hosts), bytes)?,
            None => BTreeMap::new(),
        };
        let sends = Sends::over(context.substrate.route.clone(), kind, (hosts, bytes));
        let sends = sends.paced(&pace, transport, domains);
        Some(Sends { ways, ..sends })
    }
}
