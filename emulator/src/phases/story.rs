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

mod breaking;
mod changing;
mod told;

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_planner::rfabric::demand::Demand;
use lightloom_units::{Bytes, Picoseconds, SimTime};

use lightloom_engine::{Engine, Event, LinkChange, PacketCount, Settings};
pub(super) use told::{FaultTold, PhaseTold, Told};

use super::network::Installed;
use super::switches::{Port, Switches};
use super::traffic::Traffic;
use super::{Fault, PhaseRunError, Run};
use crate::scenario::Progress;
use changing::Change;

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
        let expected = self.run.shorter(self.run.plan.phases[self.phase].duration_ps) + slack;
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
                self.end_moving(at);
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
