// SPDX-License-Identifier: Apache-2.0
//! Training jobs as sequences of steps with a barrier after each step. TP groups communicate over their rings; all
//! other traffic uses the network. A task is held while its group has no light, has lost its node, or has no path.

mod circuits;
mod restart;
mod seats;
mod tasks;
mod why;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_engine::collective::StartedCollective;
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, LinkId};
use lightloom_training::graph::{Schedule, TaskGraph, TaskId};
use lightloom_training::reinforcement::ReinforcementTasks;
use lightloom_training::step::StepTime;
use lightloom_training::tasks::TaskPurpose;
use lightloom_units::{Picoseconds, SimTime};

use super::super::context::{Context, Notice, Owner};
use super::super::{RunLog, RunResult};
use super::progress::{GroupLog, StepLog};
use super::ring_time::{RingReuse, RingTimes};
use super::{Waiting, WaitsFor, Workload};
use crate::scenario::{Train, TrainStep};
use crate::substrate::Members;
pub(crate) use circuits::Circuits;
use circuits::Phases;
use seats::Seat;
use why::StepAudit;
pub use why::{Exposed, WhyResult};
pub(crate) use why::{StepBreakdown, is_nothing};

pub(crate) struct TrainOrder<'a> {
    train: &'a Train,
    step: TrainStep,
    graph: TaskGraph,
    dimensions: Vec<TaskPurpose>,
    /// Additional time of each task after its group has lost its memory.
    again: BTreeMap<TaskId, Picoseconds>,
    cables: [Picoseconds; 2],
    closed_form: StepTime,
    seats: Vec<Members>,
}

impl<'a> TrainOrder<'a> {
    pub(crate) fn new(
        train: &'a Train,
        step: TrainStep,
        cables: [Picoseconds; 2],
        seats: Vec<Members>,
    ) -> Self {
        let ReinforcementTasks { graph, purposes: dimensions, again } = step.tasks();
        let closed_form = step.closed_form();
        Self { train, step, graph, dimensions, again, cables, closed_form, seats }
    }

    fn is_pool(&self, ring: usize) -> bool {
        ring as u64 >= self.step.owned.mapping.gpus() / u64::from(self.tensor())
    }

    fn tensor(&self) -> u32 {
        self.step.owned.mapping.tensor
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waits,
    Held,
    Timed,
    Sends,
    Done,
}

#[derive(Clone, Copy, Debug, Default)]
struct TaskLog {
    state: State,
    turn: u16,
    begun: SimTime,
    end: SimTime,
    ideal: Picoseconds,
    is_again: bool,
}

struct TrainingJob<'a> {
    order: &'a TrainOrder<'a>,
    schedule: Schedule,
    tasks: Vec<TaskLog>,
    running: BTreeSet<TaskId>,
    held: BTreeSet<TaskId>,
    sending: BTreeMap<TaskId, StartedCollective>,
    seats: Vec<Seat>,
    /// Number of passes through the graph in this step; more than one if a checkpoint was read.
    rounds: u32,
    round: SimTime,
    loads: bool,
    outages: Vec<Interruption>,
    hit_by: BTreeSet<usize>,
    changes: Vec<(SimTime, SimTime)>,
    phases: Phases,
    restarts: u32,
    steps: Vec<TrainStepLog>,
}

#[derive(Clone, Debug)]
struct Interruption {
    began: SimTime,
    ended: SimTime,
    fault: Option<usize>,
    rings: BTreeSet<u32>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TrainStepLog {
    pub(crate) start: SimTime,
    pub(crate) end: Option<SimTime>,
    pub(crate) group_ends: Vec<SimTime>,
    pub(crate) why: StepBreakdown,
    pub(crate) restarts: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct TrainLog {
    pub(crate) name: String,
    pub(crate) step: TrainStep,
    pub(crate) closed_form: StepTime,
    pub(crate) steps: Vec<TrainStepLog>,
    pub(crate) hit_by: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrainTimer {
    Worked,
    Send,
    Loaded,
    Resume,
    Wake,
    Asked,
}

const ACTS: [TrainTimer; 6] = [
    TrainTimer::Worked,
    TrainTimer::Send,
    TrainTimer::Loaded,
    TrainTimer::Resume,
    TrainTimer::Wake,
    TrainTimer::Asked,
];

pub(crate) struct Trainings<'a> {
    jobs: Vec<TrainingJob<'a>>,
    batches: BTreeMap<BatchId, (usize, TaskId)>,
    times: RingTimes,
    circuits: Option<Circuits<'a>>,
    /// Job and TP group of each group of the run. `None` for groups without training.
    places: Vec<Option<(usize, usize)>>,
    groups: Vec<(u32, u32)>,
    me: Owner,
}

impl<'a> Trainings<'a> {
    pub(crate) fn new(
        orders: &'a [TrainOrder<'a>],
        groups: &[Members],
        circuits: Option<Circuits<'a>>,
    ) -> Self {
        let mut places = vec![None; groups.len()];
        for (job, order) in orders.iter().enumerate() {
            for (ring, seat) in order.seats.iter().enumerate() {
                let place = groups.iter().position(|group| group.ranks == seat.ranks);
                if let Some(place) = place {
                    places[place] = Some((job, ring));
                }
            }
        }
        let mut jobs: Vec<TrainingJob<'_>> = orders.iter().map(TrainingJob::of).collect();
        if let Some(circuits) = &circuits {
            for job in &mut jobs {
                let order = job.order;
                let job_name = &order.train.job;
                job.phases = Phases::of(circuits, job_name, &order.graph, &order.dimensions);
            }
        }
        Self {
            circuits,
            jobs,
            batches: BTreeMap::new(),
            times: RingTimes::new(RingReuse::IdleRings),
            groups: groups.iter().map(|group| (group.job, group.gpus)).collect(),
            places,
            me: Owner::Workload(0),
        }
    }

    fn plan(
        &self,
        context: &mut Context<'_>,
        time: SimTime,
        act: TrainTimer,
        job: usize,
        turn: u16,
        at: u32,
    ) {
        let number =
            (act as u64) << 60 | (job as u64) << 48 | u64::from(turn) << 32 | u64::from(at);
        context.at(time, self.me, number);
    }

    fn round_done(&mut self, context: &mut Context<'_>, job: usize) -> RunResult {
        let now = context.now();
        let training = &mut self.jobs[job];
        training.rounds -= 1;
        if training.rounds == 0 {
            training.end_step(context);
            if training.is_done() {
                return Ok(());
            }
            training.begin_step();
        } else {
            training.begin_round(now);
        }
        self.ask(context, job, true);
        self.begin_ready(context, job)
    }

    fn ask(&mut self, context: &mut Context<'_>, job: usize, is_new: bool) {
        let training = &mut self.jobs[job];
        let circuits = self.circuits.as_ref();
        let phase = circuits.and_then(|it| it.next_request(&mut training.phases, is_new));
        let Some(phase) = phase else { return };
        let step = training.steps.len() as u32 - 1;
        context.post(Notice::PhaseBegan { step, phase });
        let soon = context.now() + Picoseconds(1);
        self.plan(context, soon, TrainTimer::Asked, job, 0, 0);
    }

    fn circuits_changed(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        let Some(circuits) = &mut self.circuits else { return Ok(()) };
        circuits.hear(notice);
        if let Notice::ChangeEnded { began, ended } = notice {
            self.jobs.iter_mut().for_each(|job| job.changes.push((*began, *ended)));
            (0..self.jobs.len()).for_each(|job| self.ask(context, job, false));
            return (0..self.jobs.len()).try_for_each(|job| self.retry_held(context, job));
        }
        (0..self.jobs.len()).try_for_each(|job| self.leave_dark_lanes(context, job))
    }

    fn leave_dark_lanes(&mut self, context: &mut Context<'_>, job: usize) -> RunResult {
        let Some(circuits) = &self.circuits else { return Ok(()) };
        let training = &mut self.jobs[job];
        let cut = training
            .sending
            .iter()
            .filter(|(_, sent)| sent.flows.iter().any(|flow| circuits.is_dark(context, *flow)));
        let cut: Vec<TaskId> = cut.map(|(task, _)| *task).collect();
        for task in &cut {
            training.hold(context, *task);
        }
        if cut.is_empty() { Ok(()) } else { self.retry_held(context, job) }
    }

    fn begin_ready(&mut self, context: &mut Context<'_>, job: usize) -> RunResult {
        let training = &mut self.jobs[job];
        let mut ready = training.schedule.ready();
        ready.retain(|task| !training.running.contains(task));
        training.running.extend(&ready);
        ready.into_iter().try_for_each(|task| self.begin_task(context, job, task))
    }

    fn waits(&self, context: &Context<'_>, job: usize) -> Waiting {
        let training = &self.jobs[job];
        let stopped = training.seats.iter().find(|seat| seat.is_lost || seat.is_stopped);
        let mut ring_links = training.seats.iter().flat_map(|seat| &seat.ring_links);
        let dark = ring_links.find(|link| !context.carries(**link));
        let waits_for = match (stopped, dark) {
            (Some(seat), _) if seat.is_lost => WaitsFor::Nodes,
            (Some(_), _) => WaitsFor::Transceivers,
            (None, Some(link)) => WaitsFor::DarkLink {
                link: context.substrate.link_name(*link),
                control_is_gone: context.control_is_gone(),
            },
            (None, None) if training.sending.is_empty() && !training.held.is_empty() => {
                WaitsFor::Way
            }
            (None, None) => WaitsFor::Packets,
        };
        let down = stopped.and_then(|seat| seat.down_since);
        let since = down.or(training.steps.last().map(|step| step.start));
        let step = training.steps.len().max(1) - 1;
        let what = format!("job `{}`, step {step}", training.order.train.job);
        Waiting { what, since, waits_for }
    }
}

impl<'a> TrainingJob<'a> {
    fn of(order: &'a TrainOrder<'a>) -> Self {
        Self {
            schedule: Schedule::of(&order.graph),
            tasks: vec![TaskLog::default(); order.graph.tasks().len()],
            running: BTreeSet::new(),
            held: BTreeSet::new(),
            sending: BTreeMap::new(),
            seats: order.seats.iter().cloned().map(Seat::of).collect(),
            rounds: 0,
            round: SimTime::START,
            loads: false,
            outages: Vec::new(),
            hit_by: BTreeSet::new(),
            changes: Vec::new(),
            phases: Phases::default(),
            restarts: 0,
            steps: Vec::new(),
            order,
        }
    }

    fn begin_step(&mut self) {
        let start = self.steps.last().and_then(|step| step.end).unwrap_or_default();
        self.steps.push(TrainStepLog { start, ..TrainStepLog::default() });
        self.rounds = 1;
        self.restarts = 0;
        self.outages.clear();
        self.changes.clear();
        self.begin_round(start);
    }

    fn begin_round(&mut self, now: SimTime) {
        self.round = now;
        self.schedule = Schedule::of(&self.order.graph);
        self.phases.begin();
        for task in &mut self.tasks {
            *task = TaskLog { turn: task.turn, ..TaskLog::default() };
        }
    }

    fn end_step(&mut self, context: &Context<'_>) {
        let end = self.tasks.iter().map(|task| task.end).max().unwrap_or_default();
        let mut group_ends = vec![SimTime::START; self.seats.len()];
        for (task, log) in self.order.graph.tasks().iter().zip(&self.tasks) {
            for ring in tasks::rings_of(&task.work, self.order.tensor()) {
                let last = &mut group_ends[ring as usize];
                *last = (*last).max(log.end);
            }
        }
        let why = StepAudit::of(self, context);
        let restarts = self.restarts;
        let Some(step) = self.steps.last_mut() else { return };
        *step = TrainStepLog { end: Some(end), group_ends, why, restarts, ..*step };
    }

    fn is_done(&self) -> bool {
        let wanted = self.order.train.steps as usize;
        self.steps.len() == wanted && self.steps.last().is_some_and(|step| step.end.is_some())
    }

    fn done_share(&self) -> (f64, f64) {
        let all = self.tasks.len().max(1) as f64;
        let ended = self.steps.iter().filter(|step| step.end.is_some()).count() as f64;
        let now = if self.rounds > 0 { 1.0 - self.schedule.open() as f64 / all } else { 0.0 };
        let wanted = f64::from(self.order.train.steps);
        ((ended + now).min(wanted) * all, wanted * all)
    }
}

impl Workload for Trainings<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        context.has_fixed_flows |= self.circuits.as_ref().is_some_and(Circuits::can_change);
        self.circuits_changed(context, &Notice::Circuits)?;
        for job in 0..self.jobs.len() {
            self.jobs[job].seats.iter_mut().for_each(|seat| seat.find_links(context));
            self.jobs[job].begin_step();
            self.ask(context, job, true);
            self.begin_ready(context, job)?;
        }
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, number: u64) -> RunResult {
        let act = ACTS[(number >> 60) as usize];
        let job = (number >> 48 & 0xfff) as usize;
        let (turn, at) = ((number >> 32 & 0xffff) as u16, number as u32);
        match act {
            TrainTimer::Worked | TrainTimer::Send
                if self.jobs[job].tasks[at as usize].turn != turn =>
            {
                Ok(())
            }
            TrainTimer::Worked => self.worked(context, job, TaskId(at)),
            TrainTimer::Send => self.send(context, job, TaskId(at)),
            TrainTimer::Loaded => self.loaded(context, job, turn),
            TrainTimer::Resume => self.resume(context, job, at as usize),
            TrainTimer::Wake => self.wake(context, job, at as usize),
            TrainTimer::Asked => {
                self.jobs[job].phases.answered();
                self.retry_held(context, job)
            }
        }
    }

    fn batch_done(&mut self, context: &mut Context<'_>, batch: BatchId, at: SimTime) -> RunResult {
        let Some((job, task)) = self.batches.remove(&batch) else { return Ok(()) };
        let training = &mut self.jobs[job];
        let sent = training.sending.remove(&task);
        let mut flows = sent.into_iter().flat_map(|sent| sent.flows);
        if !context.is_calm() && flows.any(|flow| context.engine.record(flow).cancelled) {
            training.hold(context, task);
            return Ok(());
        }
        training.tasks[task.index()].end = at;
        self.worked(context, job, task)
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        match notice {
            Notice::Groups(moves) => self.move_groups(context, moves),
            Notice::Circuits | Notice::ChangeBegan | Notice::ChangeEnded { .. } => {
                self.circuits_changed(context, notice)
            }
            Notice::Routes => {
                (0..self.jobs.len()).try_for_each(|job| self.leave_dark_lanes(context, job))?;
                (0..self.jobs.len()).try_for_each(|job| self.retry_held(context, job))
            }
            _ => Ok(()),
        }
    }

    fn fault_began(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        links: &[LinkId],
    ) -> RunResult {
        self.circuits.iter_mut().for_each(Circuits::look_again);
        self.fault_hits(context, fault, links);
        Ok(())
    }

    fn fault_ended(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        self.circuits.iter_mut().for_each(Circuits::look_again);
        self.fault_is_over(context, fault);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.jobs.iter().all(TrainingJob::is_done)
    }

    fn can_strand(&self) -> bool {
        true
    }

    fn waits_for_restoration(&self) -> bool {
        true
    }

    fn progress(&self, _: &Context<'_>) -> (f64, f64) {
        let shares = self.jobs.iter().map(TrainingJob::done_share);
        shares.fold((0.0, 0.0), |(a, b), (done, all)| (a + done, b + all))
    }

    fn last_end(&self) -> Option<SimTime> {
        let steps = self.jobs.iter().flat_map(|job| &job.steps);
        steps.filter_map(|step| step.end).max()
    }

    fn waiting(&self, context: &Context<'_>) -> Vec<Waiting> {
        let open = (0..self.jobs.len()).filter(|job| !self.jobs[*job].is_done());
        open.map(|job| self.waits(context, job)).collect()
    }

    fn finish(mut self: Box<Self>, _: &mut Context<'_>, log: &mut RunLog) {
        let ended = log.ended;
        let longest = self.jobs.iter().map(|job| job.order.train.steps).max().unwrap_or(0) as usize;
        log.program_length = longest;
        let jobs = self.groups.iter().map(|(job, _)| job + 1).max().unwrap_or(0);
        log.between = vec![Vec::new(); jobs as usize];
        for job in &mut self.jobs {
            job.seats.iter_mut().for_each(|seat| seat.comes_back(ended));
        }
        let places = self.places.iter().zip(&self.groups);
        log.groups = places
            .map(|(place, (job, gpus))| self.group_log(*place, *job, *gpus, longest))
            .collect();
        log.trained = self.jobs.iter().map(TrainingJob::log).collect();
        log.rings = self.times.counts;
    }
}

impl Trainings<'_> {
    fn group_log(
        &self,
        place: Option<(usize, usize)>,
        job: u32,
        gpus: u32,
        length: usize,
    ) -> GroupLog {
        let Some((at, ring)) = place else {
            let (steps, down) = (Vec::new(), Picoseconds::ZERO);
            return GroupLog { next: length, steps, down, lost: false, job, gpus };
        };
        let (training, seat) = (&self.jobs[at], &self.jobs[at].seats[ring]);
        let steps = training.steps.iter().enumerate().map(|(place, step)| StepLog {
            place,
            collective: usize::MAX,
            start: step.start,
            end: step.end.and_then(|_| step.group_ends.get(ring).copied()),
            ideal: Picoseconds((training.order.closed_form.step_seconds * 1e12) as u64),
            interface: Picoseconds::ZERO,
            ranks: training.order.tensor(),
            restarts: step.restarts,
        });
        let steps: Vec<StepLog> = steps.collect();
        let next = if training.is_done() { length } else { steps.len().max(1) - 1 };
        GroupLog { next, steps, down: seat.down(), lost: seat.is_lost, job, gpus }
    }
}

impl TrainingJob<'_> {
    fn log(&self) -> TrainLog {
        TrainLog {
            name: self.order.train.job.clone(),
            step: self.order.step.clone(),
            closed_form: self.order.closed_form,
            steps: self.steps.clone(),
            hit_by: self.hit_by.clone(),
        }
    }
}
