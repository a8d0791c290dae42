// SPDX-License-Identifier: Apache-2.0
//! The plan of a reconfigurable fat-tree, prepared for export as leaves and as circuits by phase.

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_units::id::{LeafId, OcsId};

use super::{ExportError, ExportNames};

#[derive(Clone, Copy, Debug)]
pub struct FatTreePlan<'a> {
    pub name: &'a str,
    pub network: &'a ReconfigurableFatTree,
    /// The plan must be valid for this network.
    pub plan: &'a Plan,
    pub names: &'a ExportNames,
    phase: Option<&'a PhasePlan>,
}

impl<'a> FatTreePlan<'a> {
    /// If `phase` is set, only this phase is exported. The phase must exist.
    pub fn new(
        name: &'a str,
        network: &'a ReconfigurableFatTree,
        plan: &'a Plan,
        names: &'a ExportNames,
        phase: Option<&str>,
    ) -> Result<Self, ExportError> {
        let phase = phase.map(|name| {
            plan.phases.iter().find(|phase| phase.name == name).ok_or_else(|| {
                let known: Vec<&str> =
                    plan.phases.iter().map(|phase| phase.name.as_str()).collect();
                ExportError::NoSuchPhase { name: name.to_owned(), known: known.join(", ") }
            })
        });
        let phase = phase.transpose()?;
        Ok(Self { name, network, plan, names, phase })
    }

    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        (0..self.network.spec().leaves).map(LeafId)
    }

    pub fn switches(&self) -> impl Iterator<Item = OcsId> + use<> {
        (0..self.network.switches()).map(OcsId::from_index)
    }

    pub fn leaf_name(&self, leaf: LeafId) -> &'a str {
        self.names.of(leaf.index())
    }

    pub fn phases(&self) -> Vec<&'a PhasePlan> {
        match self.phase {
            Some(phase) => vec![phase],
            None => self.plan.phases.iter().collect(),
        }
    }

    pub fn one_phase(&self) -> &'a PhasePlan {
        self.phase.or(self.plan.phases.first()).expect("a valid plan contains a phase")
    }

    /// Circuits of other jobs, which all phases share and which must not be switched.
    pub fn held(&self) -> impl Iterator<Item = &'a CrossConnect> {
        self.network.spec().held_for_others()
    }

    pub(super) fn lost_beside_one_phase(&self) -> Vec<String> {
        let kept = self.one_phase();
        let others: Vec<&str> = self.plan.phases.iter().map(|phase| phase.name.as_str()).collect();
        let others: Vec<&str> = others.into_iter().filter(|name| *name != kept.name).collect();
        if others.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "the circuits of {} and the stages between phases: the format describes one state, here phase {}",
            others.join(", "),
            kept.name
        )]
    }
}
