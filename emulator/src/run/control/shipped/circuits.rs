// SPDX-License-Identifier: Apache-2.0
//! Tracks circuits under the shipped control plane: connected, training, or carrying traffic.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_units::SimTime;
use lightloom_units::id::OcsId;

use super::super::super::RunLog;
use super::super::super::context::{Context, Notice};
use super::super::circuits::CircuitOrder;
use super::super::dark::DarkPorts;
use super::super::optical::ends;
use crate::scenario::{Effect, InFlight};
use crate::shipped::{PhaseAnswer, PhaseWish};
use crate::substrate::{OpticalCircuits, OpticalPort as Port};

pub(super) struct ShippedCircuits<'a> {
    order: CircuitOrder<'a>,
    phases: Vec<PhasePlan>,
    circuits: &'a OpticalCircuits,
    by_ports: BTreeMap<(OcsId, u32, u32), CrossConnect>,
    passed: BTreeSet<CrossConnect>,
    training: BTreeMap<CrossConnect, SimTime>,
    up: BTreeSet<CrossConnect>,
    drained: BTreeSet<CrossConnect>,
    /// Circuits that carry no traffic until the daemon reports the phase.
    unproven: BTreeSet<CrossConnect>,
    dead: BTreeMap<Port, u32>,
    unfit: BTreeSet<Port>,
    dark: DarkPorts,
    /// The phase in progress and the start of its change, or the time of the request if the change has not started.
    asked: Option<(usize, SimTime)>,
}

impl<'a> ShippedCircuits<'a> {
    pub(super) fn new(circuits: &'a OpticalCircuits, order: CircuitOrder<'a>) -> Self {
        let by_ports = circuits.circuits().map(|circuit| {
            let (a, b) = (circuit.a_port, circuit.b_port);
            ((circuit.ocs, a.min(b), a.max(b)), *circuit)
        });
        let held = order.plan.phases.iter().rev().find(|phase| !phase.circuits.is_empty());
        let up: BTreeSet<CrossConnect> =
            held.iter().flat_map(|phase| phase.circuits.iter().copied()).collect();
        Self {
            by_ports: by_ports.collect(),
            passed: up.clone(),
            training: BTreeMap::new(),
            up,
            drained: BTreeSet::new(),
            unproven: BTreeSet::new(),
            dead: BTreeMap::new(),
            unfit: BTreeSet::new(),
            dark: DarkPorts::default(),
            asked: None,
            phases: order.plan.phases.clone(),
            order,
            circuits,
        }
    }

    pub(super) fn begin(&mut self, context: &mut Context<'_>) {
        for circuit in self.circuits.circuits().filter(|circuit| !self.up.contains(circuit)) {
            for link in self.circuits.links(circuit) {
                context.light(link, false);
            }
        }
        context.circuits_up = self.up.iter().copied().collect();
    }

    fn publish(&self, context: &mut Context<'_>) {
        let up = &(&self.up - &self.drained) - &self.unproven;
        context.circuits_up = up.into_iter().collect();
        context.post(Notice::Circuits);
    }

    fn light(&self, context: &mut Context<'_>, circuit: &CrossConnect, is_lit: bool) {
        for link in self.circuits.links(circuit) {
            context.light(link, is_lit);
        }
    }

    fn has_light(&self, circuit: &CrossConnect) -> bool {
        !ends(circuit).iter().any(|port| self.dead.contains_key(port))
    }

    pub(super) fn passes(
        &mut self,
        context: &mut Context<'_>,
        ocs: OcsId,
        pairs: &[(u32, u32)],
    ) -> Vec<(SimTime, CrossConnect)> {
        let named = pairs.iter().filter_map(|(a, b)| self.by_ports.get(&(ocs, *a, *b)));
        let now_passed: BTreeSet<CrossConnect> = named.copied().collect();
        self.passed.retain(|circuit| circuit.ocs != ocs);
        self.passed.extend(now_passed);
        self.look(context, false)
    }

    fn look(&mut self, context: &mut Context<'_>, is_fault: bool) -> Vec<(SimTime, CrossConnect)> {
        let now = context.now();
        let lit: BTreeSet<CrossConnect> =
            self.passed.iter().filter(|circuit| self.has_light(circuit)).copied().collect();
        let lost: Vec<CrossConnect> = self.up.difference(&lit).copied().collect();
        for circuit in &lost {
            self.up.remove(circuit);
            self.light(context, circuit, false);
            self.dark.begin(circuit, now, is_fault);
        }
        self.training.retain(|circuit, _| lit.contains(circuit));
        let until = now + self.order.timing.bring_up;
        let mut begun: Vec<CrossConnect> = lit.difference(&self.up).copied().collect();
        begun.retain(|circuit| {
            !self.training.contains_key(circuit)
                && !ends(circuit).iter().any(|port| self.unfit.contains(port))
        });
        self.training.extend(begun.iter().map(|circuit| (*circuit, until)));
        if !lost.is_empty() {
            self.publish(context);
        }
        begun.into_iter().map(|circuit| (until, circuit)).collect()
    }

    pub(super) fn trained(&mut self, context: &mut Context<'_>, circuit: &CrossConnect) {
        let now = context.now();
        if self.training.get(circuit).is_none_or(|until| *until > now) {
            return;
        }
        self.training.remove(circuit);
        self.up.insert(*circuit);
        self.drained.remove(circuit);
        self.dark.end(circuit, now);
        self.light(context, circuit, true);
        self.publish(context);
    }

    pub(super) fn wish(&mut self, context: &mut Context<'_>, phase: usize) -> Option<PhaseWish> {
        let planned = &self.phases[phase];
        let wanted: BTreeSet<CrossConnect> = planned.circuits.iter().copied().collect();
        if wanted.is_empty() || (self.asked.is_none() && wanted == self.passed) {
            return None;
        }
        self.asked = Some((phase, context.now()));
        context.post(Notice::ChangeBegan);
        Some(PhaseWish {
            phase: planned.name.clone(),
            within: self.order.slacks.get(phase).copied().unwrap_or_default(),
            lasts: planned.duration_ps,
        })
    }

    pub(super) fn replanned(&mut self, plan: &Plan) {
        for phase in &mut self.phases {
            if let Some(next) = plan.phases.iter().find(|next| next.name == phase.name) {
                phase.clone_from(next);
            }
        }
    }

    pub(super) fn moves(&mut self, context: &mut Context<'_>) {
        let Some((phase, began)) = &mut self.asked else { return };
        *began = context.now();
        let wanted = &self.phases[*phase].circuits;
        self.unproven = wanted.iter().filter(|own| !self.up.contains(own)).copied().collect();
        if self.order.in_flight == InFlight::Drain {
            self.drained =
                self.up.iter().filter(|circuit| !wanted.contains(circuit)).copied().collect();
            self.publish(context);
        }
    }

    pub(super) fn settled(&mut self, context: &mut Context<'_>, answer: &PhaseAnswer) {
        let Some((_, began)) = self.asked.take() else { return };
        let now = context.now();
        self.drained.clear();
        self.unproven.clear();
        self.dark.end_moves(now, &self.training);
        if matches!(answer, PhaseAnswer::Missed(_)) {
            for fault in 0..context.events.len() {
                let event = &context.events[fault];
                let is_cause = event.is_of_control() || event.ports().next().is_some();
                if context.active[fault] && is_cause {
                    context.faults[fault].changes_missed += 1;
                }
            }
            context.post(Notice::ChangeMissed);
        }
        context.post(Notice::ChangeEnded { began, ended: now });
        self.publish(context);
    }

    pub(super) fn fault(
        &mut self,
        context: &mut Context<'_>,
        fault: usize,
        begins: bool,
    ) -> Vec<(SimTime, CrossConnect)> {
        let event = &context.events[fault];
        let ports: Vec<Port> = event.ports().collect();
        let leaves: Vec<_> = event.parts.iter().flat_map(|part| &part.leaves).copied().collect();
        if ports.is_empty() && leaves.is_empty() {
            return Vec::new();
        }
        match (event.effect, begins) {
            (effect, true) if effect.goes_dark() => {
                ports.iter().for_each(|port| *self.dead.entry(*port).or_default() += 1);
            }
            (effect, false) if effect.goes_dark() => {
                for port in &ports {
                    if let Some(times) = self.dead.get_mut(port) {
                        *times -= 1;
                    }
                }
                self.dead.retain(|_, times| *times > 0);
            }
            (Effect::FailsTest, true) => self.unfit.extend(&ports),
            (Effect::FailsTest, false) => self.unfit.retain(|port| !ports.contains(port)),
            _ => {}
        }
        let before = self.up.clone();
        let training = self.look(context, true);
        let lost: Vec<CrossConnect> = before.difference(&self.up).copied().collect();
        let log = &mut context.faults[fault];
        log.leaves.extend(leaves);
        log.circuits.extend(&lost);
        log.leaves.extend(lost.iter().flat_map(|circuit| [circuit.a, circuit.b]));
        self.publish(context);
        training
    }

    pub(super) fn finish(mut self, log: &mut RunLog) {
        self.dark.end_all(log.ended);
        (log.switching, log.broken) = (self.dark.switching, self.dark.broken);
    }
}
