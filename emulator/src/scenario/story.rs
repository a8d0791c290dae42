//! One run: jobs work through their collectives while faults strike and are healed.
//!
//! ```text
//!   strike ──detection──▶ known ──planning──▶ replanned ──software──▶ dark ──60…80 µs──▶ lit
//!     │                                          │                                        │
//!     links of the part go down                  groups that change give up what          they begin
//!     flows stall, packets are lost              they were doing                          it again
//! ```
//!
//! What breaks ([`breaking`]) takes links down; what the control plane then knows and does ([`healing`]) moves
//! light ([`light`]) and groups ([`moving`]).
//!
//! Each group of a job walks through the job's collectives by itself ([`walking`]); a collective between groups
//! waits for all of them. Nothing here decides how packets travel: links go down and up, and the
//! engine does the rest.

mod beside;
mod breaking;
mod healing;
mod lane;
mod light;
mod moving;
mod waiting;
mod walking;

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_planner::khop::Layout;
use lightloom_units::{Picoseconds, SimTime};

pub(super) use healing::Healing;
pub(super) use lane::{Between, Lane, StepRun};
use lightloom_engine::capture::Watch;
use lightloom_engine::steady::{Islands, Stage};
use lightloom_engine::{BatchId, Event, Route, Settings};

use super::outcome::Stop;
use super::{DCN, Installed, Scenario, ScenarioError, Sharing, Strike, links};
use crate::traffic::Workload;
use crate::traffic::felt::Ran;
use crate::traffic::jobs::{Ground, Job, Jobs};
use breaking::Broken;
use healing::{Act, Control};
use light::Light;
use walking::Owner;

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

struct Story<'a> {
    fabric: &'a Fabric,
    scenario: &'a Scenario,
    strikes: &'a [Strike],
    installed: Installed,
    engine: Islands<Watch>,
    layout: Layout,
    light: Light,
    broken: Broken,
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
            for_good.remove(fabric, part)?;
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
            broken: Broken::none_of(strikes.len()),
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

/// For runs nobody watches.
impl Progress for () {
    fn tell(&mut self, _: SimTime, _: u64, _: f64) {}
}
