// SPDX-License-Identifier: Apache-2.0
//! Fault injection: links go down, degrade and recover independently of the control plane.

use std::collections::BTreeSet;

use lightloom_engine::steady::Stage;
use lightloom_engine::{LinkChange, LinkId};
use lightloom_fabric::fault::FaultSet;
use lightloom_units::id::NodeId;

use super::{Context, Owner, Run, RunResult};
use crate::scenario::{Effect, When};

#[derive(Clone, Copy)]
enum FaultTimer {
    Begin,
    Goes,
    Comes,
    End,
}

const ACTS: [FaultTimer; 4] =
    [FaultTimer::Begin, FaultTimer::Goes, FaultTimer::Comes, FaultTimer::End];

fn number(fault: usize, act: FaultTimer) -> u64 {
    (fault * ACTS.len() + act as usize) as u64
}

impl Run<'_> {
    pub(super) fn plan_faults(&mut self) {
        let context = &mut self.context;
        for (fault, event) in context.events.iter().enumerate() {
            let Some(at) = event.at() else { continue };
            if event.from_start && !event.planned().is_empty() {
                context.active[fault] = true;
                context.faults[fault].out = true;
            } else {
                context.at(at, Owner::Faults, number(fault, FaultTimer::Begin));
            }
            context.plan_end(fault, at);
        }
    }

    pub(super) fn plan_faults_of_phase(&mut self, now_step: u32, now_phase: usize) {
        let context = &mut self.context;
        for (fault, event) in context.events.iter().enumerate() {
            if let When::InPhase { step, phase, after } = event.when
                && (step, phase) == (now_step, now_phase)
            {
                context.at(context.now() + after, Owner::Faults, number(fault, FaultTimer::Begin));
            }
        }
    }

    pub(super) fn fault_act(&mut self, act: u64) -> RunResult {
        let (fault, act) = (act as usize / ACTS.len(), ACTS[act as usize % ACTS.len()]);
        match act {
            FaultTimer::Begin => self.fault_begins(fault),
            FaultTimer::Goes => self.fault_blinks(fault, true),
            FaultTimer::Comes => self.fault_blinks(fault, false),
            FaultTimer::End => self.fault_ends(fault),
        }
    }

    fn fault_blinks(&mut self, fault: usize, goes: bool) -> RunResult {
        self.context.blink(fault, goes);
        for plane in &mut self.control {
            plane.blinked(&mut self.context, fault, goes)?;
        }
        Ok(())
    }

    fn fault_begins(&mut self, fault: usize) -> RunResult {
        let context = &mut self.context;
        let (event, now) = (&context.events[fault], context.now());
        context.is_disturbed = true;
        context.active[fault] = true;
        context.faults[fault].at = Some(now);
        if event.is_latent() {
            for plane in &mut self.control {
                plane.latent_began(&mut self.context, fault)?;
            }
            return Ok(());
        }
        if event.is_of_control() && event.effect == Effect::Down {
            context.control_down += 1;
        }
        let links = event.links();
        context.faults[fault].flows_hit = context.flows_on(&links);
        for workload in &mut self.workloads {
            workload.fault_began(&mut self.context, fault, &links)?;
        }
        self.context.apply(fault, &links);
        let context = &mut self.context;
        context.faults[fault].mattered = Some(now);
        context.faults[fault].gpus_lost += context.gpus_out_of_service(fault);
        for plane in &mut self.control {
            plane.fault_began(&mut self.context, fault)?;
        }
        if event.at().is_none() {
            self.context.plan_end(fault, now);
        }
        Ok(())
    }

    fn fault_ends(&mut self, fault: usize) -> RunResult {
        let context = &mut self.context;
        let (event, now) = (&context.events[fault], context.now());
        context.active[fault] = false;
        for plane in &mut self.control {
            plane.fault_ends(&mut self.context, fault)?;
        }
        self.context.undo(fault);
        let log = &mut self.context.faults[fault];
        log.repaired = Some(now);
        if event.is_of_control() || event.planned().is_empty() {
            log.restored.get_or_insert(now);
        }
        let returns = event.is_of_control() && event.effect == Effect::Down;
        if returns {
            self.context.control_down -= 1;
        }
        for plane in &mut self.control {
            plane.fault_ended(&mut self.context, fault)?;
            if returns && !self.context.control_is_gone() {
                plane.control_returned(&mut self.context)?;
            }
        }
        for workload in &mut self.workloads {
            workload.fault_ended(&mut self.context, fault)?;
        }
        Ok(())
    }
}

impl Context<'_> {
    fn plan_end(&mut self, fault: usize, at: lightloom_units::SimTime) {
        let event = &self.events[fault];
        if let Some(time) = event.ends(at) {
            self.at(time, Owner::Faults, number(fault, FaultTimer::End));
        }
        for (time, change) in event.blinks(at) {
            let act = if change == LinkChange::Down { FaultTimer::Goes } else { FaultTimer::Comes };
            self.at(time, Owner::Faults, number(fault, act));
        }
    }

    fn apply(&mut self, fault: usize, links: &[LinkId]) {
        let effect = self.events[fault].effect;
        if let Effect::PauseStorm(priority) = effect {
            let interfaces = self.events[fault].interfaces();
            self.change(&interfaces, LinkChange::Paused(1 << priority));
        }
        if effect.goes_dark() {
            self.faults[fault].out = true;
            self.put_out(links);
            self.note_service(fault, links);
        }
        self.degrade(fault, links);
    }

    fn degrade(&mut self, fault: usize, links: &[LinkId]) {
        for link in links {
            let full = self.substrate.network.link(*link).spec.rate;
            if let Some(change) = self.events[fault].effect.change(full) {
                self.change(&[*link], change);
            }
        }
    }

    fn undo(&mut self, fault: usize) {
        let event = &self.events[fault];
        if let Effect::PauseStorm(_) = event.effect {
            let interfaces = event.interfaces();
            self.change(&interfaces, LinkChange::Paused(0));
        } else if event.effect.goes_dark() {
            self.blink(fault, false);
        } else if event.effect.is_grey() {
            let links = event.links();
            self.change(&links, LinkChange::Healthy);
            for other in 0..self.events.len() {
                let mut shared = self.events[other].links();
                shared.retain(|link| self.active[other] && links.binary_search(link).is_ok());
                self.degrade(other, &shared);
            }
        }
    }

    /// If one direction of a cable is dark, also takes the other out of service, as routers do.
    pub(super) fn close_other_direction(&mut self, fault: usize) {
        let links = self.events[fault].links();
        let log = &self.faults[fault];
        let others = links.iter().map(|link| link.reverse());
        let others: Vec<LinkId> =
            others.filter(|link| links.binary_search(link).is_err()).collect();
        if log.out && log.closed.is_empty() && !others.is_empty() {
            self.put_out(&others);
            self.faults[fault].closed = others;
        }
    }

    fn blink(&mut self, fault: usize, goes: bool) {
        if self.faults[fault].out == goes {
            return;
        }
        let links = self.events[fault].links();
        self.faults[fault].out = goes;
        if goes {
            self.put_out(&links);
        } else {
            self.let_go(&links);
            let closed = std::mem::take(&mut self.faults[fault].closed);
            self.let_go(&closed);
        }
        self.note_service(fault, &links);
    }

    fn gpus_out_of_service(&self, fault: usize) -> u64 {
        let Some(rings) = &self.substrate.rings else { return 0 };
        let before = self.failed_nodes(|other| other != fault);
        let nodes = self.failed_nodes(|_| true).difference(&before).count() as u64;
        nodes * u64::from(rings.fabric().hbd.gpus_per_node())
    }

    pub(super) fn failed_nodes(&self, counts: impl Fn(usize) -> bool) -> BTreeSet<NodeId> {
        let Some(rings) = &self.substrate.rings else { return BTreeSet::new() };
        let active = (0..self.faults.len()).filter(|fault| self.active[*fault] && counts(*fault));
        let parts = active.flat_map(|fault| self.events[fault].planned());
        let faults =
            FaultSet::of(rings.fabric(), parts).expect("the faults of a run belong to its fabric");
        faults.failed_nodes(&rings.fabric().hbd)
    }

    fn note_service(&mut self, fault: usize, links: &[LinkId]) {
        if self.substrate.rings.is_some() {
            return;
        }
        let ends = links.iter().map(|link| self.substrate.network.link(*link).to);
        let mut hosts: Vec<_> =
            ends.filter_map(|end| Some((end, self.substrate.place_of(end)? as usize))).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let now = self.engine.now();
        for (host, place) in hosts {
            let cables = self.substrate.network.outgoing(host);
            let is_out = cables.iter().all(|cable| self.is_faulted(*cable));
            match (self.out_since[place], is_out) {
                (None, true) => {
                    self.out_since[place] = Some(now);
                    if self.faults[fault].hosts_lost.insert(host) {
                        self.faults[fault].gpus_lost += 1;
                    }
                }
                (Some(since), false) => {
                    self.out_since[place] = None;
                    self.out_of_service.push((since, now));
                }
                _ => {}
            }
        }
    }
}
