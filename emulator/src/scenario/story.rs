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

mod healing;

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::id::{BundleId, GpuId, NodeId};
use lightloom_fabric::khop::Path;
use lightloom_fabric::units::{Picoseconds, SimTime};
use lightloom_planner::khop::{Layout, RingGroup};

pub(super) use healing::Healing;

use super::collectives::{self, Running};
use super::{Collective, Installed, Scenario, ScenarioError};
use crate::engine::{BatchId, Engine, Event, FlowRecord, PacketCount, Settings, VertexId};

/// Told how far a run is.
pub trait Progress {
    /// Simulated time now, packet-hops so far, and the share of all collectives that are done.
    fn tell(&mut self, now: SimTime, packet_hops: u64, done: f64);
}

/// What happened in one run.
pub(super) struct Told {
    pub(super) lanes: Vec<Lane>,
    pub(super) between: Vec<Between>,
    pub(super) healings: Vec<Healing>,
    pub(super) layout: Layout,
    pub(super) faults: FaultSet,
    pub(super) ended: SimTime,
    pub(super) packets: PacketCount,
    pub(super) flows: Vec<FlowRecord>,
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
    running: Option<Running>,
    /// Dark until somebody relights it.
    stopped: bool,
}

/// The way of one job through the collectives between its groups.
pub(super) struct Between {
    pub(super) steps: Vec<StepRun>,
    running: Option<Running>,
}

/// One collective of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepRun {
    /// Index of the collective in the scenario.
    pub(super) collective: usize,
    pub(super) start: SimTime,
    pub(super) end: Option<SimTime>,
    pub(super) ideal: Picoseconds,
    pub(super) ranks: u32,
    pub(super) restarts: u32,
}

/// What the control queue will do.
enum Act {
    Strike(usize),
    Repair(usize),
    Detect(usize),
    Replan(Option<usize>),
    Dark(BundleId),
    Lit(BundleId, Path),
    Resume(usize),
}

struct Story<'a> {
    fabric: &'a Fabric,
    scenario: &'a Scenario,
    installed: Installed,
    engine: Engine,
    layout: Layout,
    faults: FaultSet,
    /// The path each switched bundle holds in hardware; nothing while it is dark.
    held: BTreeMap<BundleId, Option<Path>>,
    acts: Vec<Act>,
    lanes: Vec<Lane>,
    between: Vec<Between>,
    healings: Vec<Healing>,
    owner: BTreeMap<BatchId, Owner>,
    switches: u64,
    total_steps: usize,
    done_steps: usize,
}

#[derive(Clone, Copy)]
enum Owner {
    Lane(usize),
    Between(usize),
}

/// Runs `scenario` from `layout` on.
pub(super) fn tell(
    fabric: &Fabric,
    scenario: &Scenario,
    faults: FaultSet,
    layout: Layout,
    threads: usize,
    progress: &mut dyn Progress,
) -> Result<Told, ScenarioError> {
    let (network, installed) = Installed::build(fabric)?;
    let settings =
        Settings { transport: scenario.transport, seed: scenario.seed, queueing: None, threads };
    let engine = Engine::new(network, settings)?;
    let mut story = Story::new(fabric, scenario, installed, engine, layout, faults);
    story.darken_unlit();
    story.plan_faults();
    story.begin()?;
    story.run(progress)?;
    Ok(story.finish())
}

impl<'a> Story<'a> {
    fn new(
        fabric: &'a Fabric,
        scenario: &'a Scenario,
        installed: Installed,
        engine: Engine,
        layout: Layout,
        faults: FaultSet,
    ) -> Self {
        let lane = |group: &RingGroup| Lane {
            job: group.job.expect("only groups of jobs have lanes"),
            ranks: group.ranks.clone(),
            gpus: group.gpus(fabric.hbd.gpus_per_node()),
            steps: Vec::new(),
            lost: false,
            running: None,
            stopped: false,
        };
        let lanes: Vec<Lane> =
            layout.groups.iter().filter(|group| group.job.is_some()).map(lane).collect();
        let between =
            layout.jobs.iter().map(|_| Between { steps: Vec::new(), running: None }).collect();
        let repeats: usize = scenario.collectives.iter().map(|c| c.repeat as usize).sum();
        Self {
            total_steps: (repeats * lanes.len()).max(1),
            done_steps: 0,
            fabric,
            scenario,
            installed,
            engine,
            layout,
            faults,
            held: BTreeMap::new(),
            acts: Vec::new(),
            lanes,
            between,
            healings: Vec::new(),
            owner: BTreeMap::new(),
            switches: 0,
        }
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
            self.advance_lane(lane)?;
        }
        for job in 0..self.between.len() {
            self.advance_between(job)?;
        }
        Ok(())
    }

    /// Steps of the job's program that are over for a lane: its own and those between groups.
    fn steps_over(&self, lane: &Lane) -> usize {
        let over = |steps: &[StepRun]| steps.iter().filter(|step| step.end.is_some()).count();
        over(&lane.steps) + over(&self.between[lane.job as usize].steps)
    }

    /// Begins (or begins again) the next collective of a lane, if it may.
    fn advance_lane(&mut self, index: usize) -> Result<(), ScenarioError> {
        let lane = &self.lanes[index];
        if lane.lost || lane.stopped || lane.running.is_some() {
            return Ok(());
        }
        let next = self.program().nth(self.steps_over(lane));
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
        note_start(&mut self.lanes[index].steps, number, &running, ranks, self.engine.now());
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
        let waiting = |lane: &usize| {
            let lane = &self.lanes[*lane];
            let next = self.program().nth(self.steps_over(lane));
            let (number, _) = next.filter(|(_, next)| next.kind.is_between_groups())?;
            (!lane.stopped && lane.running.is_none()).then_some(number)
        };
        let numbers: Vec<usize> = mine.iter().filter_map(waiting).collect();
        if mine.is_empty() || numbers.len() < mine.len() {
            return Ok(());
        }
        let collective = &self.scenario.collectives[numbers[0]];
        let ranks = self.ranks_of(&mine);
        let sets = self.fabric.dcn.nodes_per_tor as usize;
        let running = collectives::start_between(&mut self.engine, collective, &ranks, sets)?;
        self.own(&running, Owner::Between(job));
        let groups = u32::try_from(mine.len()).expect("bounded");
        note_start(&mut self.between[job].steps, numbers[0], &running, groups, self.engine.now());
        self.between[job].running = Some(running);
        Ok(())
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
        let Some(owner) = self.owner.remove(&batch) else { return Ok(()) };
        let slot = match owner {
            Owner::Lane(lane) => &mut self.lanes[lane].running,
            Owner::Between(job) => &mut self.between[job].running,
        };
        let running = slot.as_mut().expect("what ends was running");
        running.open -= 1;
        if running.open > 0 {
            return Ok(());
        }
        *slot = None;
        match owner {
            Owner::Lane(lane) => self.lane_done(lane, at),
            Owner::Between(job) => self.between_done(job, at),
        }
    }

    fn lane_done(&mut self, index: usize, at: SimTime) -> Result<(), ScenarioError> {
        self.done_steps += 1;
        finish_step(&mut self.lanes[index].steps, at);
        self.advance_lane(index)?;
        self.advance_between(self.lanes[index].job as usize)
    }

    fn between_done(&mut self, job: usize, at: SimTime) -> Result<(), ScenarioError> {
        finish_step(&mut self.between[job].steps, at);
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].job as usize == job {
                self.done_steps += 1;
                self.advance_lane(lane)?;
            }
        }
        self.advance_between(job)
    }

    fn run(&mut self, progress: &mut dyn Progress) -> Result<(), ScenarioError> {
        let mut told = None;
        while let Some(event) = self.engine.next_event(self.scenario.time_limit) {
            match event {
                Event::Timer { token, .. } => self.perform(token)?,
                Event::BatchDone { batch, at } => self.done(batch, at)?,
            }
            // Counting packets takes time: tell in steps of a thousandth.
            let thousandths = self.done_steps * 1000 / self.total_steps;
            if told.replace(thousandths) != Some(thousandths) {
                let hops = self.engine.packets().hops;
                progress.tell(self.engine.now(), hops, thousandths as f64 / 1000.0);
            }
        }
        Ok(())
    }

    fn finish(self) -> Told {
        let ends = self
            .lanes
            .iter()
            .flat_map(|lane| &lane.steps)
            .chain(self.between.iter().flat_map(|b| &b.steps));
        let last = ends.filter_map(|step| step.end).max().unwrap_or(self.engine.now());
        let healed =
            self.healings.iter().filter_map(|healing| healing.restored).max().unwrap_or(last);
        Told {
            ended: last.max(healed),
            packets: self.engine.packets(),
            flows: self.engine.records().collect(),
            lanes: self.lanes,
            between: self.between,
            healings: self.healings,
            layout: self.layout,
            faults: self.faults,
        }
    }
}

/// Notes when a collective ended.
fn finish_step(steps: &mut [StepRun], at: SimTime) {
    steps.last_mut().expect("what ends has begun").end = Some(at);
}

/// Notes that a collective begins; where it was begun before and given up, that it begins again.
fn note_start(
    steps: &mut Vec<StepRun>,
    collective: usize,
    running: &Running,
    ranks: u32,
    now: SimTime,
) {
    match steps.last_mut() {
        Some(step) if step.end.is_none() => step.restarts += 1,
        _ => steps.push(StepRun {
            collective,
            start: now,
            end: None,
            ideal: running.ideal,
            ranks,
            restarts: 0,
        }),
    }
}

/// For runs nobody watches.
impl Progress for () {
    fn tell(&mut self, _: SimTime, _: u64, _: f64) {}
}
