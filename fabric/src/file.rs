// SPDX-License-Identifier: Apache-2.0
//! The fabric file: what people write to describe a cluster, and how it becomes a [`Fabric`].
//!
//! ```text
//! fabric.yaml ─▶ FabricFile (raw twin, file::raw) ─▶ lowering and its checks (file::lower) ─▶ Fabric
//! ```
//!
//! Two forms describe the cabling. The generator form counts (`nodes: 720`), the explicit form lists
//! `nodes:` and `links:`, where a link that is not listed is a fibre that was never installed.
//!
//! ```
//! let text = b"kind: fabric\nversion: 2\nname: ring-demo\nhbd: {khop: {nodes: 720, gpus_per_node: 4, k: 3}}\n";
//! let (fabric, mistakes) = lightloom_fabric::file::load("fabric.yaml", text);
//! assert_eq!(fabric.expect("the file is good").hbd.gpus(), 2880);
//! assert!(mistakes.is_empty());
//! ```

pub mod codes;
mod convert;
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

pub use convert::{ConvertError, convert};
pub use direct::{DragonflyFile, GraphFile, LeafLinkFile, LeafTorusFile};
pub use network::*;
pub use optics::{HopFile, OpticsFile};
pub use raw::{
    DcnFile, DeploymentFile, Endpoint, FabricFile, FatTreeFile, HbdFile, IslandsFile, JobFile,
    JobSizeFile, KhopFile, KindFile, LeafSpineFile, LinkFile, NodeFile, NodesFile, PartFile,
    PartsFile, RailsFile, TransceiverFile,
};
pub use step::{
    AllReduceFile, DemandFile, MappingFile, PhaseFile, PlanningFile, RlFile, SearchFile, SeedFile,
    ShapeFile, SlackFile, StepFile, SyncMethod, WeightSyncFile,
};
pub use workload::*;

use crate::document::{self, Check, Diagnostic};
use crate::fabric::Fabric;
use crate::provenance;

/// As [`load_with`], of version 1 too: for converting a file, and for a daemon whose plan in force names it.
pub fn load_any_version(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    also: impl FnOnce(&mut Fabric, &mut Check<'_>),
) -> (Option<Fabric>, Vec<Diagnostic>) {
    load_after(file, bytes, read, |_, _| (), also)
}

/// Reads a fabric file that names no other files: the fabric, or every mistake in it.
///
/// `file` is what the user calls it, for messages.
#[must_use]
pub fn load(file: &str, bytes: &[u8]) -> (Option<Fabric>, Vec<Diagnostic>) {
    load_with(file, bytes, &mut |name| Err(format!("cannot read {name} from here")), |_, _| ())
}

/// Reads a fabric file: the fabric, or every mistake in it, those that `also` reports included, which may complete what the file
/// leaves to be found. `read` gives the text of the files it names.
pub fn load_with(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    also: impl FnOnce(&mut Fabric, &mut Check<'_>),
) -> (Option<Fabric>, Vec<Diagnostic>) {
    load_after(file, bytes, read, |raw, check| lower::require_version(file, raw, check), also)
}

/// Reads a fabric file once `before` has looked at it as it is written.
fn load_after(
    file: &str,
    bytes: &[u8],
    read: &mut dyn FnMut(&str) -> Result<String, String>,
    before: impl FnOnce(&FabricFile, &mut Check<'_>),
    also: impl FnOnce(&mut Fabric, &mut Check<'_>),
) -> (Option<Fabric>, Vec<Diagnostic>) {
    document::load(file, bytes, |raw: FabricFile, check| {
        before(&raw, check);
        let mut fabric = lower::lower(raw, provenance::sha256(bytes), read, check)?;
        also(&mut fabric, check);
        Some(fabric)
    })
}
