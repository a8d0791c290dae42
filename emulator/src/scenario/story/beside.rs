//! What runs beside the rings: workloads on the data-centre network, and what faults do to their flows.
//!
//! A GPU has one cable to its ToR, so nothing leads around a dark one: its flows wait for a repair. Where none
//! will come they are given up as soon as the control plane knows of the fault.

use lightloom_engine::steady::Stage;
use lightloom_engine::{FlowId, LinkId};
use lightloom_units::SimTime;

use super::super::ScenarioError;
use super::Story;
use super::healing::Act;
use crate::traffic::jobs::Turn;

impl Story<'_> {
    /// Sets a timer for every turn that workloads ask for.
    pub(super) fn plan_turns(&mut self) {
        for (time, turn) in self.jobs.take_turns() {
            self.at(time, Act::Turn(turn));
        }
    }

    pub(super) fn turn(&mut self, turn: Turn) -> Result<(), ScenarioError> {
        let now = self.engine.now();
        match turn {
            Turn::Begin(place) => self.jobs.begin(place, self.engine.engine_mut())?,
            Turn::Computed(place) => self.jobs.step_done(place, now, now),
        }
        self.plan_turns();
        Ok(())
    }

    /// Notes the flows that a fault hits.
    pub(super) fn note_flows(&mut self, fault: usize, links: &[LinkId]) {
        if let Some(engine) = self.engine.engine().filter(|_| self.has_workloads()) {
            let hit = self.jobs.flows_on(engine, links);
            self.healings[fault].flows_hit.extend(hit);
        }
    }

    /// When the control plane will know of what happens now, flows without hope are given up.
    pub(super) fn plan_to_give_up(&mut self) {
        if self.has_workloads() {
            let known = self.engine.now() + self.detection_delay();
            self.at(known, Act::GiveUp);
        }
    }

    /// Gives up flows over dark links, unless something will be repaired, and lets workloads begin that could not.
    pub(super) fn give_up(&mut self) {
        let now = self.engine.now();
        if !self.repairs_come(now) {
            let mine: Vec<FlowId> = self.jobs.flows().collect();
            let mut dark = self.engine.engine_mut().flows_on_dark_links();
            dark.retain(|flow| mine.binary_search(flow).is_ok());
            for flow in dark {
                self.engine.engine_mut().cancel_flow(flow);
                let hit = self.healings.iter_mut().rfind(|fault| fault.flows_hit.contains(&flow));
                if let Some(fault) = hit {
                    fault.flows_given_up.push(flow);
                }
            }
        }
        self.jobs.try_again(now);
        self.plan_turns();
    }

    /// Whether something that is down now will be repaired.
    fn repairs_come(&self, now: SimTime) -> bool {
        self.strikes.iter().any(|strike| {
            strike.at <= now && strike.repaired_at.is_some_and(|repaired| repaired > now)
        })
    }

    fn has_workloads(&self) -> bool {
        !self.scenario.workloads.is_empty()
    }
}
