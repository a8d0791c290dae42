// SPDX-License-Identifier: Apache-2.0
//! Changes circuits between phases in stages: command, switch, train and test.

use std::collections::{BTreeSet, VecDeque};

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree, SwitchTiming};
use lightloom_fabric::plan::Plan;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::evaluate::Evaluator;
use lightloom_planner::rfabric::transition::{self, Stage};
use lightloom_units::{Picoseconds, SimTime};

use super::super::context::{Context, Notice, Owner};
use super::super::{RunLog, RunResult};
use super::ControlPlane;
use super::dark::DarkPorts;
use super::optical::{OpticalSwitches, ends};
use crate::scenario::{Effect, InFlight};
use crate::substrate::{OpticalCircuits, OpticalPort as Port};

#[derive(Clone)]
enum CircuitTimer {
    Move,
    Light,
    Test,
    TestAgain(Vec<CrossConnect>),
}

pub(crate) struct CircuitOrder<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) demands: &'a [Demand],
    pub(crate) slacks: Vec<Picoseconds>,
    pub(crate) timing: SwitchTiming,
    pub(crate) floor: f64,
    pub(crate) in_flight: InFlight,
}

pub(crate) struct CircuitChanges<'a> {
    order: CircuitOrder<'a>,
    circuits: &'a OpticalCircuits,
    switches: OpticalSwitches,
    stage: Option<Stage>,
    next: VecDeque<Stage>,
    began: SimTime,
    dark: DarkPorts,
    acts: Vec<CircuitTimer>,
    me: Owner,
}

impl<'a> CircuitChanges<'a> {
    pub(crate) fn new(circuits: &'a OpticalCircuits, order: CircuitOrder<'a>) -> Self {
        let held = order.plan.phases.last().map_or(&[][..], |phase| &phase.circuits[..]);
        Self {
            switches: OpticalSwitches::holding(held),
            stage: None,
            next: VecDeque::new(),
            began: SimTime::START,
            dark: DarkPorts::default(),
            acts: Vec::new(),
            me: Owner::Control(0),
            order,
            circuits,
        }
    }

    fn network(&self) -> &'a ReconfigurableFatTree {
        self.circuits.network()
    }

    fn at(&mut self, context: &mut Context<'_>, time: SimTime, act: CircuitTimer) {
        self.acts.push(act);
        context.at(time, self.me, self.acts.len() as u64 - 1);
    }

    fn publish(&self, context: &mut Context<'_>) {
        context.circuits_up = self.switches.up().copied().collect();
        context.post(Notice::Circuits);
    }

    fn light<'c>(
        &self,
        context: &mut Context<'_>,
        circuits: impl Iterator<Item = &'c CrossConnect>,
        is_lit: bool,
    ) {
        for link in circuits.flat_map(|circuit| self.circuits.links(circuit)) {
            context.light(link, is_lit);
        }
    }

    fn begin_change(&mut self, context: &mut Context<'_>, phase: usize) {
        let wanted = &self.order.plan.phases[phase].circuits;
        let now = self.switches.commanded();
        if now == *wanted {
            return;
        }
        if context.control_is_gone() {
            for (at, event) in context.events.iter().enumerate() {
                if context.active[at] && event.is_of_control() && event.effect == Effect::Down {
                    context.faults[at].changes_missed += 1;
                }
            }
            context.post(Notice::ChangeMissed);
            return;
        }
        self.next = self.stages(&now, phase).into();
        self.began = context.now();
        context.post(Notice::ChangeBegan);
        self.next_stage(context);
    }

    fn stages(&self, from: &[CrossConnect], phase: usize) -> Vec<Stage> {
        let phases = &self.order.plan.phases;
        let to = &phases[phase].circuits;
        let before = &phases[(phase + phases.len() - 1) % phases.len()];
        let mut planned = self.order.plan.transitions.iter();
        let planned = planned
            .find(|change| change.from == before.name && change.to == phases[phase].name)
            .filter(|_| before.circuits == from);
        if let Some(planned) = planned {
            return planned.stages.clone();
        }
        let live = Evaluator::new(self.network(), &self.order.demands[phase]);
        transition::stage(self.network(), from, to, &live, self.order.floor)
            .or_else(|| transition::stage(self.network(), from, to, &live, 0.0))
            .expect("without a floor, an order always exists")
    }

    fn next_stage(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let stopped = context.control_is_gone();
        let Some(stage) = self.next.pop_front().filter(|_| !stopped) else {
            self.next.clear();
            context.post(Notice::ChangeEnded { began: self.began, ended: now });
            return;
        };
        for circuit in stage.remove.iter().chain(&stage.add) {
            self.dark.begin(circuit, now, false);
        }
        if self.order.in_flight == InFlight::Drain {
            self.switches.drain(&stage);
        }
        self.stage = Some(stage);
        let control = context.slowed(self.order.timing.control);
        self.at(context, now + control, CircuitTimer::Move);
        self.publish(context);
    }

    fn move_mirrors(&mut self, context: &mut Context<'_>) {
        let stage = self.stage.take().unwrap_or_default();
        self.switches.begin_moving(&stage);
        self.light(context, stage.remove.iter(), false);
        self.stage = Some(stage);
        let lit = context.now() + self.order.timing.switching;
        self.at(context, lit, CircuitTimer::Light);
        self.publish(context);
    }

    fn end_moving(&mut self, context: &mut Context<'_>) {
        let stage = self.stage.take().unwrap_or_default();
        self.switches.end_moving(&stage);
        let kept: BTreeSet<Port> = stage.add.iter().flat_map(ends).collect();
        for port in stage.remove.iter().flat_map(ends).filter(|port| !kept.contains(port)) {
            self.dark.end_port(port, context.now());
        }
        self.stage = Some(stage);
        let tested = context.now() + self.order.timing.bring_up;
        self.at(context, tested, CircuitTimer::Test);
    }

    fn end_stage(&mut self, context: &mut Context<'_>) {
        let stage = self.stage.take().unwrap_or_default();
        let passed: BTreeSet<CrossConnect> =
            self.switches.qualify(&stage.add).into_iter().collect();
        self.light(context, passed.iter(), true);
        let now = context.now();
        for circuit in &stage.add {
            match passed.contains(circuit) {
                true => self.dark.end(circuit, now),
                false => {
                    self.dark.begin(circuit, now, true);
                    attribute(context, circuit);
                }
            }
        }
        self.next_stage(context);
        self.publish(context);
    }

    fn test_again(&mut self, context: &mut Context<'_>, circuits: &[CrossConnect]) {
        let passed = self.switches.qualify(circuits);
        self.light(context, passed.iter(), true);
        passed.iter().for_each(|circuit| self.dark.end(circuit, context.now()));
        self.publish(context);
    }
}

impl ControlPlane for CircuitChanges<'_> {
    fn begin(&mut self, context: &mut Context<'_>, me: Owner) -> RunResult {
        self.me = me;
        let lit: BTreeSet<&CrossConnect> = self.switches.up().collect();
        for circuit in self.circuits.circuits().filter(|circuit| !lit.contains(circuit)) {
            for link in self.circuits.links(circuit) {
                context.light(link, false);
            }
        }
        context.circuits_up = self.switches.up().copied().collect();
        Ok(())
    }

    fn fault_began(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        let event = &context.events[fault];
        let ports: Vec<Port> = event.ports().collect();
        let lost = self.switches.break_ports(event.effect, &ports);
        self.light(context, lost.iter(), false);
        let now = context.now();
        let log = &mut context.faults[fault];
        log.leaves.extend(event.parts.iter().flat_map(|part| &part.leaves));
        log.circuits.extend(&lost);
        log.leaves.extend(lost.iter().flat_map(|circuit| [circuit.a, circuit.b]));
        lost.iter().for_each(|circuit| self.dark.begin(circuit, now, true));
        self.publish(context);
        Ok(())
    }

    fn fault_ended(&mut self, context: &mut Context<'_>, fault: usize) -> RunResult {
        let event = &context.events[fault];
        let ports: Vec<Port> = event.ports().collect();
        let is_of_hosts = event.parts.iter().any(|part| !part.leaves.is_empty());
        if ports.is_empty() && !is_of_hosts && !event.is_of_control() {
            return Ok(());
        }
        let back = match is_of_hosts {
            true => Vec::new(),
            false => self.switches.mend_ports(event.effect, &ports),
        };
        let timing = self.order.timing;
        let tested = context.now() + timing.switching + timing.bring_up;
        self.at(context, tested, CircuitTimer::TestAgain(back));
        Ok(())
    }

    fn timer(&mut self, context: &mut Context<'_>, act: u64) -> RunResult {
        match self.acts[act as usize].clone() {
            CircuitTimer::Move => self.move_mirrors(context),
            CircuitTimer::Light => self.end_moving(context),
            CircuitTimer::Test => self.end_stage(context),
            CircuitTimer::TestAgain(circuits) => self.test_again(context, &circuits),
        }
        Ok(())
    }

    fn hear(&mut self, context: &mut Context<'_>, notice: &Notice) -> RunResult {
        if let Notice::PhaseBegan { phase, .. } = notice {
            self.begin_change(context, *phase);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &mut Context<'_>, log: &mut RunLog) {
        self.dark.end_all(log.ended);
        (log.switching, log.broken) = (self.dark.switching, self.dark.broken);
    }
}

fn attribute(context: &mut Context<'_>, circuit: &CrossConnect) {
    for (at, event) in context.events.iter().enumerate() {
        let is_there = context.active[at] && context.faults[at].at.is_some();
        if is_there && event.ports().any(|port| ends(circuit).contains(&port)) {
            context.faults[at].circuits.insert(*circuit);
            context.faults[at].leaves.extend([circuit.a, circuit.b]);
        }
    }
}
