// SPDX-License-Identifier: Apache-2.0
//! Exports plans in the formats of schedulers, simulators, switches and graph tools.
//!
//! ```text
//! fabric + plan + names ─▶ RingPlan or FatTreePlan ─▶ a Format ─▶ files, and a list of what they omit
//! ```
//!
//! A new format needs a file in this folder that defines an [`ExportFormat`], and a line in [`FORMATS`]. Output is
//! reproducible byte for byte. Each export lists the information that its format cannot represent.

mod astra_sim;
mod containerlab;
mod dot;
mod fat_tree_plan;
mod infragraph;
mod kubernetes;
mod kueue;
mod names;
mod ranks;
mod ring_plan;
mod slurm;
mod sonic_ocs;
mod topograph;
mod write;

pub use fat_tree_plan::FatTreePlan;
pub use kubernetes::node_labels;
pub use names::{ExportNames, NameError};
pub use ring_plan::{RingPlan, Seat};

pub const FORMATS: &[ExportFormat] = &[
    slurm::BLOCK,
    slurm::RING,
    slurm::TREE,
    topograph::MODEL,
    topograph::GRAPH,
    kubernetes::FORMAT,
    kueue::FORMAT,
    dot::FORMAT,
    containerlab::FORMAT,
    infragraph::FORMAT,
    astra_sim::FORMAT,
    ranks::FORMAT,
    sonic_ocs::FORMAT,
    sonic_ocs::COMMANDS,
];

/// An exporter for plans without optical switches, or the reason why none exists.
pub type RingWriter = Result<fn(&RingPlan<'_>) -> Result<Export, ExportError>, &'static str>;

pub type FatTreeWriter = Result<fn(&FatTreePlan<'_>) -> Result<Export, ExportError>, &'static str>;

#[derive(Clone, Copy, Debug)]
pub struct ExportFormat {
    pub name: &'static str,
    pub about: &'static str,
    pub ring: RingWriter,
    pub fat_tree: FatTreeWriter,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    pub files: Vec<ExportedFile>,
    pub lost: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    pub name: String,
    pub text: String,
}

impl Export {
    fn one(name: impl Into<String>, text: String, lost: Vec<String>) -> Self {
        Self { files: vec![ExportedFile { name: name.into(), text }], lost }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    #[error("`{format}` cannot represent {plan}: {why}; use one of: {works}")]
    WrongKind { format: &'static str, plan: &'static str, why: &'static str, works: String },
    #[error("unknown job `{name}`; the plan contains {known}")]
    NoSuchJob { name: String, known: String },
    #[error("unknown phase `{name}`; the plan contains {known}")]
    NoSuchPhase { name: String, known: String },
    #[error("`{format}` describes rings, but this plan has none that it can describe")]
    NoRing { format: &'static str },
}

impl ExportFormat {
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    pub fn of_ring(&self, plan: &RingPlan<'_>) -> Result<Export, ExportError> {
        let write = self.ring.map_err(|why| {
            self.wrong_kind("a plan without optical switches", why, |format| format.ring.is_ok())
        })?;
        let mut export = write(plan)?;
        export.lost.extend(plan.lost_phases(self.fat_tree.is_ok()));
        Ok(export)
    }

    pub fn of_fat_tree(&self, plan: &FatTreePlan<'_>) -> Result<Export, ExportError> {
        let write = self.fat_tree.map_err(|why| {
            self.wrong_kind("the plan of a reconfigurable fat-tree", why, |format| {
                format.fat_tree.is_ok()
            })
        })?;
        write(plan)
    }

    fn wrong_kind(
        &self,
        plan: &'static str,
        why: &'static str,
        can: fn(&Self) -> bool,
    ) -> ExportError {
        let works: Vec<&str> =
            FORMATS.iter().filter(|format| can(format)).map(|format| format.name).collect();
        ExportError::WrongKind { format: self.name, plan, why, works: works.join(", ") }
    }
}
