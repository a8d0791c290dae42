// SPDX-License-Identifier: Apache-2.0
//! The change from the plan in force to its successor, in the stages of `lightloom replan`.
//!
//! All modules move in the first stage. Then come circuits that lost a port to a fault and carry no
//! light, one switch at a time. The planner's stages of the other circuits are last. The checker
//! proves them from the circuits that are lit now, so a change that stopped can continue.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{PhasePlan, Plan, Stage};
use lightloom_planner::{check, joint};
use lightloom_units::id::OcsId;

use super::circuits::{self, Switches};
use crate::change::Way;
use crate::state::{DeviceName, Position, Positions, Slot, SwitchState, at};

pub(crate) struct PlanSuccessor<'a> {
    pub(crate) fabric: &'a Fabric,
    pub(crate) switches: &'a Switches,
    pub(crate) before: &'a Plan,
    pub(crate) next: &'a Plan,
}

/// Returns `plan` with only the phase `to`, which has these circuits.
fn in_one_phase(plan: &Plan, to: &PhasePlan, circuits: &[CrossConnect]) -> Plan {
    let phase = PhasePlan { circuits: circuits.to_vec(), ..to.clone() };
    Plan { phases: vec![phase], ..plan.clone() }
}

impl<'a> PlanSuccessor<'a> {
    /// Returns the moves of each stage to `target`, with phase `to` on the switches, and where they
    /// start. `None` if no circuit of the two plans is lit, or if the stages cannot be proven.
    pub(crate) fn way(
        &self,
        to: &PhasePlan,
        target: &SwitchState,
        read: impl Fn(&DeviceName) -> Option<&'a Positions>,
    ) -> Option<(String, Way)> {
        let phases = self.before.phases.iter().chain(&self.next.phases);
        let known: BTreeSet<CrossConnect> =
            phases.flat_map(|phase| phase.circuits.iter().copied()).collect();
        let stands = known.into_iter().filter(|circuit| {
            let Some((device, ports)) = self.switches.get(&circuit.ocs) else { return false };
            let mut ways = ports.ways(circuit).into_iter();
            read(device).is_some_and(|read| {
                ways.all(|way| at(read, Slot(way.input)) == Position(way.output))
            })
        });
        let lit: Vec<CrossConnect> = stands.collect();
        if lit.is_empty() {
            return None;
        }
        let mut stand = circuits::positions(self.switches, &lit);
        let mut modules = target.clone();
        for (switch, _) in self.switches.values() {
            modules.remove(switch);
        }
        let devices = modules.keys();
        stand.extend(devices.filter_map(|device| Some((device.clone(), read(device)?.clone()))));
        let of_circuits = self.stages(to, &lit)?.into_iter().map(|stage| {
            let mut ends = circuits::ends(self.switches, &stage);
            ends.retain(|device, _| target.contains_key(device));
            ends
        });
        let way = circuits::way(stand, std::iter::once(modules).chain(of_circuits));
        Some(("the lit circuits".to_owned(), way))
    }

    fn stages(&self, to: &PhasePlan, lit: &[CrossConnect]) -> Option<Vec<Stage>> {
        let wanted: BTreeSet<&CrossConnect> = to.circuits.iter().collect();
        if wanted == lit.iter().collect() {
            return Some(Vec::new());
        }
        let fabric = self.fabric;
        let before = in_one_phase(self.before, to, lit);
        let next = in_one_phase(self.next, to, &to.circuits);
        let faults = FaultSet::of(fabric, next.faults.iter().copied()).ok()?;
        let stages = joint::stages(fabric, &faults, &before, &next).ok()?;
        check::check_stages(fabric, &faults, &before, &next, &stages).ok()?;
        let planned: Vec<Stage> = stages.into_iter().map(|stage| stage.circuits).collect();
        let removed: BTreeSet<&CrossConnect> = planned.iter().flat_map(|one| &one.remove).collect();
        let mut dead: BTreeMap<OcsId, Stage> = BTreeMap::new();
        for circuit in lit.iter().filter(|one| !wanted.contains(one) && !removed.contains(one)) {
            dead.entry(circuit.ocs).or_default().remove.push(*circuit);
        }
        Some(dead.into_values().chain(planned).collect())
    }
}
