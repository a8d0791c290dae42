//! One run: jobs work through their collectives while faults strike and are healed.
//!
//! ```text
//!   strike ──detection──▶ known ──planning──▶ replanned ──software──▶ dark ──60…80 µs──▶ lit
//!     │                                          │                                        │
//!     links of the part go down                  groups that change give up what          they begin
//!     flows stall, packets are lost              they were doing                          it again
//! ```
//!
//! Each group of a job walks through the job's collectives by itself; a collective between groups
//! waits for all of them. Nothing here decides how packets travel: links go down and up, and the
//! engine does the rest.

mod beside;
mod healing;
mod light;
mod moving;
mod waiting;

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::id::{GpuId, NodeId};
use lightloom_fabric::units::{Picoseconds, SimTime};
use lightloom_planner::khop::{Layout, RingGroup};

pub(super) use healing::Healing;

use super::collectives::{self, Running};
use super::outcome::Stop;
use super::{Collective, DCN, Installed, Scenario, ScenarioError, Sharing, Strike, links};
use crate::capture::Watch;
use crate::collective::CollectiveError;
use crate::engine::{BatchId, EngineError, Event, FlowId, LinkId, Route, Settings, VertexId};
use crate::steady::{Islands, Stage};
use crate::traffic::Workload;
use crate::traffic::felt::Ran;
use crate::traffic::jobs::{Ground, Job, Jobs};
use healing::{Act, Control};
use light::Light;

/// Told how far a run is.
pub trait Progress {
    /// Simulated time now, packet-hops so far, and the share of all collectives that are done.
    fn tell(&mut self, now: SimTime, packet_hops: u64, done: f64);
}

/// How much simulated time passes between two looks at the packet limit, where packets move.
const SLICE: Picoseconds = Picoseconds::from_micros(20);

/// What happened in one run.
pub(super) struct Told {
    pub(super) lanes: Vec<Lane>,
    pub(super) between: Vec<Between>,
    /// What ran beside them.
    pub(super) jobs: Vec<Job>,
    pub(super) healings: Vec<Healing>,
    pub(super) layout: Layout,
    /// What the control plane held for broken at the end.
    pub(super) faults: FaultSet,
    pub(super) ended: SimTime,
    pub(super) stop: Option<Stop>,
    pub(super) waiting: Vec<String>,
    /// Collectives of a job, repetitions unrolled.
    pub(super) program_length: usize,
    pub(super) engine: Islands<Watch>,
    pub(super) installed: Installed,
}

/// The way of one group through the collectives of its job.
pub(super) struct Lane {
    /// The job.
    pub(super) job: u32,
    /// Its nodes in rank order, as they are now.
    ranks: Vec<NodeId>,
    /// GPUs in the group.
    pub(super) gpus: u32,
    /// One entry for each collective begun.
    pub(super) steps: Vec<StepRun>,
    /// Nothing was left to rebuild it from.
    pub(super) lost: bool,
    /// Time it stood still because of faults, until now.
    pub(super) down: Picoseconds,
    down_since: Option<SimTime>,
    /// Place in the job's program of what it does now or next.
    next: usize,
    running: Option<Running>,
    /// Dark until somebody relights it.
    stopped: bool,
    /// Links that its collectives use.
    links: Vec<LinkId>,
}

/// The way of one job through the collectives between its groups.
pub(super) struct Between {
    pub(super) steps: Vec<StepRun>,
    running: Option<Running>,
    /// Place in the program after the last one that ended.
    passed: usize,
}

/// One collective of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepRun {
    /// Place in the job's program, repetitions unrolled.
    pub(super) place: usize,
    /// Index of the collective in the scenario.
    pub(super) collective: usize,
    pub(super) start: SimTime,
    pub(super) end: Option<SimTime>,
    pub(super) ideal: Picoseconds,
    pub(super) ranks: u32,
    pub(super) restarts: u32,
}

struct Story<'a> {
    fabric: &'a Fabric,
    scenario: &'a Scenario,
    strikes: &'a [Strike],
    installed: Installed,
    engine: Islands<Watch>,
    layout: Layout,
    light: Light,
    control: Control,
    acts: Vec<Act>,
    lanes: Vec<Lane>,
    between: Vec<Between>,
    jobs: Jobs<'a>,
    healings: Vec<Healing>,
    owner: BTreeMap<BatchId, Owner>,
    switches: u64,
    /// Collectives of a job, repetitions unrolled.
    program_length: usize,
    total_steps: usize,
    done_steps: usize,
}

#[derive(Clone, Copy)]
enum Owner {
    Lane(usize),
    Between(usize),
}

/// What a run begins from.
pub(super) struct Beginning<'a> {
    pub(super) workloads: &'a [Workload],
    pub(super) strikes: &'a [Strike],
    pub(super) faults: FaultSet,
    pub(super) layout: Layout,
    pub(super) watch: Watch,
    pub(super) threads: usize,
    pub(super) sharing: Sharing,
}

/// Runs `scenario` from a beginning on.
pub(super) fn tell(
    fabric: &Fabric,
    scenario: &Scenario,
    beginning: Beginning<'_>,
    progress: &mut dyn Progress,
) -> Result<Told, ScenarioError> {
    let mut story = Story::new(fabric, scenario, beginning)?;
    story.light_the_plan();
    story.plan_strikes();
    story.begin()?;
    let stop = story.run(progress)?;
    Ok(story.finish(stop))
}

impl<'a> Story<'a> {
    fn new(
        fabric: &'a Fabric,
        scenario: &'a Scenario,
        beginning: Beginning<'a>,
    ) -> Result<Self, ScenarioError> {
        let Beginning { workloads, strikes, faults, layout, watch, threads, sharing } = beginning;
        let ground = Ground { route: Route::Within(DCN), grid: None };
        let passing = strikes.iter().filter(|strike| strike.from_start);
        let mut for_good = faults.clone();
        for part in passing.flat_map(|strike| strike.parts(fabric)) {
            for_good.remove(&fabric.hbd, part)?;
        }
        let (network, installed) = Installed::build_with(fabric, &scenario.switches)?;
        let settings = Settings {
            transport: scenario.transport,
            seed: scenario.seed,
            host_delay: scenario.host_delay,
            threads,
            ..scenario.switches.settings()
        };
        let watch = watch.over(links::classes(&network, &installed));
        let engine = match sharing {
            Sharing::Whole => Islands::whole(network, settings, watch)?,
            Sharing::Reuse => Islands::new(network, settings, watch)?,
            Sharing::Proven => {
                let sums = network.links().len();
                Islands::new(network, settings, watch.with_sums(sums))?
            }
        };
        let per_node = fabric.hbd.gpus_per_node();
        let lanes: Vec<Lane> =
            layout.groups.iter().filter_map(|group| Lane::of(group, per_node)).collect();
        let empty = || Between { steps: Vec::new(), running: None, passed: 0 };
        let between = layout.jobs.iter().map(|_| empty()).collect();
        let repeats: usize = scenario.collectives.iter().map(|c| c.repeat as usize).sum();
        Ok(Self {
            program_length: repeats,
            total_steps: (repeats * lanes.len()).max(1),
            done_steps: 0,
            light: Light::default(),
            control: Control::new(faults, for_good, strikes.len()),
            fabric,
            scenario,
            strikes,
            installed,
            engine,
            layout,
            acts: Vec::new(),
            lanes,
            between,
            jobs: Jobs::new(workloads, ground, scenario.seed),
            healings: Vec::new(),
            owner: BTreeMap::new(),
            switches: 0,
        })
    }

    /// The collectives of a job in order, repetitions unrolled.
    fn program(&self) -> impl Iterator<Item = (usize, &'a Collective)> + 'a {
        let collectives = self.scenario.collectives.iter().enumerate();
        collectives.flat_map(|(index, collective)| {
            (0..collective.repeat).map(move |_| (index, collective))
        })
    }

    fn begin(&mut self) -> Result<(), ScenarioError> {
        for lane in 0..self.lanes.len() {
            self.lanes[lane].links = self.links_of_lane(lane);
            self.advance_lane(lane)?;
        }
        for job in 0..self.between.len() {
            self.advance_between(job)?;
        }
        self.plan_turns();
        Ok(())
    }

    /// Begins (or begins again) the next collective of a lane, if it may.
    fn advance_lane(&mut self, index: usize) -> Result<(), ScenarioError> {
        let lane = &self.lanes[index];
        if lane.lost || lane.stopped || lane.running.is_some() {
            return Ok(());
        }
        let place = lane.next;
        let next = self.program().nth(place);
        let Some((number, collective)) = next.filter(|(_, next)| !next.kind.is_between_groups())
        else {
            return Ok(());
        };
        let group = self.group_of(index);
        // Struck again while it was being healed: the next plan will see to it.
        if !self.is_ready(&group) {
            return Ok(());
        }
        let ring = self.layout.ring(&self.fabric.hbd, &group);
        let ranks = u32::try_from(ring.len()).expect("bounded");
        let members = ring.iter().map(|gpu| self.installed.vertex(*gpu)).collect();
        let running = collectives::start_ring(&mut self.engine, collective, members)?;
        self.own(&running, Owner::Lane(index));
        let begun = Begun { place, collective: number, ranks, now: self.engine.now() };
        note_start(&mut self.lanes[index].steps, &begun, &running);
        self.lanes[index].running = Some(running);
        Ok(())
    }

    fn own(&mut self, running: &Running, owner: Owner) {
        for part in &running.parts {
            self.owner.insert(part.batch, owner);
        }
    }

    fn group_of(&self, lane: usize) -> RingGroup {
        let lane = &self.lanes[lane];
        let is_it = |group: &&RingGroup| group.job == Some(lane.job) && group.ranks == lane.ranks;
        // Groups inside one node share their node: take the one with this lane's place among them.
        let same: Vec<&RingGroup> = self.layout.groups.iter().filter(is_it).collect();
        let twins =
            self.lanes.iter().filter(|other| other.job == lane.job && other.ranks == lane.ranks);
        let place = twins.take_while(|other| !std::ptr::eq(*other, lane)).count();
        same[place.min(same.len() - 1)].clone()
    }

    /// Begins the next collective between the groups of a job once all its lanes have come to it.
    fn advance_between(&mut self, job: usize) -> Result<(), ScenarioError> {
        if self.between[job].running.is_some() {
            return Ok(());
        }
        let mine: Vec<usize> = (0..self.lanes.len())
            .filter(|lane| self.lanes[*lane].job as usize == job && !self.lanes[*lane].lost)
            .collect();
        let Some(&first) = mine.first() else { return Ok(()) };
        let place = self.lanes[first].next;
        let next = self.program().nth(place).filter(|(_, next)| next.kind.is_between_groups());
        let Some((number, collective)) = next else { return Ok(()) };
        let has_come = |lane: &usize| {
            let lane = &self.lanes[*lane];
            lane.next == place && !lane.stopped && lane.running.is_none()
        };
        if !mine.iter().all(has_come) {
            return Ok(());
        }
        let ranks = self.ranks_of(&mine);
        let sets = self.fabric.dcn.nodes_per_tor as usize;
        let first = self.engine.flow_count();
        let begun = collectives::start_between(self.engine.engine_mut(), collective, &ranks, sets);
        let running = match begun {
            Ok(running) => running,
            // An interface is dark: a plan or a repair lets it begin.
            Err(CollectiveError::Flow(EngineError::Route(_))) => {
                let flows = first..self.engine.flow_count();
                flows.for_each(|flow| self.engine.cancel_flow(FlowId::from_index(flow)));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.own(&running, Owner::Between(job));
        let ranks = u32::try_from(mine.len()).expect("bounded");
        let begun = Begun { place, collective: number, ranks, now: self.engine.now() };
        note_start(&mut self.between[job].steps, &begun, &running);
        let alone = running.parts.is_empty();
        self.between[job].running = Some(running);
        if alone { self.between_done(job, self.engine.now()) } else { Ok(()) }
    }

    /// For each lane, its GPUs as vertices in rank order.
    fn ranks_of(&self, lanes: &[usize]) -> Vec<Vec<VertexId>> {
        let gpus = self.fabric.hbd.gpus_per_node();
        let of_group = |lane: &usize| {
            let group = self.group_of(*lane);
            let range = group.segment.map_or(0..gpus, |s| s.first..s.first + s.gpus);
            let ranks = group
                .ranks
                .iter()
                .flat_map(|node| range.clone().map(|gpu| GpuId { node: *node, gpu: gpu % gpus }));
            ranks.map(|gpu| self.installed.vertex(gpu)).collect()
        };
        lanes.iter().map(of_group).collect()
    }

    fn done(&mut self, batch: BatchId, at: SimTime) -> Result<(), ScenarioError> {
        let Some(owner) = self.owner.remove(&batch) else {
            self.jobs.batch_done(batch, at, self.engine.now());
            self.plan_turns();
            return Ok(());
        };
        let slot = match owner {
            Owner::Lane(lane) => &mut self.lanes[lane].running,
            Owner::Between(job) => &mut self.between[job].running,
        };
        let running = slot.as_mut().expect("what ends was running");
        running.open -= 1;
        if running.open > 0 {
            return Ok(());
        }
        match owner {
            Owner::Lane(lane) => self.lane_done(lane, at),
            Owner::Between(job) => self.between_done(job, at),
        }
    }

    fn lane_done(&mut self, index: usize, at: SimTime) -> Result<(), ScenarioError> {
        self.done_steps += 1;
        let lane = &mut self.lanes[index];
        lane.running = None;
        lane.next += 1;
        finish_step(&mut lane.steps, at);
        let job = lane.job as usize;
        self.advance_lane(index)?;
        self.advance_between(job)
    }

    fn between_done(&mut self, job: usize, at: SimTime) -> Result<(), ScenarioError> {
        let between = &mut self.between[job];
        between.running = None;
        finish_step(&mut between.steps, at);
        let passed = between.steps.last().expect("what ends has begun").place + 1;
        between.passed = passed;
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].job as usize == job && !self.lanes[lane].lost {
                self.lanes[lane].next = passed;
                self.done_steps += 1;
                self.advance_lane(lane)?;
            }
        }
        self.advance_between(job)
    }

    /// Runs until nothing is left to do or a limit is reached.
    fn run(&mut self, progress: &mut dyn Progress) -> Result<Option<Stop>, ScenarioError> {
        let limit = self.scenario.time_limit;
        while let Some(next) = self.engine.next_due() {
            if next > limit {
                let open = self.has_work() || !self.jobs.are_done();
                return Ok(open.then_some(Stop::Time { limit }));
            }
            let horizon = (next.max(self.engine.now()) + SLICE).min(limit);
            while let Some(event) = self.engine.next_event(horizon) {
                match event {
                    Event::Timer { token, .. } => self.perform(token)?,
                    Event::BatchDone { batch, at } => self.done(batch, at)?,
                }
            }
            let hops = self.engine.hops();
            let done = self.done_steps as f64 / self.total_steps as f64;
            progress.tell(self.engine.now(), hops, done.min(1.0));
            if let Some(stop) = self.deadlock() {
                return Ok(Some(stop));
            }
            if hops > self.scenario.packet_limit {
                return Ok(Some(Stop::Packets { limit: self.scenario.packet_limit }));
            }
        }
        Ok(self.has_work().then_some(Stop::Standstill))
    }

    fn deadlock(&self) -> Option<Stop> {
        let name = |link| self.installed.link_name(self.engine.network(), link);
        // Only switches with real queues pause, and they are never taken apart.
        Stop::of_deadlock(self.engine.engine()?, name)
    }

    /// Whether a group that is not lost has something left to do.
    fn has_work(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.lost && !lane.is_through(self.program_length))
    }

    fn finish(mut self, stop: Option<Stop>) -> Told {
        let steps = self
            .lanes
            .iter()
            .flat_map(|lane| &lane.steps)
            .chain(self.between.iter().flat_map(|between| &between.steps));
        let ends = steps.filter_map(|step| step.end);
        let happened = self.healings.iter().flat_map(Healing::times);
        let last = ends.chain(happened).chain(self.jobs.last_end()).max().unwrap_or_default();
        let waiting = if stop.is_some() { self.waiting() } else { Vec::new() };
        let open = stop.is_some() || !self.jobs.are_done();
        let ended = if open { last.max(self.engine.now()) } else { last };
        for lane in &mut self.lanes {
            lane.comes_back(ended);
        }
        Told {
            ended,
            stop,
            waiting,
            program_length: self.program_length,
            lanes: self.lanes,
            between: self.between,
            jobs: self.jobs.into_jobs(),
            healings: self.healings,
            layout: self.layout,
            faults: self.control.known,
            engine: self.engine,
            installed: self.installed,
        }
    }
}

impl Told {
    /// How what ran beside the rings went; nothing where nothing did.
    pub(super) fn ran(&self) -> Option<Ran<'_>> {
        let engine = self.engine.engine().filter(|_| !self.jobs.is_empty())?;
        Some(Ran { jobs: &self.jobs, engine, ended: self.ended })
    }
}

impl Lane {
    /// The lane of a group of a job.
    fn of(group: &RingGroup, gpus_per_node: u8) -> Option<Self> {
        Some(Self {
            job: group.job?,
            ranks: group.ranks.clone(),
            gpus: group.gpus(gpus_per_node),
            steps: Vec::new(),
            lost: false,
            down: Picoseconds::ZERO,
            down_since: None,
            next: 0,
            running: None,
            stopped: false,
            links: Vec::new(),
        })
    }

    /// Whether it has done everything.
    pub(super) fn is_through(&self, program_length: usize) -> bool {
        self.next >= program_length
    }

    /// It stands still from now on, if it has work left.
    fn goes_down(&mut self, now: SimTime, program_length: usize) {
        if !self.is_through(program_length) {
            self.down_since.get_or_insert(now);
        }
    }

    /// It goes on from now on.
    fn comes_back(&mut self, now: SimTime) {
        if let Some(since) = self.down_since.take() {
            self.down += now.since(since);
        }
    }
}

/// Notes when a collective ended.
fn finish_step(steps: &mut [StepRun], at: SimTime) {
    steps.last_mut().expect("what ends has begun").end = Some(at);
}

/// Which collective begins, over how many ranks, and when.
struct Begun {
    place: usize,
    collective: usize,
    ranks: u32,
    now: SimTime,
}

/// Notes that a collective begins; where it was begun before and given up, that it begins again.
fn note_start(steps: &mut Vec<StepRun>, begun: &Begun, running: &Running) {
    match steps.last_mut() {
        Some(step) if step.end.is_none() && step.place == begun.place => step.restarts += 1,
        _ => steps.push(StepRun {
            place: begun.place,
            collective: begun.collective,
            start: begun.now,
            end: None,
            ideal: running.ideal,
            ranks: begun.ranks,
            restarts: 0,
        }),
    }
}

/// For runs nobody watches.
impl Progress for () {
    fn tell(&mut self, _: SimTime, _: u64, _: f64) {}
}
