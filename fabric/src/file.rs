// SPDX-License-Identifier: Apache-2.0
//! The fabric file, which describes a user's cluster, and its conversion to a [`Fabric`].
//!
//! ```text
//! fabric.yaml ─▶ FabricFile (raw twin, file::raw) ─▶ lowering and its checks (file::lower) ─▶ Fabric
//! ```
//!
//! The cabling is either generated from counts (`nodes: 720`) or listed explicitly in `nodes:` and
//! `links:`; fibres that are not listed are not installed.
//!
//! ```
//! let text = b"kind: fabric\nversion: 2\nname: ring-demo\nhbd: {khop: {nodes: 720, gpus_per_node: 4, k: 3}}\n";
//! let (fabric, mistakes) = lightloom_fabric::file::load("fabric.yaml", text);
//! assert_eq!(fabric.expect("the file is good").hbd.gpus(), 2880);
//! assert!(mistakes.is_empty());
//! ```

pub mod codes;
mod direct;
mod explicit;
mod idle;
mod jobs;
mod lower;
mod network;
mod optics;
mod raw;
pub mod step;
mod workload;

pub use direct::{DragonflyFile, GraphFile, LeafLinkFile, LeafTorusFile};
pub use network::*;
pub use optics::{HopFile, OpticsFile};
pub use raw::{
    DcnFile, DeploymentFile, Endpoint, FabricFile, HbdFile, IslandsFile, JobFile, KhopFile,
    KindFile, LeafSpineFile, LinkFile, NodeFile, NodesFile, StartFile, TransceiverFile,
};
pub use step::{
    AllReduceFile, DemandFile, LeavesFile, MappingFile, PhaseFile, PlanningFile, RlFile,
    SearchFile, SeedFile, ShapeFile, SlackFile, StepFile, SyncMethod, TransferFile, WeightSyncFile,
};
pub use workload::*;

use crate::document::{self, Check, Diagnostic};
use crate::fabric::Fabric;
use crate::provenance;

/// Reads a fabric file that needs no other file. Returns the fabric or all errors. `file` is only a name for messages.
pub fn load(file: &str, bytes: &[u8]) -> (Option<Fabric>, Vec<Diagnostic>) {
    load_with(file, bytes, &mut |name| Err(format!("cannot read {name} from here")), |_, _| ())
}

/// Reads a fabric file. Returns the fabric or all errors, including those from `also`, which may
/// fill in values that the file leaves to a search. `read` returns the contents of other files.
pub fn load_with(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    also: impl FnOnce(&mut Fabric, &mut Check<'_>),
) -> (Option<Fabric>, Vec<Diagnostic>) {
    document::load(file, bytes, |raw: FabricFile, check| {
        lower::require_version(&raw, check);
        let mut fabric = lower::lower(raw, provenance::sha256(bytes), read, check)?;
        also(&mut fabric, check);
        Some(fabric)
    })
}
