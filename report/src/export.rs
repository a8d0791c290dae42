// SPDX-License-Identifier: Apache-2.0
//! A plan in the formats that schedulers, simulators, switches and graph tools read.
//!
//! ```text
//! fabric + plan + names ─▶ RingPlan or FatTreePlan ─▶ a Format ─▶ files, and what they do not hold
//! ```
//!
//! To add a format: a file in this folder that makes an [`ExportFormat`], and its line in [`FORMATS`].
//! What is written is the same byte for byte for the same plan. What a format cannot hold it says,
//! so that a lossy picture is not taken for the plan.

mod astra_sim;
mod containerlab;
mod dot;
mod fat_tree_plan;
mod graphml;
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

/// Every format, in the order in which they are listed.
pub const FORMATS: &[ExportFormat] = &[
    slurm::BLOCK,
    slurm::RING,
    slurm::TREE,
    topograph::MODEL,
    topograph::GRAPH,
    kubernetes::FORMAT,
    kueue::FORMAT,
    graphml::FORMAT,
    dot::FORMAT,
    containerlab::FORMAT,
    infragraph::FORMAT,
    astra_sim::FORMAT,
    ranks::FORMAT,
    sonic_ocs::FORMAT,
    sonic_ocs::COMMANDS,
];

/// How the plan of a k-hop ring is written, or why it cannot be.
pub type RingWriter = Result<fn(&RingPlan<'_>) -> Result<Export, ExportError>, &'static str>;

/// How the plan of a reconfigurable fat-tree is written, or why it cannot be.
pub type FatTreeWriter = Result<fn(&FatTreePlan<'_>) -> Result<Export, ExportError>, &'static str>;

/// A format and who reads it.
#[derive(Clone, Copy, Debug)]
pub struct ExportFormat {
    /// What users call it.
    pub name: &'static str,
    /// What it is and who reads it, in one line.
    pub about: &'static str,
    /// The plan of a k-hop ring.
    pub ring: RingWriter,
    /// The plan of a reconfigurable fat-tree.
    pub fat_tree: FatTreeWriter,
}

/// What a format made of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// The files, usually one.
    pub files: Vec<ExportedFile>,
    /// What of the plan the format does not hold, one sentence each.
    pub lost: Vec<String>,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedFile {
    /// Its name in a folder.
    pub name: String,
    /// What is in it.
    pub text: String,
}

impl Export {
    /// An export of one file.
    fn one(name: impl Into<String>, text: String, lost: Vec<String>) -> Self {
        Self { files: vec![ExportedFile { name: name.into(), text }], lost }
    }
}

/// Why there is no export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The format cannot hold a plan of this kind.
    #[error("`{format}` cannot hold {plan}: {why}; these can: {works}")]
    WrongKind {
        /// The format.
        format: &'static str,
        /// The kind of plan.
        plan: &'static str,
        /// Why not.
        why: &'static str,
        /// The formats that can.
        works: String,
    },
    /// A job that the plan does not have.
    #[error("the plan has no job `{name}`; it has {known}")]
    NoSuchJob {
        /// As asked for.
        name: String,
        /// The jobs it has.
        known: String,
    },
    /// A phase that the plan does not have.
    #[error("the plan has no phase `{name}`; it has {known}")]
    NoSuchPhase {
        /// As asked for.
        name: String,
        /// The phases it has.
        known: String,
    },
    /// A format of rings, and a plan without.
    #[error("`{format}` describes rings, and this plan has none that it could")]
    NoRing {
        /// The format.
        format: &'static str,
    },
}

impl ExportFormat {
    /// The format of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Writes the plan of a k-hop ring.
    ///
    /// # Errors
    /// If the format cannot hold it.
    pub fn of_ring(&self, plan: &RingPlan<'_>) -> Result<Export, ExportError> {
        let write = self.ring.map_err(|why| {
            self.wrong_kind("a plan without optical switches", why, |format| format.ring.is_ok())
        })?;
        write(plan)
    }

    /// Writes the plan of a reconfigurable fat-tree.
    ///
    /// # Errors
    /// If the format cannot hold it.
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
