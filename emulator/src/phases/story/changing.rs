//! Changes between phases, stage by stage: commanded, moved, trained, tested.

use std::collections::{BTreeSet, VecDeque};

use lightloom_engine::LinkChange;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::transition::{self, Stage};
use lightloom_units::SimTime;

use super::{Story, Timer};
use crate::phases::switches::{Port, ends};
use crate::phases::{FaultKind, InFlight, PhaseRunError};

/// A change under way: the stage at work and those to come.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) stage: Option<Stage>,
    next: VecDeque<Stage>,
}

impl Story<'_> {
    /// Begins the change to the circuits of this phase, if somebody is there to command it.
    pub(super) fn begin_change(&mut self) -> Result<(), PhaseRunError> {
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

    pub(super) fn move_mirrors(&mut self, at: SimTime) -> Result<(), PhaseRunError> {
        let stage = self.change.stage.take().unwrap_or_default();
        self.switches.begin_moving(&stage);
        self.set_links(stage.remove.iter(), at, LinkChange::Down);
        self.change.stage = Some(stage);
        let switching = self.run.shorter(self.fabric().spec().timing.switching);
        self.set_timer(at + switching, Timer::Light);
        self.divide()
    }

    pub(super) fn end_moving(&mut self, at: SimTime) {
        let stage = self.change.stage.take().unwrap_or_default();
        self.switches.end_moving(&stage);
        let kept: BTreeSet<Port> = stage.add.iter().flat_map(ends).collect();
        for port in stage.remove.iter().flat_map(ends).filter(|port| !kept.contains(port)) {
            self.end_dark(port, at);
        }
        self.change.stage = Some(stage);
        let bring_up = self.run.shorter(self.fabric().spec().timing.bring_up);
        self.set_timer(at + bring_up, Timer::Test);
    }

    pub(super) fn end_stage(&mut self, at: SimTime) -> Result<(), PhaseRunError> {
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
}
