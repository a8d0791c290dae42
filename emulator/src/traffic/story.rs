//! One run: workloads begin when what they wait for is done, parts break, and flows are led around them.

mod breaking;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_engine::capture::Watch;
use lightloom_engine::message_time;
use lightloom_engine::steady::Stage;
use lightloom_engine::{
    BatchId, Engine, Event, FlowId, LinkChange, LinkId, Role, Settings, VertexId,
};
use lightloom_units::{Picoseconds, SimTime};

use super::circuits::{Circuits, Next};
use super::felt::Ran;
use super::jobs::{Ground, Job, Jobs, Step, Turn};
use super::spot::Spot;
use super::workload::{Run, Workload};
use super::{TrafficError, TrafficScenario};
use crate::scenario::{Progress, Stop, Strike};

/// How much simulated time passes between two looks at the limits, where packets move.
const SLICE: Picoseconds = Picoseconds::from_micros(20);

/// Classes of links, by the roles of their ends.
pub(super) const CLASSES: [&str; 4] = ["host-host", "host-switch", "switch-host", "switch-switch"];

/// What happened in one run.
pub(super) struct Told {
    pub(super) jobs: Vec<Job>,
    /// By fault.
    pub(super) felt: Vec<Felt>,
    pub(super) ended: SimTime,
    pub(super) stop: Option<Stop>,
    pub(super) waiting: Vec<String>,
    pub(super) engine: Engine<Watch>,
    /// By link.
    pub(super) classes: Vec<u8>,
    /// Times in which some host was out of service.
    pub(super) out_of_service: Vec<(SimTime, SimTime)>,
}

impl Told {
    /// How its workloads went.
    pub(super) fn ran(&self) -> Ran<'_> {
        Ran { jobs: &self.jobs, engine: &self.engine, ended: self.ended }
    }
}

/// What a fault did.
#[derive(Clone, Debug)]
pub(super) struct Felt {
    pub(super) struck: bool,
    /// Flows that were on its links.
    pub(super) hit: Vec<FlowId>,
    pub(super) detected: Option<SimTime>,
    pub(super) restored: Option<SimTime>,
    pub(super) given_up: Vec<FlowId>,
    /// Hosts whose last cable it took.
    pub(super) hosts_lost: BTreeSet<VertexId>,
}

#[derive(Clone, Copy)]
enum Act {
    Turn(Turn),
    Strike(usize),
    /// A flapping part comes back, or goes again.
    Blink(usize, LinkChange),
    Repair(usize),
    /// Routes are made anew, for a fault or a repair.
    Reroute(Option<usize>),
    /// A host's circuit has come.
    Come(usize, usize),
}

struct Story<'a> {
    scenario: &'a TrafficScenario,
    strikes: &'a [Strike<Spot>],
    engine: Engine<Watch>,
    acts: Vec<Act>,
    jobs: Jobs<'a>,
    felt: Vec<Felt>,
    /// Batches of exchanges over circuits.
    pairs: BTreeMap<BatchId, Pair>,
    /// Faults that have what leads flows around the dark down, and what it would have done meanwhile.
    control_gone: u32,
    postponed: Vec<Option<usize>>,
    /// By link: faults that have it down.
    down: Vec<u16>,
    /// By host: since when all of its cables are dark.
    out_since: Vec<Option<SimTime>>,
    /// Times in which some host was out of service.
    out_of_service: Vec<(SimTime, SimTime)>,
    circuits: Option<Circuits>,
    /// Acts that are planned and not done.
    planned: usize,
    /// Packets delivered, and since when there have been no more.
    still: (u64, SimTime),
}

/// A pair of an exchange: its workload, its lower host, the step.
#[derive(Clone, Copy)]
struct Pair(usize, usize, usize);

/// Runs `scenario` with these faults.
pub(super) fn tell(
    scenario: &TrafficScenario,
    strikes: &[Strike<Spot>],
    threads: usize,
    watch: Watch,
    progress: &mut dyn Progress,
) -> Result<Told, TrafficError> {
    let network = scenario.plant.network.clone();
    let classes = classes(scenario);
    let settings = Settings {
        transport: scenario.transport,
        seed: scenario.seed,
        host_delay: scenario.host_delay,
        threads,
        ..scenario.switches.settings()
    };
    let links = network.links().len();
    let mut engine = Engine::with_probe(network, settings, watch.over(classes.clone()))?;
    let circuits = scenario.plant.exchange.clone();
    let circuits = circuits.map(|fibres| Circuits::new(&mut engine, &scenario.plant.hosts, fibres));
    let untouched = Felt {
        struck: false,
        hit: Vec::new(),
        detected: None,
        restored: None,
        given_up: Vec::new(),
        hosts_lost: BTreeSet::new(),
    };
    let plant = &scenario.plant;
    let ground = Ground { route: plant.route.clone(), grid: plant.grid.as_ref() };
    let mut story = Story {
        scenario,
        strikes,
        engine,
        acts: Vec::new(),
        jobs: Jobs::new(&scenario.workloads, ground, scenario.seed),
        felt: vec![untouched; strikes.len()],
        pairs: BTreeMap::new(),
        control_gone: 0,
        postponed: Vec::new(),
        down: vec![0; links],
        out_since: vec![None; scenario.plant.hosts.len()],
        out_of_service: Vec::new(),
        circuits,
        planned: 0,
        still: (0, SimTime::START),
    };
    story.plan();
    let stop = story.run(progress)?;
    Ok(story.finish(stop, classes))
}

fn classes(scenario: &TrafficScenario) -> Vec<u8> {
    let network = &scenario.plant.network;
    let is_switch = |at| u8::from(network.role(at) == Role::Switch);
    network.links().iter().map(|link| is_switch(link.from) * 2 + is_switch(link.to)).collect()
}

impl<'a> Story<'a> {
    fn at(&mut self, time: SimTime, act: Act) {
        self.acts.push(act);
        self.planned += 1;
        self.engine.set_timer(time, self.acts.len() as u64 - 1);
    }

    fn plan(&mut self) {
        for (index, strike) in self.strikes.iter().enumerate() {
            self.at(strike.at, Act::Strike(index));
            if let Some(time) = strike.repaired_at {
                self.at(time, Act::Repair(index));
            }
            for (time, change) in strike.blinks() {
                self.at(time, Act::Blink(index, change));
            }
        }
        self.plan_turns();
    }

    fn plan_turns(&mut self) {
        for (time, turn) in self.jobs.take_turns() {
            self.at(time, Act::Turn(turn));
        }
    }

    fn run(&mut self, progress: &mut dyn Progress) -> Result<Option<Stop>, TrafficError> {
        let limit = self.scenario.time_limit;
        while let Some(next) = self.engine.next_due() {
            if next > limit {
                return Ok((!self.jobs.are_done()).then_some(Stop::Time { limit }));
            }
            let horizon = (next.max(self.engine.now()) + SLICE).min(limit);
            while let Some(event) = self.engine.next_event(horizon) {
                match event {
                    Event::Timer { token, .. } => self.perform(token)?,
                    Event::BatchDone { batch, at } => self.batch_done(batch, at)?,
                }
            }
            let hops = self.engine.hops();
            let (done, all) = self.jobs.progress();
            let share = f64::from(done) / f64::from(all.max(1));
            progress.tell(self.engine.now(), hops, share.min(1.0));
            let name = |link| self.scenario.plant.link_name(link);
            if let Some(stop) = Stop::of_deadlock(&self.engine, name) {
                return Ok(Some(stop));
            }
            if self.is_stranded() {
                return Ok(None);
            }
            if hops > self.scenario.packet_limit {
                return Ok(Some(Stop::Packets { limit: self.scenario.packet_limit }));
            }
        }
        Ok(None)
    }

    /// Whether nothing will be delivered any more: what is left is sent into the dark again and again.
    fn is_stranded(&mut self) -> bool {
        let struck = self.felt.iter().any(|felt| felt.struck);
        if !struck || self.planned > 0 {
            return false;
        }
        let (delivered, now) = (self.engine.packets().delivered, self.engine.now());
        if delivered > self.still.0 {
            self.still = (delivered, now);
        }
        // Timeouts double up to 64-fold.
        now.since(self.still.1) > self.scenario.transport.timeout * 200
    }

    fn perform(&mut self, token: u64) -> Result<(), TrafficError> {
        let now = self.engine.now();
        self.planned -= 1;
        match self.acts[usize::try_from(token).expect("tokens are indices")] {
            Act::Turn(Turn::Begin(place)) => self.begin(place),
            Act::Turn(Turn::Computed(place)) => {
                self.jobs.step_done(place, now, now);
                self.plan_turns();
                Ok(())
            }
            Act::Strike(fault) => self.strike(fault),
            Act::Blink(fault, change) => {
                self.darken(fault, change == LinkChange::Down);
                Ok(())
            }
            Act::Repair(fault) => self.repair(fault),
            Act::Reroute(fault) if self.control_gone > 0 => {
                self.postponed.push(fault);
                Ok(())
            }
            Act::Reroute(fault) => self.reroute(fault),
            Act::Come(host, step) => {
                let next = self.circuits.as_mut().and_then(|circuits| circuits.come(host, step));
                self.follow(next)
            }
        }
    }

    /// Begins the next repetition of a workload.
    fn begin(&mut self, place: usize) -> Result<(), TrafficError> {
        let workload: &'a Workload = &self.scenario.workloads[place];
        match workload.run {
            Run::CircuitExchange => {
                self.begin_exchange(place, Step::begun(workload, self.engine.now()))?;
            }
            _ => self.jobs.begin(place, &mut self.engine)?,
        }
        self.plan_turns();
        Ok(())
    }

    fn begin_exchange(&mut self, place: usize, mut step: Step) -> Result<(), TrafficError> {
        let size = self.scenario.workloads[place].bytes;
        let circuits = self.circuits.as_ref().expect("an exchange has its network");
        let (count, steps) = (circuits.count(), circuits.steps());
        let half = circuits.half(size).unwrap_or(size);
        let once = message_time(
            self.engine.network(),
            self.engine.settings(),
            &[circuits.fibre(0, 0)],
            half,
        );
        step.ideal = once * steps as u64 + circuits.switching * (steps as u64 - 1);
        self.jobs.enter(place, step, count / 2 * steps);
        for host in 0..count {
            let next = self.circuits.as_mut().and_then(|circuits| circuits.want(host, 0));
            self.follow(next)?;
        }
        Ok(())
    }

    /// Does what follows when a host wants or gets a circuit.
    fn follow(&mut self, next: Option<Next>) -> Result<(), TrafficError> {
        let now = self.engine.now();
        let scenario: &'a TrafficScenario = self.scenario;
        let Some(circuits) = &self.circuits else { return Ok(()) };
        match next {
            None => Ok(()),
            Some(Next::Dark { host, step }) => {
                let come = now + circuits.switching;
                self.relight();
                self.at(come, Act::Come(host, step));
                Ok(())
            }
            Some(Next::Joined { host, step }) => {
                let is_running = |(_, job): &(usize, &Job)| job.running && job.open > 0;
                let running =
                    self.jobs.jobs.iter().enumerate().filter(is_running).map(|(at, _)| at);
                let mine = |at: &usize| matches!(scenario.workloads[*at].run, Run::CircuitExchange);
                let Some(place) = running.into_iter().find(mine) else { return Ok(()) };
                let workload = &scenario.workloads[place];
                let first = self.engine.flow_count() as u32;
                let pair = (host, step);
                let batch =
                    circuits.exchange(&mut self.engine, pair, workload.bytes, workload.priority);
                let name = || workload.name.clone();
                let batch =
                    batch.map_err(|error| TrafficError::Workload { workload: name(), error })?;
                let last = self.engine.flow_count() as u32;
                self.pairs.insert(batch, Pair(place, host, step));
                if let Some(now) = self.jobs.jobs[place].steps.last_mut() {
                    now.flows.push(first..last);
                }
                self.relight();
                Ok(())
            }
        }
    }

    /// Puts every fibre into the state that its circuits and faults ask for.
    fn relight(&mut self) {
        let fibres: Vec<LinkId> = match &self.scenario.plant.exchange {
            Some((fibres, _)) => fibres.iter().flatten().copied().collect(),
            None => return,
        };
        fibres.iter().flat_map(|fibre| [*fibre, fibre.reverse()]).for_each(|link| self.set(link));
    }

    /// Puts a link into the state that its circuits and faults ask for.
    fn set(&mut self, link: LinkId) {
        let lit = self.circuits.as_ref().is_none_or(|circuits| circuits.lights(link));
        let up = lit && self.down[link.index()] == 0;
        if self.engine.is_up(link) != up {
            let change = if up { LinkChange::Up } else { LinkChange::Down };
            self.engine.change_link(self.engine.now(), link, change);
        }
    }

    fn batch_done(&mut self, batch: BatchId, at: SimTime) -> Result<(), TrafficError> {
        let now = self.engine.now();
        match self.pairs.remove(&batch) {
            Some(pair) => self.pair_done(pair, at)?,
            None => self.jobs.batch_done(batch, at, now),
        }
        self.plan_turns();
        Ok(())
    }

    /// Both directions of a pair are through: its hosts go on to their next fibre.
    fn pair_done(&mut self, pair: Pair, at: SimTime) -> Result<(), TrafficError> {
        let Pair(place, host, step) = pair;
        let steps = self.circuits.as_ref().map_or(0, Circuits::steps);
        for host in [host, host | 1 << step] {
            if step + 1 < steps {
                let wants = |circuits: &mut Circuits| circuits.want(host, step + 1);
                let next = self.circuits.as_mut().and_then(wants);
                self.follow(next)?;
            }
        }
        self.jobs.part_done(place, at, self.engine.now());
        Ok(())
    }

    fn finish(self, stop: Option<Stop>, classes: Vec<u8>) -> Told {
        let plant = &self.scenario.plant;
        let name = |vertex| plant.name(vertex).to_owned();
        let waiting = self.jobs.waiting(&self.engine, &name, &|link| plant.link_name(link));
        let last = self.jobs.last_end().unwrap_or_default();
        let ended = if self.jobs.are_done() { last } else { last.max(self.engine.now()) };
        let Self { jobs, felt, engine, mut out_of_service, out_since, .. } = self;
        out_of_service
            .extend(out_since.into_iter().flatten().map(|since| (since, SimTime(u64::MAX))));
        let jobs = jobs.into_jobs();
        Told { jobs, felt, ended, stop, waiting, engine, classes, out_of_service }
    }
}
