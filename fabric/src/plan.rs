//! The plan document: which path every transceiver takes, which ring every group forms and which
//! rank sits where. Written by the planner, read by the daemon, the emulator and the report.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use crate::fault::Part;
use crate::khop::{Path, Port};
use crate::provenance::{Inputs, VERSION};
use crate::{canonical, file};
use lightloom_units::id::{BundleId, GpuId, GroupId, NodeId};
use lightloom_units::seed::Seed;
use lightloom_units::{Dollars, Watts};

/// The version of the document this crate reads and writes.
pub const SCHEMA: &str = "lightloom.plan/v1";

/// What a plan document says of how it was made, which is not part of its identity.
const NOT_IDENTITY: &[&[&str]] =
    &[&["digest"], &["inputs"], &["metrics", "plan_seconds"], &["sensitivity"], &["version"]];

/// The identity of a plan: SHA-256, in hex, of its canonical JSON (docs/plan-file.md) without how it was made.
///
/// The same for a plan in memory, its file in any spelling, and the document that a client sends.
#[must_use]
pub fn digest(plan: &impl Serialize) -> String {
    // Only objects with keys that are no strings cannot be written, and no plan has one.
    file::sha256(&canonical::bytes(plan, NOT_IDENTITY).unwrap_or_default())
}

/// Whether these are the bytes of a plan of any version.
#[must_use]
pub fn is_plan(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Marked {
        schema: String,
    }
    serde_json::from_slice::<Marked>(bytes)
        .is_ok_and(|marked| marked.schema.starts_with("lightloom.plan/"))
}

/// A plan, as `lightloom plan` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the program that wrote it; empty where none did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its [identity](digest), once it is written; empty before, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// The files it was made from.
    #[serde(default, skip_serializing_if = "Inputs::is_empty")]
    pub inputs: Inputs,
    /// SHA-256 of the fabric file it is for.
    pub fabric_sha256: String,
    /// Seed of the draws that went into it.
    pub seed: Seed,
    /// What was broken when it was made: nodes, bundles and fibres.
    pub faults: Vec<Part>,
    /// What was asked for and what each job got, in order of placement.
    pub jobs: Vec<JobPlan>,
    /// Every ring: those of jobs first, in rank order, then the spares.
    pub groups: Vec<Group>,
    /// The path of every working bundle of every working node.
    pub transceivers: Vec<Transceiver>,
    /// The fibres that carry light.
    pub circuits: Vec<Circuit>,
    /// Which GPU is which rank of its group.
    pub ranks: Vec<Rank>,
    /// What the plan is worth.
    pub metrics: Metrics,
}

impl Plan {
    /// The plan as it is written: with the files it was made from, the version and its digest.
    #[must_use]
    pub fn sealed(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        VERSION.clone_into(&mut self.version);
        self.digest = digest(&self);
        self
    }

    /// Whether it is what it was when its digest was written; where none was, nobody can tell.
    #[must_use]
    pub fn is_as_written(&self) -> bool {
        self.digest.is_empty() || self.digest == digest(self)
    }
}

/// What one job got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// GPUs of one group.
    pub tp: u32,
    /// GPUs it asked for; nothing where it asked for all.
    pub gpus_wanted: Option<u64>,
    /// GPUs it got.
    pub gpus: u64,
    /// Placement constraints that were kept, of `constraints_total`.
    pub constraints_kept: u32,
    /// Placement constraints in all: step and alignment for every ToR, a border for every domain.
    pub constraints_total: u32,
    /// Share of its inner data-parallel hops that cross ToRs (docs/metrics.md).
    pub cross_tor_share: f64,
    /// The same for the greedy placement of the same job.
    pub cross_tor_share_greedy: f64,
}

/// One ring of GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub id: GroupId,
    /// Index into `jobs` of the job it works for; nothing for a spare ring.
    pub job: Option<u32>,
    /// Its nodes in line order.
    pub nodes: Vec<NodeId>,
    /// Its GPUs in ring order.
    pub ring: Vec<GpuId>,
}

/// The path one bundle takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transceiver {
    /// The bundle.
    pub bundle: BundleId,
    /// Its path.
    pub path: Path,
}

/// One lit fibre.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circuit {
    /// Its lower end.
    pub a: Port,
    /// Its upper end.
    pub b: Port,
}

/// Where one rank sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rank {
    /// The GPU.
    pub gpu: GpuId,
    /// Its group.
    pub group: GroupId,
    /// Its rank within the group, from 0.
    pub rank: u32,
}

/// What a plan is worth. Every metric is defined in docs/metrics.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// All GPUs installed.
    pub gpus_total: u64,
    /// GPUs of faulty nodes.
    pub gpus_faulty: u64,
    /// GPUs in rings that work for a job.
    pub gpus_used: u64,
    /// GPUs in complete rings that no job wants.
    pub gpus_spare: u64,
    /// Healthy GPUs in no complete ring.
    pub gpus_wasted: u64,
    /// `gpus_wasted / gpus_total`.
    pub waste_ratio: f64,
    /// What even an ideal switch over all GPUs would waste.
    pub waste_ratio_lower_bound: f64,
    /// Share of inner data-parallel hops that cross ToRs, over all jobs.
    pub cross_tor_share: f64,
    /// Interconnect cost of one GPU.
    pub cost_per_gpu_usd: Dollars,
    /// Interconnect power of one GPU.
    pub power_per_gpu_w: Watts,
    /// Read and dropped: files of earlier versions note here how long planning took.
    #[serde(default, skip_serializing, deserialize_with = "dropped")]
    pub plan_seconds: (),
}

fn dropped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer).map(drop)
}

#[cfg(test)]
mod tests;
