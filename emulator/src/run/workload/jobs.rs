// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;
use std::ops::Range;

use lightloom_collective::CollectiveKind;
use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, FlowId, FlowWait};
use lightloom_training::graph::TaskId;
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rand::Rng;

use super::super::context::{Context, Notice, Owner};
use super::super::{RunError, RunLog, RunResult};
use super::recorded::Playing;
use super::ring_time::{RingReuse, RingTimes};
use super::{Waiting, WaitsFor, Workload, shortened};
use crate::scenario::{Pattern, Prior, Traffic};

pub(crate) struct Jobs<'a> {
    pub(super) traffic: &'a [Traffic],
    seed: Seed,
    pub(super) jobs: Vec<Job>,
    owner: BTreeMap<BatchId, usize>,
    turns: Vec<(SimTime, JobTurn)>,
    planned: Vec<JobTurn>,
    pub(super) playing: BTreeMap<usize, Playing>,
    pub(super) times: RingTimes,
    collectives: Vec<usize>,
    finished: Vec<usize>,
    pub(super) me: Owner,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobTurn {
    Begin(usize),
    Computed(usize),
    Worked(usize, TaskId),
}

#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) steps: Vec<Repetition>,
    pub(super) running: bool,
    blocked: bool,
    pub(crate) done: bool,
    pub(super) open: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Repetition {
    pub(crate) start: SimTime,
    pub(crate) end: Option<SimTime>,
    pub(crate) ideal: Picoseconds,
    pub(crate) size: Bytes,
    pub(crate) ranks: u32,
    /// Flow ranges, by task for recorded steps.
    pub(crate) flows: Vec<Range<u32>>,
    pub(crate) spans: Vec<(SimTime, SimTime)>,
}

impl Repetition {
    pub(super) fn begun(traffic: &Traffic, now: SimTime) -> Self {
        let ranks = u32::try_from(traffic.hosts.len()).expect("bounded");
        Self { start: now, size: traffic.bytes, ranks, ..Self::default() }
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows.iter().cloned().flatten().map(FlowId)
    }

    fn share_delivered(&self, context: &Context<'_>) -> f64 {
        let records = self.flows().map(|flow| context.engine.record(flow));
        let (done, all) = records.fold((0, 0), |(done, all), record| {
            (done + record.delivered.0.min(record.size.0), all + record.size.0)
        });
        if all > 0 { done as f64 / all as f64 } else { 0.0 }
    }
}

impl<'a> Jobs<'a> {
    pub(crate) fn new(traffic: &'a [Traffic], seed: Seed) -> Self {
        let first = traffic.iter().enumerate().filter(|(_, one)| one.after.is_empty());
        Self {
            turns: first
                .map(|(place, one)| (SimTime::START + one.delay, JobTurn::Begin(place)))
                .collect(),
            planned: Vec::new(),
            jobs: traffic.iter().map(|_| Job::default()).collect(),
            owner: BTreeMap::new(),
            playing: BTreeMap::new(),
            times: RingTimes::new(RingReuse::Never),
            collectives: Vec::new(),
            finished: Vec::new(),
            me: Owner::Workload(0),
            traffic,
            seed,
        }
    }

    pub(crate) fn reusing(mut self, reuse: RingReuse) -> Self {
        self.times = RingTimes::new(reuse);
        self
    }

    pub(super) fn plan_turns(&mut self, context: &mut Context<'_>) {
        for (time, turn) in std::mem::take(&mut self.turns) {
            self.plan(context, time, turn);
        }
        for place in self.finished.drain(..) {
            context.post(Notice::Done(Prior::Traffic(place)));
        }
    }

    pub(super) fn plan(&mut self, context: &mut Context<'_>, time: SimTime, turn: JobTurn) {
        self.planned.push(turn);
        context.at(time, self.me, self.planned.len() as u64 - 1);
    }

    fn begin_next(&mut self, context: &mut Context<'_>, place: usize) -> RunResult {
        let traffic: &'a Traffic = &self.traffic[place];
        let mut step = Repetition::begun(traffic, context.now());
        self.jobs[place].blocked = false;
        match &traffic.run {
            Pattern::Recorded(described) if traffic.hosts.len() >= described.ranks as usize => {
                return self.begin_recorded(context, place, step);
            }
            Pattern::Compute(takes) => {
                step.ideal = *takes;
                self.turns.push((step.start + *takes, JobTurn::Computed(place)));
                self.enter(place, step, 0);
                return Ok(());
            }
            _ => {}
        }
        // Faults that precede the run may have removed hosts.
        if traffic.hosts.len() < 2 || matches!(traffic.run, Pattern::Recorded(_)) {
            self.jobs[place].blocked = true;
            return Ok(());
        }
        let (seed, substrate) = (self.seed_of(place), context.substrate);
        let started = context.add(|engine| traffic.start(engine.engine_mut(), seed, substrate));
        let started = started
            .map_err(|error| RunError::Workload { workload: traffic.name.clone(), error })?;
        let Some((collective, flows)) = started else {
            self.jobs[place].blocked = true;
            return Ok(());
        };
        context.note_flows(flows.clone());
        step.ideal = collective.ideal;
        if collective.kind == CollectiveKind::Flows && !traffic.run.has_size() {
            step.size = collective.size;
        }
        let sends = !flows.is_empty();
        step.flows.push(flows);
        self.enter(place, step, usize::from(sends));
        if sends {
            self.owner.insert(collective.batch, place);
            context.own(collective.batch, self.me);
        } else {
            self.step_done(place, context.now(), context.now());
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, place: usize, step: Repetition, batches: usize) {
        let job = &mut self.jobs[place];
        job.running = true;
        job.open = batches;
        job.steps.push(step);
    }

    fn seed_of(&self, place: usize) -> Seed {
        let round = self.jobs[place].steps.len() as u64;
        Seed(self.seed.stream("workload", (place as u64) << 32 | round).next_u64())
    }

    pub(super) fn part_done(&mut self, place: usize, at: SimTime, now: SimTime) {
        self.jobs[place].open -= 1;
        if self.jobs[place].open == 0 {
            self.step_done(place, at, now);
        }
    }

    pub(super) fn step_done(&mut self, place: usize, at: SimTime, now: SimTime) {
        let job = &mut self.jobs[place];
        if let Some(step) = job.steps.last_mut() {
            step.end = step.end.max(Some(at));
        }
        job.running = false;
        if (job.steps.len() as u32) < self.traffic[place].repeat {
            self.turns.push((now, JobTurn::Begin(place)));
            return;
        }
        job.done = true;
        self.finished.push(place);
        self.begin_after(Prior::Traffic(place), now);
    }

    fn begin_after(&mut self, done: Prior, now: SimTime) {
        for (next, traffic) in self.traffic.iter().enumerate() {
            let waits = traffic.after.contains(&done);
            if waits && traffic.after.iter().all(|before| self.is_over(*before)) {
                self.turns.push((now + traffic.delay, JobTurn::Begin(next)));
            }
        }
    }

    fn is_over(&self, prior: Prior) -> bool {
        match prior {
            Prior::Traffic(place) => self.jobs[place].done,
            Prior::Collective(place) => self.collectives.contains(&place),
        }
    }

    fn open_flows(&self, context: &Context<'_>, name: &str, job: &Job) -> Vec<Waiting> {
        let flows = job.steps.last().into_iter().flat_map(Repetition::flows);
        let waiting = flows.filter(|flow| context.is_open(*flow)).map(|flow| Waiting {
            what: format!("`{name}`, flow {}", flow_name(context, flow)),
            ..flow_waits(context, flow)
        });
        shortened(&format!("`{name}`, flows"), waiting.collect())
    }

    fn waits(&self, context: &Context<'_>, place: usize) -> Vec<Waiting> {
        let (traffic, job) = (&self.traffic[place], &self.jobs[place]);
        let behind = traffic.after.iter().find(|before| !self.is_over(**before));
        let waits_for = match (behind, job.blocked) {
            (Some(Prior::Traffic(before)), _) => {
                WaitsFor::Workload(self.traffic[*before].name.clone())
            }
            (Some(Prior::Collective(before)), _) => WaitsFor::Collective(*before),
            (None, true) => WaitsFor::Way,
            (None, false) if self.playing.get(&place).is_some_and(Playing::is_blocked) => {
                WaitsFor::Way
            }
            (None, false) if job.running => {
                let flows = self.open_flows(context, &traffic.name, job);
                if !flows.is_empty() {
                    return flows;
                }
                WaitsFor::Packets
            }
            (None, false) => WaitsFor::Start,
        };
        vec![Waiting { what: format!("`{}`", traffic.name), since: None, waits_for }]
    }
}

pub(super) fn flow_name(context: &Context<'_>, flow: FlowId) -> String {
    let record = context.engine.record(flow);
    let [from, to] = [record.source, record.destination].map(|at| context.substrate.name(at));
    format!("{from} to {to}")
}

pub(super) fn flow_waits(context: &Context<'_>, flow: FlowId) -> Waiting {
    let record = context.engine.record(flow);
    let arrived = WaitsFor::Acknowledgements { delivered: record.delivered, size: record.size };
    let substrate = context.substrate;
    let (awaits, since) = match context.engine.engine() {
        Some(engine) => engine.awaits(flow),
        None => (FlowWait::Acknowledgements, None),
    };
    let waits_for = match awaits {
        FlowWait::Start => WaitsFor::Start,
        FlowWait::Dark(dark) => {
            let control_is_gone = context.control_is_gone();
            WaitsFor::DarkLink { link: substrate.link_name(dark), control_is_gone }
        }
        FlowWait::Messages(of) if context.engine.record(of).cancelled => {
            WaitsFor::GivenUp { flow: flow_name(context, of) }
        }
        FlowWait::Messages(of) => WaitsFor::Message { flow: flow_name(context, of) },
        FlowWait::Paused(port) => WaitsFor::Paused { port: substrate.link_name(port) },
        FlowWait::Turn(port) => WaitsFor::Turn { port: substrate.link_name(port) },
        FlowWait::Acknowledgements => arrived,
    };
    Waiting { what: String::new(), since, waits_for }
}

impl Workload for Jobs<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        self.plan_turns(context);
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        let now = context.now();
        match self.planned[act as usize] {
            JobTurn::Begin(place) => self.begin_next(context, place)?,
            JobTurn::Computed(place) => self.step_done(place, now, now),
            JobTurn::Worked(place, task) => self.worked(context, place, task)?,
        }
        self.plan_turns(context);
        Ok(())
    }

    fn batch_done(&mut self, context: &mut Context<'_>, batch: BatchId, at: SimTime) -> RunResult {
        if let Some(place) = self.owner.remove(&batch) {
            self.part_done(place, at, context.now());
        } else {
            self.task_done(context, batch, at)?;
        }
        self.plan_turns(context);
        Ok(())
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        if let Notice::Routes = notice {
            let now = context.now();
            let blocked = (0..self.jobs.len()).filter(|place| self.jobs[*place].blocked);
            self.turns.extend(blocked.map(|place| (now, JobTurn::Begin(place))));
            self.retry_tasks(context)?;
            self.plan_turns(context);
        }
        if let Notice::Done(Prior::Collective(place)) = notice {
            self.collectives.push(*place);
            self.begin_after(Prior::Collective(*place), context.now());
            self.plan_turns(context);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.jobs.iter().all(|job| job.done)
    }

    fn stands_still(&self) -> bool {
        false
    }

    fn can_strand(&self) -> bool {
        true
    }

    fn progress(&self, context: &Context<'_>) -> (f64, f64) {
        let all: u32 = self.traffic.iter().map(|traffic| traffic.repeat).sum();
        let of_job = |(place, job): (usize, &Job)| {
            let ended = job.steps.iter().filter(|step| step.end.is_some()).count() as f64;
            let under_way = job.steps.last().filter(|step| step.end.is_none());
            ended
                + match self.playing.get(&place) {
                    Some(playing) => playing.share_done(),
                    None => under_way.map_or(0.0, |step| step.share_delivered(context)),
                }
        };
        (self.jobs.iter().enumerate().map(of_job).sum(), f64::from(all))
    }

    fn last_end(&self) -> Option<SimTime> {
        self.jobs.iter().flat_map(|job| &job.steps).filter_map(|step| step.end).max()
    }

    fn waiting(&self, context: &Context<'_>) -> Vec<Waiting> {
        let open = (0..self.jobs.len()).filter(|place| !self.jobs[*place].done);
        open.flat_map(|place| self.waits(context, place)).collect()
    }

    fn finish(self: Box<Self>, _: &mut Context<'_>, log: &mut RunLog) {
        log.jobs = self.jobs;
        if self.times.reuse != RingReuse::Never {
            log.rings = self.times.counts;
        }
    }
}
