//! Workloads on their way: each begins when what it waits for is done, and again as often as it is repeated.
//!
//! Who drives an engine tells the jobs which batches have ended and when a turn has come, and sets timers for
//! the turns they ask for. What else runs on the engine is no matter of theirs.

use std::collections::BTreeMap;
use std::ops::Range;

use lightloom_collective::Kind;
use lightloom_engine::collective::StartError;
use lightloom_engine::steady::Stage;
use lightloom_engine::topology::Grid;
use lightloom_engine::{BatchId, Engine, EngineError, FlowId, LinkId, Probe, Route, VertexId};
use lightloom_units::seed::Seed;
use lightloom_units::{Bytes, Picoseconds, SimTime};
use rand::Rng;

use super::TrafficError;
use super::workload::{Run, Workload};

/// Where workloads run.
#[derive(Clone, Debug)]
pub(crate) struct Ground<'a> {
    /// The ways that their flows may take.
    pub(crate) route: Route,
    /// The grid of the hosts, if they stand in one.
    pub(crate) grid: Option<&'a Grid>,
}

/// All workloads of a run.
pub(crate) struct Jobs<'a> {
    workloads: &'a [Workload],
    ground: Ground<'a>,
    seed: Seed,
    pub(super) jobs: Vec<Job>,
    owner: BTreeMap<BatchId, usize>,
    turns: Vec<(SimTime, Turn)>,
}

/// Something that a workload does at a time it has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It begins, or begins again.
    Begin(usize),
    /// Its computation ends.
    Computed(usize),
}

/// The way of one workload through its repetitions.
#[derive(Debug, Default)]
pub(crate) struct Job {
    pub(crate) steps: Vec<Step>,
    pub(super) running: bool,
    /// It could not begin, for a host had no way.
    pub(crate) blocked: bool,
    pub(crate) done: bool,
    /// Batches that have not ended.
    pub(super) open: usize,
}

/// One repetition of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) start: SimTime,
    pub(crate) end: Option<SimTime>,
    pub(crate) ideal: Picoseconds,
    pub(crate) size: Bytes,
    pub(crate) ranks: u32,
    /// Its flows; those of an exchange over circuits lie in stretches, in order of their beginning.
    pub(crate) flows: Vec<Range<u32>>,
}

impl Step {
    /// One that begins now and has no flows yet.
    pub(super) fn begun(workload: &Workload, now: SimTime) -> Self {
        Self {
            start: now,
            end: None,
            ideal: Picoseconds::ZERO,
            size: workload.bytes,
            ranks: u32::try_from(workload.hosts.len()).expect("bounded"),
            flows: Vec::new(),
        }
    }

    /// Its flows.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows.iter().cloned().flatten().map(FlowId)
    }
}

impl<'a> Jobs<'a> {
    /// None has begun; those that wait for nothing ask for their turn.
    pub(crate) fn new(workloads: &'a [Workload], ground: Ground<'a>, seed: Seed) -> Self {
        let first = workloads.iter().enumerate().filter(|(_, one)| one.after.is_empty());
        let begin =
            |(place, one): (usize, &Workload)| (SimTime::START + one.delay, Turn::Begin(place));
        Self {
            turns: first.map(begin).collect(),
            jobs: workloads.iter().map(|_| Job::default()).collect(),
            owner: BTreeMap::new(),
            workloads,
            ground,
            seed,
        }
    }

    /// The turns that were asked for since the last time.
    pub(crate) fn take_turns(&mut self) -> Vec<(SimTime, Turn)> {
        std::mem::take(&mut self.turns)
    }

    /// Begins the next repetition of a workload, now. Where a host has no way it is blocked instead.
    ///
    /// # Errors
    /// What a collective or the engine refuses.
    pub(crate) fn begin<P: Probe>(
        &mut self,
        place: usize,
        engine: &mut Engine<P>,
    ) -> Result<(), TrafficError> {
        let workload: &'a Workload = &self.workloads[place];
        let mut step = Step::begun(workload, engine.now());
        self.jobs[place].blocked = false;
        if let Run::Compute(takes) = &workload.run {
            step.ideal = *takes;
            self.turns.push((step.start + *takes, Turn::Computed(place)));
            self.enter(place, step, 0);
            return Ok(());
        }
        // Where nodes are broken from the start, too few may be left.
        if workload.hosts.len() < 2 {
            self.jobs[place].blocked = true;
            return Ok(());
        }
        let first = engine.flow_count() as u32;
        let seed = self.seed_of(place);
        let started = workload.start(engine, seed, &self.ground);
        let flows = first..engine.flow_count() as u32;
        let collective = match started {
            Ok(collective) => collective,
            Err(StartError::Flow(EngineError::Route(_))) => {
                flows.for_each(|flow| engine.cancel_flow(FlowId(flow)));
                self.jobs[place].blocked = true;
                return Ok(());
            }
            Err(error) => {
                return Err(TrafficError::Workload { workload: workload.name.clone(), error });
            }
        };
        step.ideal = collective.ideal;
        if collective.kind == Kind::Flows && !workload.run.has_size() {
            step.size = collective.size;
        }
        let sends = !flows.is_empty();
        step.flows.push(flows);
        self.enter(place, step, usize::from(sends));
        if sends {
            self.owner.insert(collective.batch, place);
        } else {
            self.step_done(place, engine.now(), engine.now());
        }
        Ok(())
    }

    /// A step is under way, with so many batches.
    pub(super) fn enter(&mut self, place: usize, step: Step, batches: usize) {
        let job = &mut self.jobs[place];
        job.running = true;
        job.open = batches;
        job.steps.push(step);
    }

    /// What the next repetition of a workload draws from.
    fn seed_of(&self, place: usize) -> Seed {
        let round = self.jobs[place].steps.len() as u64;
        Seed(self.seed.stream("workload", (place as u64) << 32 | round).next_u64())
    }

    /// A batch ended at `at`, as is known `now`; nothing happens if it is none of theirs.
    pub(crate) fn batch_done(&mut self, batch: BatchId, at: SimTime, now: SimTime) {
        if let Some(place) = self.owner.remove(&batch) {
            self.part_done(place, at, now);
        }
    }

    /// One of the batches of a step has ended.
    pub(super) fn part_done(&mut self, place: usize, at: SimTime, now: SimTime) {
        self.jobs[place].open -= 1;
        if self.jobs[place].open == 0 {
            self.step_done(place, at, now);
        }
    }

    /// A repetition is done: the next one begins, or what waits for the workload does.
    pub(crate) fn step_done(&mut self, place: usize, at: SimTime, now: SimTime) {
        let job = &mut self.jobs[place];
        if let Some(step) = job.steps.last_mut() {
            step.end = step.end.max(Some(at));
        }
        job.running = false;
        if (job.steps.len() as u32) < self.workloads[place].repeat {
            self.turns.push((now, Turn::Begin(place)));
            return;
        }
        job.done = true;
        for (next, workload) in self.workloads.iter().enumerate() {
            let waits = workload.after.contains(&place);
            if waits && workload.after.iter().all(|before| self.jobs[*before].done) {
                self.turns.push((now + workload.delay, Turn::Begin(next)));
            }
        }
    }

    /// Those that could not begin ask for another turn.
    pub(crate) fn try_again(&mut self, now: SimTime) {
        let blocked = (0..self.jobs.len()).filter(|place| self.jobs[*place].blocked);
        self.turns.extend(blocked.map(|place| (now, Turn::Begin(place))));
    }

    /// Whether all are done.
    pub(crate) fn are_done(&self) -> bool {
        self.jobs.iter().all(|job| job.done)
    }

    /// Repetitions that have ended, and all there will be.
    pub(crate) fn progress(&self) -> (u32, u32) {
        let steps = self.jobs.iter().flat_map(|job| &job.steps);
        let ended = steps.filter(|step| step.end.is_some()).count() as u32;
        (ended, self.workloads.iter().map(|workload| workload.repeat).sum())
    }

    /// When the last repetition ended.
    pub(crate) fn last_end(&self) -> Option<SimTime> {
        self.jobs.iter().flat_map(|job| &job.steps).filter_map(|step| step.end).max()
    }

    /// Flows under way that cross one of `links` or its other direction.
    pub(crate) fn flows_on<P: Probe>(&self, engine: &Engine<P>, links: &[LinkId]) -> Vec<FlowId> {
        let mut on = vec![false; engine.network().links().len()];
        links.iter().for_each(|link| on[link.index()] = true);
        let crosses = |link: &LinkId| on[link.index()] || on[link.reverse().index()];
        let is_hit = |flow: &FlowId| {
            let record = engine.record(*flow);
            record.end.is_none()
                && !record.cancelled
                && engine.paths(*flow).iter().flatten().any(crosses)
        };
        self.flows().filter(is_hit).collect()
    }

    /// Every flow that was begun, in order of creation.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> {
        let mut flows: Vec<FlowId> =
            self.jobs.iter().flat_map(|job| &job.steps).flat_map(Step::flows).collect();
        flows.sort_unstable();
        flows.into_iter()
    }

    /// One sentence for each workload that is not done.
    pub(crate) fn waiting<P: Probe>(
        &self,
        engine: &Engine<P>,
        name: &dyn Fn(VertexId) -> String,
        link_name: &dyn Fn(LinkId) -> String,
    ) -> Vec<String> {
        let open = self.workloads.iter().zip(&self.jobs).filter(|(_, job)| !job.done);
        let sentence = |(workload, job): (&Workload, &Job)| {
            let behind = workload.after.iter().find(|before| !self.jobs[**before].done);
            let reason = match (behind, job.blocked) {
                (Some(before), _) => format!("waits for `{}`", self.workloads[*before].name),
                (None, true) => "finds no way between its hosts".to_owned(),
                (None, false) => job.what_runs(engine, name, link_name),
            };
            format!("`{}` {reason}", workload.name)
        };
        open.map(sentence).collect()
    }

    /// How every workload went.
    pub(crate) fn into_jobs(self) -> Vec<Job> {
        self.jobs
    }
}

impl Job {
    fn what_runs<P: Probe>(
        &self,
        engine: &Engine<P>,
        name: &dyn Fn(VertexId) -> String,
        link_name: &dyn Fn(LinkId) -> String,
    ) -> String {
        let flows = self.steps.last().into_iter().flat_map(Step::flows);
        let records = flows.map(|flow| (flow, engine.record(flow)));
        let open: Vec<_> = records.filter(|(_, record)| record.end.is_none()).collect();
        let Some((flow, record)) = open.first() else { return "is under way".to_owned() };
        let ends = format!("{} to {}", name(record.source), name(record.destination));
        let why = if record.cancelled {
            "was given up, for it has no way".to_owned()
        } else {
            match engine.path(*flow).iter().find(|link| !engine.is_up(**link)) {
                Some(link) => format!("waits for {}, which is dark", link_name(*link)),
                None => format!("has delivered {} of {}", record.delivered, record.size),
            }
        };
        format!("has {} flows to end; the first, {ends}, {why}", open.len())
    }
}
