//! What breaks during a phase: circuits go dark, hosts become slow, and come back.

use std::collections::BTreeSet;

use lightloom_engine::LinkChange;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, SimTime};

use super::{FaultTold, Story, Timer};
use crate::phases::network::Lane;
use crate::phases::switches::ends;
use crate::phases::{FaultKind, PhaseRunError};

impl Story<'_> {
    pub(super) fn set_faults(&mut self, step: usize, start: SimTime) {
        for (index, fault) in self.faults.iter().enumerate() {
            if fault.step as usize == step && fault.phase == self.phase {
                self.set_timer(start + self.run.shorter(fault.after), Timer::Strike(index));
            }
        }
    }

    pub(super) fn strike(&mut self, index: usize, at: SimTime) -> Result<(), PhaseRunError> {
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

    pub(super) fn repair(&mut self, index: usize, at: SimTime) -> Result<(), PhaseRunError> {
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

    pub(super) fn test_again(&mut self, token: usize, at: SimTime) -> Result<(), PhaseRunError> {
        let circuits = self.training_again.remove(&token).unwrap_or_default();
        let passed = self.switches.qualify(&circuits);
        self.set_links(passed.iter(), at, LinkChange::Up);
        for port in passed.iter().flat_map(ends) {
            self.end_dark(port, at);
        }
        self.divide()
    }

    /// A circuit that should be up is not: the fault at one of its ports felt it.
    pub(super) fn blame(&mut self, circuit: &CrossConnect) {
        let open = |told: &FaultTold| told.at.is_some() && told.repaired.is_none();
        for (fault, told) in self.faults.iter().zip(&mut self.told.faults) {
            if open(told) && fault.kind.touches(circuit) {
                told.circuits.insert(*circuit);
                told.leaves.extend([circuit.a, circuit.b]);
            }
        }
    }

    fn set_interface(&mut self, leaf: LeafId, at: SimTime, change: LinkChange) {
        for link in self.installed.interface(leaf) {
            self.engine.change_link(at, link, change);
        }
    }
}
