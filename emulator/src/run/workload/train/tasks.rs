// SPDX-License-Identifier: Apache-2.0
//! Tasks of a step: computation uses timers, ring exchanges reuse idle-ring times, and all other
//! exchanges are simulated packet by packet.

use lightloom_engine::collective::HostRoutes;
use lightloom_engine::steady::Stage;
use lightloom_engine::{Route, VertexId};
use lightloom_training::graph::{TaskId, TaskWork};
use lightloom_units::Picoseconds;

use super::super::super::context::Context;
use super::super::super::{RunError, RunResult};
use super::super::foresight::{Foresight, Share};
use super::super::groups::ways_past;
use super::super::sends::Sends;
use super::{Circuits, State, TrainOrder, TrainTimer, TrainingJob, Trainings};
use crate::substrate::HBD;

pub(super) fn rings_of(work: &TaskWork, tensor: u32) -> Vec<u32> {
    let mut rings = match work {
        TaskWork::Compute { rank, .. } => vec![rank / tensor],
        TaskWork::Ring { ring, .. } => vec![*ring],
        TaskWork::Across { ranks, .. } | TaskWork::Pairs { ranks, .. } => {
            ranks.iter().map(|rank| rank / tensor).collect()
        }
        TaskWork::Transfer { from, to, .. } => vec![from / tensor, to / tensor],
    };
    rings.sort_unstable();
    rings.dedup();
    rings
}

impl TrainOrder<'_> {
    fn lag(&self, task: TaskId) -> Picoseconds {
        self.graph.pace(task).lag(self.cables)
    }
}

impl TrainingJob<'_> {
    fn host(&self, rank: u32) -> VertexId {
        let tensor = self.order.tensor();
        self.seats[(rank / tensor) as usize].members.ranks[(rank % tensor) as usize]
    }

    fn is_inside(&self, from: u32, to: u32) -> bool {
        let [a, b] = [from, to].map(|rank| rank / self.order.tensor());
        a == b && self.seats[a as usize].has_ring()
    }

    fn is_held(&self, context: &Context<'_>, work: &TaskWork) -> bool {
        if self.loads {
            return true;
        }
        let of_ring = match work {
            TaskWork::Ring { ring, .. } => Some(*ring),
            TaskWork::Transfer { from, to, .. } => {
                self.is_inside(*from, *to).then(|| from / self.order.tensor())
            }
            _ => None,
        };
        let mut rings = rings_of(work, self.order.tensor()).into_iter();
        of_ring.is_some_and(|ring| !self.seats[ring as usize].has_light(context))
            || rings.any(|ring| !self.seats[ring as usize].can_work())
    }

    /// Returns whether `task` has its links to itself. GPUs in a switched domain have one cable each.
    fn is_alone(&self, context: &Context<'_>, task: TaskId, ring: u32, took: Picoseconds) -> bool {
        let Some(domain) = self.domain_of(context, ring) else { return true };
        let graph = &self.order.graph;
        let mut foresight = Foresight::new(graph, &self.schedule, took);
        for other in self.running.iter().chain(&self.held).copied().filter(|of| *of != task) {
            let (rings, inside) = self.rings_in(context, domain, other);
            if inside > 1 && rings.contains(&ring) {
                return false;
            }
            if inside > 0 {
                foresight.ends_in(other, self.time_left(context, other));
            }
        }
        !foresight.begins(
            |task| match self.rings_in(context, domain, task) {
                (_, 0) => Share::None,
                (rings, inside) if inside == rings.len() => Share::All,
                _ => Share::Some,
            },
            |task| {
                let (rings, inside) = self.rings_in(context, domain, task);
                inside > 1 && rings.contains(&ring)
            },
        )
    }

    fn domain_of(&self, context: &Context<'_>, ring: u32) -> Option<u32> {
        context.substrate.domain_of(self.seats[ring as usize].members.ranks[0])
    }

    /// Returns the rings of a task, and how many of them are in this domain.
    fn rings_in(&self, context: &Context<'_>, domain: u32, task: TaskId) -> (Vec<u32>, usize) {
        let work = &self.order.graph.tasks()[task.index()].work;
        let rings = rings_of(work, self.order.tensor());
        let inside = rings.iter().filter(|ring| self.domain_of(context, **ring) == Some(domain));
        let inside = inside.count();
        (rings, inside)
    }

    fn time_left(&self, context: &Context<'_>, task: TaskId) -> Picoseconds {
        let log = &self.tasks[task.index()];
        match (log.state, &self.order.graph.tasks()[task.index()].work) {
            (State::Timed, _) => Picoseconds(log.end.0.saturating_sub(context.now().0)),
            (State::Waits, TaskWork::Compute { took, .. }) => *took,
            _ => Picoseconds::ZERO,
        }
    }

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

    pub(super) fn hold(&mut self, context: &mut Context<'_>, task: TaskId) {
        self.drop_task(context, task);
        self.tasks[task.index()].state = State::Held;
        self.held.insert(task);
    }
}

impl Trainings<'_> {
    pub(super) fn begin_task(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        id: TaskId,
    ) -> RunResult {
        let now = context.now();
        let training = &mut self.jobs[job];
        let order = training.order;
        let work = &order.graph.tasks()[id.index()].work;
        let circuits = self.circuits.as_ref();
        let is_early = circuits.is_some_and(|it| it.hold(&training.phases, id, work));
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
                let around = Sends::over(Route::Within(HBD), Some(*kind), Vec::new(), *bytes);
                let around = Sends { directions: seat.directions(context), ..around };
                let what = around.paced(&order.graph.pace(id), &settings.transport, Vec::new());
                let class = self.times.class_of(context, &seat.members);
                let took = match class.filter(|_| seat.slowed_by == 0).zip(what.around()) {
                    Some((class, what)) => self.times.time_of(settings, class, what, |took| {
                        training.is_alone(context, id, *ring, lag + took)
                    })?,
                    None => None,
                };
                took.map(|took| lag + took)
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
        self.plan(context, time, act, job, turn, id.0);
        Ok(())
    }

    pub(super) fn send(&mut self, context: &mut Context<'_>, job: usize, id: TaskId) -> RunResult {
        let training = &mut self.jobs[job];
        let task = &training.order.graph.tasks()[id.index()];
        let sends = training.sends(context, &mut self.circuits, id);
        let started = sends.map(|sends| context.add(|engine| sends.start(engine))).transpose();
        let started = started.map_err(|error| {
            let workload = format!("{}`, task `{}", training.order.train.job, task.name);
            RunError::Workload { workload, error }
        });
        // The ring is dark, the leaves are disconnected, or a rank has no path.
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

    pub(super) fn worked(
        &mut self,
        context: &mut Context<'_>,
        job: usize,
        id: TaskId,
    ) -> RunResult {
        let training = &mut self.jobs[job];
        training.running.remove(&id);
        training.tasks[id.index()].state = State::Done;
        let ready = training.schedule.finish(id);
        training.running.extend(&ready);
        if training.phases.ends(id) {
            self.ask(context, job, false);
        }
        let training = &mut self.jobs[job];
        if training.schedule.open() == 0 {
            return self.round_done(context, job);
        }
        ready.into_iter().try_for_each(|next| self.begin_task(context, job, next))
    }

    pub(super) fn retry_held(&mut self, context: &mut Context<'_>, job: usize) -> RunResult {
        let held = std::mem::take(&mut self.jobs[job].held);
        held.into_iter().try_for_each(|task| self.begin_task(context, job, task))
    }
}

impl TrainingJob<'_> {
    fn sends(
        &self,
        context: &Context<'_>,
        circuits: &mut Option<Circuits<'_>>,
        task: TaskId,
    ) -> Option<Sends> {
        let (graph, pace) = (&self.order.graph, self.order.graph.pace(task));
        let transport = context.engine.transport();
        let (kind, hosts, bytes) = match &graph.tasks()[task.index()].work {
            TaskWork::Compute { .. } | TaskWork::Pairs { .. } => return None,
            TaskWork::Ring { kind, ring, bytes } => {
                let members = &self.seats[*ring as usize].members;
                if self.seats[*ring as usize].has_ring() {
                    let ways = ways_past(context, members)?;
                    let hosts = members.ring.clone();
                    let sends = Sends::over(Route::Within(HBD), Some(*kind), hosts, *bytes);
                    let inside = vec![Some(0); members.ring.len()];
                    let sends = sends.paced(&pace, transport, inside);
                    let directions = self.seats[*ring as usize].directions(context);
                    return Some(Sends { ways, directions, ..sends });
                }
                (Some(*kind), members.ranks.clone(), *bytes)
            }
            TaskWork::Transfer { from, to, bytes } if self.is_inside(*from, *to) => {
                let ends = vec![self.host(*from), self.host(*to)];
                let sends = Sends::over(Route::Within(HBD), None, ends, *bytes);
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
            Some(circuits) => circuits.ways(context, kind, &hosts, self.phases.planned(task))?,
            None => HostRoutes::new(),
        };
        let sends = Sends::over(context.substrate.route.clone(), kind, hosts, bytes);
        let sends = sends.paced(&pace, transport, domains);
        Some(Sends { ways, ..sends })
    }
}
