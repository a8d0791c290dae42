//! The plan document: which path every transceiver takes, which ring every group forms and which
//! rank sits where. Written by the planner, read by the daemon, the emulator and the report.

use lightloom_units::id::{BundleId, GpuId, GroupId, NodeId};
use lightloom_units::seed::Seed;
use lightloom_units::{Dollars, Watts};
use serde::{Deserialize, Serialize};

use crate::fault::Part;
use crate::khop::{Path, Port};

/// The version of the document this crate reads and writes.
pub const SCHEMA: &str = "lightloom.plan/v1";

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
    /// Time spent planning, on the machine that planned.
    pub plan_seconds: f64,
}
