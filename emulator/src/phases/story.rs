//! One run: phases one after another, changes between them stage by stage, and what breaks meanwhile.
//!
//! ```text
//!   phase before ends
//!      │◀──────── slack ────────▶│◀──────── packets of the phase ─────────▶│
//!      │ stage 1 │ stage 2 │ stage 3 …                                     │ (and no change under way)
//!        control, switching, bring-up; circuits join the traffic as they come up
//! ```
//!
//! All sizes and times are those of the fabric divided by the scale of the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_fabric::id::LeafId;
use lightloom_fabric::units::{BitsPerSecond, Bytes, Picoseconds, SimTime};
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::transition::{self, Stage};

use super::network::{Installed, Lane};
use super::switches::{Port, Switches, ends};
use super::traffic::Traffic;
use super::{Fault, FaultKind, InFlight, PhaseRunError, Run};
use crate::engine::{Engine, Event, FlowRecord, LinkChange, PacketCount, PortCount, Settings};
use crate::scenario::Progress;

/// What happened in one run.
pub(super) struct Told {
    pub(super) phases: Vec<PhaseTold>,
    pub(super) faults: Vec<FaultTold>,
    pub(super) packets: PacketCount,
    pub(super) flows: Vec<FlowRecord>,
    /// What every link carried, by its name.
    pub(super) links: Vec<(String, PortCount)>,
    pub(super) ended: SimTime,
    /// Ports' time in changes, and dark for faults.
    pub(super) switching: u128,
    pub(super) broken: u128,
}

/// What happened in one phase of one step.
#[derive(Clone, Debug, Default)]
pub(super) struct PhaseTold {
    pub(super) start: SimTime,
    /// From the end of the slack to the last byte and the last circuit.
    pub(super) time: Option<Picoseconds>,
    pub(super) transition: Picoseconds,
    pub(super) circuits_up: usize,
    pub(super) resent: Bytes,
    pub(super) packets_lost: u64,
    pub(super) held: Bytes,
    pub(super) change_missed: bool,
}

/// What one fault did.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultTold {
    pub(super) at: Option<SimTime>,
    pub(super) repaired: Option<SimTime>,
    pub(super) circuits: BTreeSet<CrossConnect>,
    pub(super) leaves: BTreeSet<LeafId>,
    pub(super) changes_missed: u32,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// The slack is over.
    Send,
    /// The switches have the command.
    Move,
    /// The mirrors have moved.
    Light,
    /// The links have trained.
    Test,
    /// A fault strikes, or is repaired, or its circuits have trained again.
    Strike(usize),
    Repair(usize),
    TestAgain,
    /// Somebody may want to know how far we are.
    Tell,
}

/// A change under way: the stage at work and those to come.
#[derive(Debug, Default)]
struct Change {
    stage: Option<Stage>,
    next: VecDeque<Stage>,
}

/// Why a port is dark, and since when.
type Dark = BTreeMap<Port, (SimTime, bool)>;

pub(super) struct Story<'a> {
    run: &'a Run<'a>,
    faults: &'a [Fault],
    demands: &'a [Demand],
    engine: Engine,
    installed: Installed,
    switches: Switches,
    change: Change,
    change_began: SimTime,
    change_ended: SimTime,
    traffic: Option<Traffic>,
    timers: Vec<Timer>,
    dark: Dark,
    training_again: BTreeMap<usize, Vec<CrossConnect>>,
    told: Told,
    phase: usize,
}

/// Runs the steps of `run` with these faults.
pub(super) fn tell(
    run: &Run<'_>,
    demands: &[Demand],
    faults: &[Fault],
    progress: &mut dyn Progress,
) -> Result<Told, PhaseRunError> {
    Story::new(run, demands, faults)?.tell(progress)
}

impl<'a> Story<'a> {
    fn new(
        run: &'a Run<'a>,
        demands: &'a [Demand],
        faults: &'a [Fault],
    ) -> Result<Self, PhaseRunError> {
        let circuits = run.plan.phases.iter().flat_map(|phase| &phase.circuits);
        let (network, installed) =
            Installed::build(run.fabric(), run.scenario.transport.packet() * 16, circuits)?;
        let settings = Settings {
            transport: run.scenario.transport,
            seed: run.scenario.seed,
            queueing: run.scenario.acknowledgements.queueing(),
            threads: run.threads,
            ..Settings::default()
        };
        let mut engine = Engine::new(network, settings)?;
        let last = run.plan.phases.last().expect("a plan has phases");
        let lit: BTreeSet<&CrossConnect> = last.circuits.iter().collect();
        for circuit in installed.circuits().filter(|circuit| !lit.contains(circuit)) {
            for link in installed.links(circuit) {
                engine.change_link(SimTime::START, link, LinkChange::Down);
            }
        }
        let told = Told {
            phases: Vec::new(),
            faults: vec![FaultTold::default(); faults.len()],
            packets: PacketCount::default(),
            flows: Vec::new(),
            links: Vec::new(),
            ended: SimTime::START,
            switching: 0,
            broken: 0,
        };
        Ok(Self {
            run,
            faults,
            demands,
            engine,
            installed,
            switches: Switches::holding(&last.circuits),
            change: Change::default(),
            change_began: SimTime::START,
            change_ended: SimTime::START,
            traffic: None,
            timers: Vec::new(),
            dark: Dark::new(),
            training_again: BTreeMap::new(),
            told,
            phase: 0,
        })
    }

    fn fabric(&self) -> &'a ReconfigurableFatTree {
        self.run.fabric()
    }

    fn tell(mut self, progress: &mut dyn Progress) -> Result<Told, PhaseRunError> {
        let phases = self.run.plan.phases.len();
        let all = phases * self.run.scenario.steps as usize;
        for at in 0..all {
            self.phase = at % phases;
            let ended = self.run_phase(at / phases, at as f64, all as f64, progress)?;
            if !ended {
                break;
            }
        }
        let now = self.engine.now();
        for port in self.dark.keys().copied().collect::<Vec<_>>() {
            self.end_dark(port, now);
        }
        self.told.packets = self.engine.packets();
        self.told.flows = self.engine.records().collect();
        let named = self.installed.named_links();
        self.told.links = named.map(|(name, link)| (name, self.engine.port_count(link))).collect();
        self.told.ended = now;
        Ok(self.told)
    }

    /// Runs one phase of one step; says whether every byte arrived.
    fn run_phase(
        &mut self,
        step: usize,
        before: f64,
        all: f64,
        progress: &mut dyn Progress,
    ) -> Result<bool, PhaseRunError> {
        let start = self.engine.now();
        let (packets, sent) = (self.engine.packets(), self.sent_bytes());
        self.told.phases.push(PhaseTold { start, ..PhaseTold::default() });
        let slack = self.run.shorter(self.run.input.phases[self.phase].slack);
        self.set_timer(start + slack, Timer::Send);
        self.set_timer(start, Timer::Tell);
        self.set_faults(step, start);
        self.begin_change()?;
        let expected = self.run.shorter(self.run.plan.phases[self.phase].time_ps) + slack;
        while !self.is_over() {
            match self.engine.next_event(SimTime(u64::MAX / 2)) {
                None => break,
                Some(Event::BatchDone { batch, at }) => {
                    if let Some(traffic) = &mut self.traffic {
                        traffic.batch_done(batch, at);
                    }
                }
                Some(Event::Timer { at, token }) => self.timer(at, token, expected)?,
            }
            let elapsed = self.engine.now().since(start).0 as f64;
            let share = (elapsed / expected.0.max(1) as f64).min(1.0);
            progress.tell(self.engine.now(), 0, (before + share) / all);
        }
        Ok(self.end_phase(start + slack, packets, sent))
    }

    fn is_over(&self) -> bool {
        let traffic = self.traffic.as_ref().and_then(Traffic::end);
        traffic.is_some() && self.change.stage.is_none()
    }

    fn end_phase(&mut self, sent_from: SimTime, before: PacketCount, sent: u64) -> bool {
        let now_sent = self.sent_bytes();
        let lost = self.engine.packets().lost - before.lost;
        let traffic = self.traffic.take();
        let end = traffic.as_ref().and_then(Traffic::end);
        let demand = self.demands[self.phase].total();
        let up = self.switches.up().count();
        let (began, ended) = (self.change_began, self.change_ended);
        let told = self.told.phases.last_mut().expect("the phase was begun");
        told.time = end.map(|end| end.max(ended).max(sent_from).since(sent_from));
        told.transition = if began >= told.start { ended.since(began) } else { Picoseconds::ZERO };
        told.circuits_up = up;
        told.packets_lost = lost;
        told.held = traffic.map_or(Bytes::ZERO, |traffic| traffic.held());
        told.resent = Bytes(now_sent - sent).saturating_sub(demand);
        end.is_some()
    }

    /// Data that hosts have sent, in full packets' worth.
    fn sent_bytes(&self) -> u64 {
        self.engine.packets().data_sent * self.run.scenario.transport.payload.0
    }

    fn set_timer(&mut self, at: SimTime, timer: Timer) {
        self.timers.push(timer);
        self.engine.set_timer(at, self.timers.len() as u64 - 1);
    }

    fn set_faults(&mut self, step: usize, start: SimTime) {
        for (index, fault) in self.faults.iter().enumerate() {
            if fault.step as usize == step && fault.phase == self.phase {
                self.set_timer(start + self.run.shorter(fault.after), Timer::Strike(index));
            }
        }
    }

    fn timer(
        &mut self,
        at: SimTime,
        token: u64,
        expected: Picoseconds,
    ) -> Result<(), PhaseRunError> {
        match self.timers[token as usize] {
            Timer::Send => {
                self.traffic = Some(Traffic::waiting(&self.demands[self.phase]));
                self.divide()
            }
            Timer::Move => self.move_mirrors(at),
            Timer::Light => {
                let stage = self.change.stage.take().unwrap_or_default();
                self.switches.end_moving(&stage);
                let kept: BTreeSet<Port> = stage.add.iter().flat_map(ends).collect();
                for port in stage.remove.iter().flat_map(ends).filter(|port| !kept.contains(port)) {
                    self.end_dark(port, at);
                }
                self.change.stage = Some(stage);
                let bring_up = self.run.shorter(self.fabric().spec().timing.bring_up);
                self.set_timer(at + bring_up, Timer::Test);
                Ok(())
            }
            Timer::Test => self.end_stage(at),
            Timer::Strike(fault) => self.strike(fault, at),
            Timer::Repair(fault) => self.repair(fault, at),
            Timer::TestAgain => self.test_again(token as usize, at),
            Timer::Tell => {
                let start = self.told.phases.last().map_or(SimTime::START, |phase| phase.start);
                let next = at + Picoseconds(expected.0 / 50 + 1);
                if next < start + expected {
                    self.set_timer(next, Timer::Tell);
                }
                Ok(())
            }
        }
    }

    fn divide(&mut self) -> Result<(), PhaseRunError> {
        if let Some(traffic) = &mut self.traffic {
            traffic.divide(&mut self.engine, &self.installed, self.run.fabric(), &self.switches)?;
        }
        Ok(())
    }

    /// Begins the change to the circuits of this phase, if somebody is there to command it.
    fn begin_change(&mut self) -> Result<(), PhaseRunError> {
        let wanted = &self.run.plan.phases[self.phase].circuits;
        let now = self.switches.commanded();
        if now == *wanted {
            return Ok(());
        }
        if self.switches.controller_is_lost() {
            self.told.phases.last_mut().expect("the phase was begun").change_missed = true;
            for (fault, told) in self.faults.iter().zip(&mut self.told.faults) {
                let is_here = told.at.is_some() && told.repaired.is_none();
                told.changes_missed +=
                    u32::from(is_here && fault.kind == FaultKind::ControllerLoss);
            }
            return Ok(());
        }
        self.change.next = self.stages(&now, wanted).into();
        self.change_began = self.engine.now();
        self.next_stage()
    }

    /// The plan's stages where the switches hold what the plan assumes, else stages of our own.
    fn stages(&self, from: &[CrossConnect], to: &[CrossConnect]) -> Vec<Stage> {
        let phases = &self.run.plan.phases;
        let before = &phases[(self.phase + phases.len() - 1) % phases.len()];
        let planned = self
            .run
            .plan
            .transitions
            .iter()
            .find(|change| change.from == before.name && change.to == phases[self.phase].name);
        if let Some(planned) = planned.filter(|_| before.circuits == from) {
            return planned.stages.clone();
        }
        let live = Evaluator::new(self.fabric(), &self.demands[self.phase]);
        transition::stage(self.fabric(), from, to, &live, self.run.input.options.floor)
            .or_else(|_| transition::stage(self.fabric(), from, to, &live, 0.0))
            .expect("without a floor every change has an order")
    }

    fn next_stage(&mut self) -> Result<(), PhaseRunError> {
        let now = self.engine.now();
        let stopped = self.switches.controller_is_lost();
        let Some(stage) = self.change.next.pop_front().filter(|_| !stopped) else {
            self.change = Change::default();
            self.change_ended = now;
            return Ok(());
        };
        for port in stage.remove.iter().chain(&stage.add).flat_map(ends) {
            self.end_dark(port, now);
            self.dark.insert(port, (now, false));
        }
        if self.run.scenario.in_flight == InFlight::Drain {
            self.switches.drain(&stage);
        }
        self.change.stage = Some(stage);
        let control = self.fabric().spec().timing.control * self.switches.slowness();
        self.set_timer(now + self.run.shorter(control), Timer::Move);
        self.divide()
    }

    fn move_mirrors(&mut self, at: SimTime) -> Result<(), PhaseRunError> {
        let stage = self.change.stage.take().unwrap_or_default();
        self.switches.begin_moving(&stage);
        self.set_links(stage.remove.iter(), at, LinkChange::Down);
        self.change.stage = Some(stage);
        let switching = self.run.shorter(self.fabric().spec().timing.switching);
        self.set_timer(at + switching, Timer::Light);
        self.divide()
    }

    fn end_stage(&mut self, at: SimTime) -> Result<(), PhaseRunError> {
        let stage = self.change.stage.take().unwrap_or_default();
        let passed: BTreeSet<CrossConnect> =
            self.switches.qualify(&stage.add).into_iter().collect();
        self.set_links(passed.iter(), at, LinkChange::Up);
        for circuit in &stage.add {
            for port in ends(circuit) {
                self.end_dark(port, at);
                if !passed.contains(circuit) {
                    self.dark.insert(port, (at, true));
                }
            }
            if !passed.contains(circuit) {
                self.blame(circuit);
            }
        }
        self.next_stage()?;
        self.divide()
    }

    fn set_links<'c>(
        &mut self,
        circuits: impl Iterator<Item = &'c CrossConnect>,
        at: SimTime,
        change: LinkChange,
    ) {
        for circuit in circuits {
            for link in self.installed.links(circuit) {
                self.engine.change_link(at, link, change);
            }
        }
    }

    fn set_interface(&mut self, leaf: LeafId, at: SimTime, change: LinkChange) {
        for link in self.installed.interface(leaf) {
            self.engine.change_link(at, link, change);
        }
    }

    /// A circuit that should be up is not: the fault at one of its ports felt it.
    fn blame(&mut self, circuit: &CrossConnect) {
        let open = |told: &FaultTold| told.at.is_some() && told.repaired.is_none();
        for (fault, told) in self.faults.iter().zip(&mut self.told.faults) {
            if open(told) && fault.kind.touches(circuit) {
                told.circuits.insert(*circuit);
                told.leaves.extend([circuit.a, circuit.b]);
            }
        }
    }

    fn strike(&mut self, index: usize, at: SimTime) -> Result<(), PhaseRunError> {
        let fault = &self.faults[index];
        if let FaultKind::SlowHosts { leaf, percent } = fault.kind {
            let rate = self.fabric().host_rate() * f64::from(percent) / 100.0;
            self.set_interface(leaf, at, LinkChange::Rate(BitsPerSecond(rate as u64)));
            self.told.faults[index].leaves.insert(leaf);
        }
        let lost = self.switches.strike(&fault.kind);
        self.set_links(lost.iter(), at, LinkChange::Down);
        let lanes: BTreeSet<Lane> = lost.iter().map(|circuit| Lane::Circuit(*circuit)).collect();
        let told = &mut self.told.faults[index];
        told.at = Some(at);
        told.circuits.extend(&lost);
        told.leaves.extend(lost.iter().flat_map(|circuit| [circuit.a, circuit.b]));
        if let Some(traffic) = &self.traffic {
            told.leaves.extend(traffic.leaves_on(&lanes));
        }
        for port in lost.iter().flat_map(ends) {
            self.end_dark(port, at);
            self.dark.insert(port, (at, true));
        }
        if let Some(repaired_after) = fault.repaired_after {
            self.set_timer(at + self.run.shorter(repaired_after), Timer::Repair(index));
        }
        self.divide()
    }

    fn repair(&mut self, index: usize, at: SimTime) -> Result<(), PhaseRunError> {
        if let FaultKind::SlowHosts { leaf, .. } = self.faults[index].kind {
            self.set_interface(leaf, at, LinkChange::Healthy);
        }
        let back = self.switches.repair(&self.faults[index].kind);
        self.told.faults[index].repaired = Some(at);
        let timing = self.fabric().spec().timing;
        self.training_again.insert(self.timers.len(), back);
        self.set_timer(at + self.run.shorter(timing.switching + timing.bring_up), Timer::TestAgain);
        Ok(())
    }

    fn test_again(&mut self, token: usize, at: SimTime) -> Result<(), PhaseRunError> {
        let circuits = self.training_again.remove(&token).unwrap_or_default();
        let passed = self.switches.qualify(&circuits);
        self.set_links(passed.iter(), at, LinkChange::Up);
        for port in passed.iter().flat_map(ends) {
            self.end_dark(port, at);
        }
        self.divide()
    }

    fn end_dark(&mut self, port: Port, now: SimTime) {
        if let Some((since, broken)) = self.dark.remove(&port) {
            let time = u128::from(now.since(since).0);
            if broken {
                self.told.broken += time;
            } else {
                self.told.switching += time;
            }
        }
    }
}
