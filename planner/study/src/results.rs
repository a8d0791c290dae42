// SPDX-License-Identifier: Apache-2.0
//! The documents that `compare`, `cost` and `reproduce` print with `--format json`.

use lightloom_fabric::provenance::Provenance;
use serde::Serialize;

use crate::compare::{CrossTorPoint, FabricFigures, NodeFaultRatio, Row};
use crate::cost::{Aggregate, CostRow, Sensitivity};
use crate::reproduce::{Claim, Sentence, Why};

/// The version of a [`CompareResult`].
pub const COMPARE_SCHEMA: &str = "lightloom.compare/v1";
/// The version of a [`CostResult`].
pub const COST_SCHEMA: &str = "lightloom.cost/v1";
/// The version of a [`ReproduceResult`].
pub const REPRODUCE_SCHEMA: &str = "lightloom.reproduce/v1";

/// Which design wastes how many GPUs, and how large a job it carries.
#[derive(Clone, Debug, Serialize)]
pub struct CompareResult {
    /// Schema, version, inputs.
    #[serde(flatten)]
    pub made: Provenance,
    /// GPUs of the cluster.
    pub gpus: u32,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// What the faults are, as they were asked for.
    pub faults: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Histories replayed.
    pub samples: u64,
    /// Nodes out of service over all samples.
    pub node_fault_ratio: NodeFaultRatio,
    /// A row for each design and group size.
    pub rows: Vec<Row>,
    /// What the planner makes of the fabric file. `None` if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricFigures>,
    /// Traffic that leaves its ToR, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cross_tor: Vec<CrossTorResult>,
}

/// How much traffic leaves its ToR in one design.
#[derive(Clone, Debug, Serialize)]
pub struct CrossTorResult {
    /// The design.
    pub arch: String,
    /// GPUs of a group.
    pub tp: u32,
    /// Nodes under a ToR.
    pub nodes_per_tor: u32,
    /// The job's share of all GPUs.
    pub job_share: f64,
    /// Up to this share of faulty nodes nothing needs to cross, fragmentation not counted.
    pub aligned_limit: f64,
    /// Shares against the fault ratio.
    pub points: Vec<CrossTorPoint>,
}

/// What interconnects cost and draw, and how sure that is.
#[derive(Clone, Debug, Serialize)]
pub struct CostResult {
    /// Schema, version, inputs.
    #[serde(flatten)]
    pub made: Provenance,
    /// The price file; `shipped` for the one that comes with lightloom.
    pub prices: String,
    /// GPUs of the cluster.
    pub gpus: u32,
    /// GPUs of a node.
    pub gpus_per_node: u32,
    /// GPUs of a group.
    pub tp: u32,
    /// What the faults are, as they were asked for.
    pub faults: String,
    /// Seed of all draws.
    pub seed: u64,
    /// Histories replayed.
    pub samples: u64,
    /// A row for each design.
    pub rows: Vec<CostRow>,
    /// What a GPU costs once wasted ones are taken off.
    pub usable: Vec<UsableCost>,
    /// Price of a GPU that the aggregate cost takes.
    pub gpu_usd: Option<f64>,
    /// Interconnect and lost GPUs against the fault ratio.
    pub aggregate: Vec<Aggregate>,
    /// What each price does to the order.
    pub sensitivity: Vec<Sensitivity>,
}

/// What a design costs once the GPUs that are faulty or wasted are taken off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsableCost {
    /// The design.
    pub arch: String,
    /// Its mean waste ratio.
    pub waste_mean: f64,
    /// Mean of the GPUs that are neither faulty nor wasted.
    pub usable_mean_gpus: f64,
    /// Interconnect cost of a GPU that can be used.
    pub cost_per_usable_gpu_usd: f64,
}

/// Published claims beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct ReproduceResult {
    /// Schema, version, inputs.
    #[serde(flatten)]
    pub made: Provenance,
    /// The study whose claims they are.
    pub study: &'static str,
    /// Seed of all draws.
    pub seed: u64,
    /// Random draws of servers and their places.
    pub samples: u64,
    /// Each published sentence once.
    pub sentences: Vec<Sentence>,
    /// Claim by claim.
    pub claims: Vec<Claim>,
    /// Why figures are not the published ones, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<Why>,
}
