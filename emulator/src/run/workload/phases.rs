// SPDX-License-Identifier: Apache-2.0
//! Repeats a step of several phases. A phase sends traffic from each leaf to every other leaf.

use lightloom_engine::steady::Stage;
use lightloom_engine::{BatchId, LinkId};
use lightloom_fabric::plan::RoutePlan;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_units::{Bytes, Picoseconds, SimTime};

use super::super::context::{Context, Notice, Owner};
use super::super::log::PhaseLog;
use super::super::{RunLog, RunResult};
use super::lanes::Leaves;
use super::pairs::PhaseTraffic;
use super::{Waiting, WaitsFor, Workload};
use crate::scenario::{Effect, Prior};
use crate::substrate::Lane;

pub(crate) struct PhaseProgram<'a> {
    pub(crate) demands: &'a [Demand],
    pub(crate) routes: Vec<&'a [RoutePlan]>,
    pub(crate) slacks: Vec<Picoseconds>,
    pub(crate) names: Vec<String>,
    pub(crate) steps: u32,
    pub(crate) after: Vec<Prior>,
}

const SLACK_OVER: u64 = 0;
const LIT_AGAIN: u64 = 1;

pub(crate) struct Phases<'a> {
    order: PhaseProgram<'a>,
    leaves: Leaves<'a>,
    traffic: Option<PhaseTraffic>,
    is_changing: bool,
    change: (SimTime, SimTime),
    logs: Vec<PhaseLog>,
    lost_before: u64,
    ended: Option<SimTime>,
    me: Owner,
}

impl<'a> Phases<'a> {
    pub(crate) fn new(leaves: Leaves<'a>, order: PhaseProgram<'a>) -> Self {
        Self {
            traffic: None,
            is_changing: false,
            change: (SimTime::START, SimTime::START),
            logs: Vec::new(),
            lost_before: 0,
            ended: None,
            me: Owner::Workload(0),
            order,
            leaves,
        }
    }

    fn phase(&self) -> usize {
        (self.logs.len() - 1) % self.order.demands.len()
    }

    fn lost(&self, context: &Context<'_>) -> u64 {
        self.leaves.links().map(|link| context.engine.port_count(link).lost).sum()
    }

    fn all(&self) -> usize {
        self.order.demands.len() * self.order.steps as usize
    }

    fn begin_phase(&mut self, context: &mut Context<'_>) {
        let start = context.now();
        self.lost_before = self.lost(context);
        self.logs.push(PhaseLog { start, ..PhaseLog::default() });
        let phase = self.phase();
        context.at(start + self.order.slacks[phase], self.me, SLACK_OVER);
        let step = ((self.logs.len() - 1) / self.order.demands.len()) as u32;
        context.post(Notice::PhaseBegan { step, phase });
    }

    fn end_if_over(&mut self, context: &mut Context<'_>) {
        let end = self.traffic.as_ref().and_then(PhaseTraffic::end);
        let Some(end) = end.filter(|_| !self.is_changing) else { return };
        let log = self.logs.last().expect("the phase has started");
        let sent_from = log.start + self.order.slacks[self.phase()];
        let time = end.max(self.change.1).max(sent_from).since(sent_from);
        self.close(context, Some(time));
        self.traffic = None;
        if self.logs.len() < self.all() {
            self.begin_phase(context);
        } else {
            self.ended = Some(context.now());
        }
    }

    fn close(&mut self, context: &Context<'_>, time: Option<Picoseconds>) {
        let lost = self.lost(context);
        let (began, ended) = self.change;
        let held = self.traffic.as_ref().map_or(Bytes::ZERO, PhaseTraffic::held);
        let traffic = self.traffic.as_ref();
        let resent = traffic.map_or(Bytes::ZERO, |traffic| traffic.sent_twice(&context.engine));
        let log = self.logs.last_mut().expect("the phase has started");
        log.time = time;
        log.transition = if began >= log.start { ended.since(began) } else { Picoseconds::ZERO };
        log.fullest = self.traffic.as_ref().and_then(PhaseTraffic::fullest);
        log.circuits_up = context.circuits_up.len();
        log.packets_lost = lost - self.lost_before;
        log.held = held;
        log.resent = resent;
    }

    fn divide(&mut self, context: &mut Context<'_>) -> RunResult {
        if let Some(traffic) = &mut self.traffic {
            traffic.divide(context, &self.leaves, self.me)?;
        }
        Ok(())
    }
}

impl Workload for Phases<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        if self.order.after.is_empty() {
            self.begin_phase(context);
        }
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        if act == SLACK_OVER {
            let phase = self.phase();
            let (demand, routes) = (&self.order.demands[phase], self.order.routes[phase]);
            self.traffic = Some(PhaseTraffic::waiting(&self.leaves, demand, routes));
        }
        self.divide(context)?;
        self.end_if_over(context);
        Ok(())
    }

    fn batch_done(&mut self, context: &mut Context<'_>, batch: BatchId, at: SimTime) -> RunResult {
        if let Some(traffic) = &mut self.traffic {
            traffic.batch_done(batch, at);
        }
        self.end_if_over(context);
        Ok(())
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        match notice {
            Notice::Circuits => {
                self.divide(context)?;
                self.end_if_over(context);
            }
            Notice::Done(prior) if self.order.after.contains(prior) => {
                self.order.after.retain(|other| other != prior);
                if self.order.after.is_empty() {
                    self.begin_phase(context);
                }
            }
            Notice::ChangeBegan => self.is_changing = true,
            Notice::ChangeEnded { began, ended } => {
                self.is_changing = false;
                self.change = (*began, *ended);
            }
            Notice::ChangeMissed => {
                self.logs.last_mut().expect("the phase has started").change_missed = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn fault_began(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        links: &[LinkId],
    ) -> RunResult {
        let effect = context.events[fault].effect;
        if let Some(traffic) = self.traffic.as_mut().filter(|_| effect.goes_dark()) {
            traffic.cut(context, links);
        }
        // The circuits to be removed are not known yet, so use those at the fault's ports.
        let ports: Vec<_> = context.events[fault].ports().collect();
        let hit = context.circuits_up.iter().filter(|circuit| {
            let ends = [circuit.a_port, circuit.b_port];
            ends.iter().any(|port| ports.contains(&(circuit.ocs, *port)))
        });
        let lanes =
            hit.filter(|_| effect == Effect::Down).map(|circuit| Lane::Circuit(*circuit)).collect();
        if let Some(traffic) = &self.traffic {
            context.faults[fault].leaves.extend(traffic.leaves_on(&lanes));
        }
        Ok(())
    }

    fn fault_ended(&mut self, context: &mut Context<'_>, _: usize) -> RunResult {
        if self.traffic.as_ref().is_some_and(PhaseTraffic::is_cut) {
            context.at(context.now() + Picoseconds(1), self.me, LIT_AGAIN);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ended.is_some()
    }

    fn progress(&self, _: &Context<'_>) -> (f64, f64) {
        let done = if self.ended.is_some() { self.all() } else { self.logs.len().max(1) - 1 };
        (done as f64, self.all() as f64)
    }

    fn last_end(&self) -> Option<SimTime> {
        self.ended
    }

    fn waiting(&self, _: &Context<'_>) -> Vec<Waiting> {
        if self.ended.is_some() {
            return Vec::new();
        }
        if self.logs.is_empty() {
            let what = "phases".to_owned();
            return vec![Waiting { what, since: None, waits_for: WaitsFor::Start }];
        }
        let (phase, held) =
            (self.phase(), self.traffic.as_ref().map_or(Bytes::ZERO, PhaseTraffic::held));
        let name = &self.order.names[phase];
        let step = (self.logs.len() - 1) / self.order.demands.len();
        let what = format!("phase `{name}` of step {step}");
        vec![Waiting { what, since: None, waits_for: WaitsFor::Held(held) }]
    }

    fn finish(mut self: Box<Self>, context: &mut Context<'_>, log: &mut RunLog) {
        if self.ended.is_none() && !self.logs.is_empty() {
            self.close(context, None);
        }
        log.phases = self.logs;
    }
}
