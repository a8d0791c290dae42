// SPDX-License-Identifier: Apache-2.0
//! The plan of a reconfigurable fat-tree as exports see it: leaves, and circuits phase by phase.

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_fabric::plan::{PhasePlan, Plan};
use lightloom_units::id::{LeafId, OcsId};

use super::{ExportError, ExportNames};

/// A plan, the network it is for, and the names of its leaves.
#[derive(Clone, Copy, Debug)]
pub struct FatTreePlan<'a> {
    /// Its name in reports.
    pub name: &'a str,
    /// The network.
    pub network: &'a ReconfigurableFatTree,
    /// The plan, which is sound for this network.
    pub plan: &'a Plan,
    /// The names of the leaves.
    pub names: &'a ExportNames,
    phase: Option<&'a PhasePlan>,
}

impl<'a> FatTreePlan<'a> {
    /// A plan that is sound for `network`; `phase` is the only one to describe, or nothing for all.
    ///
    /// # Errors
    /// If the plan has no such phase.
    pub fn new(
        name: &'a str,
        network: &'a ReconfigurableFatTree,
        plan: &'a Plan,
        names: &'a ExportNames,
        phase: Option<&str>,
    ) -> Result<Self, ExportError> {
        let find = |name: &str| {
            plan.phases.iter().find(|phase| phase.name == name).ok_or_else(|| {
                let known: Vec<&str> =
                    plan.phases.iter().map(|phase| phase.name.as_str()).collect();
                ExportError::NoSuchPhase { name: name.to_owned(), known: known.join(", ") }
            })
        };
        let phase = phase.map(find).transpose()?;
        Ok(Self { name, network, plan, names, phase })
    }

    /// Every leaf, by number.
    pub fn leaves(&self) -> impl Iterator<Item = LeafId> + use<> {
        (0..self.network.spec().leaves).map(LeafId)
    }

    /// Every optical switch, by number.
    pub fn switches(&self) -> impl Iterator<Item = OcsId> + use<> {
        (0..self.network.switches()).map(OcsId::from_index)
    }

    /// The name of a leaf.
    ///
    /// # Panics
    /// If there is no such leaf.
    #[must_use]
    pub fn leaf_name(&self, leaf: LeafId) -> &'a str {
        self.names.of(leaf.index())
    }

    /// The phases to describe where a format holds several.
    #[must_use]
    pub fn phases(&self) -> Vec<&'a PhasePlan> {
        match self.phase {
            Some(phase) => vec![phase],
            None => self.plan.phases.iter().collect(),
        }
    }

    /// The phase to describe where a format holds one: the one asked for, else the first.
    ///
    /// # Panics
    /// If the plan has no phase: the planner makes none of that kind.
    #[must_use]
    pub fn one_phase(&self) -> &'a PhasePlan {
        self.phase.or(self.plan.phases.first()).expect("a sound plan has a phase")
    }

    /// The circuits that all phases have and that are not ours to move.
    #[must_use]
    pub fn held(&self) -> &'a [CrossConnect] {
        &self.network.spec().held
    }

    /// What a format loses that holds one phase.
    pub(super) fn lost_beside_one_phase(&self) -> Vec<String> {
        let kept = self.one_phase();
        let others: Vec<&str> = self.plan.phases.iter().map(|phase| phase.name.as_str()).collect();
        let others: Vec<&str> = others.into_iter().filter(|name| *name != kept.name).collect();
        if others.is_empty() {
            return Vec::new();
        }
        vec![format!(
            "the circuits of {} and the stages between phases: it holds one state, here phase {}",
            others.join(", "),
            kept.name
        )]
    }
}
