// SPDX-License-Identifier: Apache-2.0
//! The documents that `compare`, `cost` and `reproduce` print with `--format json`.

use lightloom_fabric::provenance::Provenance;
use serde::Serialize;

use crate::compare::{FabricFigures, NodeFaultRatio, Row};
use crate::cost::{Aggregate, CostRow, Purchase};
use crate::reproduce::{Claim, Sentence, Why};

pub const COMPARE_SCHEMA: &str = "lightloom.compare/v1";
pub const COST_SCHEMA: &str = "lightloom.cost/v1";
pub const REPRODUCE_SCHEMA: &str = "lightloom.reproduce/v1";

#[derive(Clone, Debug, Serialize)]
pub struct CompareResult {
    #[serde(flatten)]
    pub made: Provenance,
    pub gpus: u32,
    pub gpus_per_node: u32,
    pub faults: String,
    pub seed: u64,
    pub samples: u64,
    pub node_fault_ratio: NodeFaultRatio,
    pub rows: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FabricCostResult {
    #[serde(flatten)]
    pub made: Provenance,
    pub name: String,
    pub gpus: u64,
    #[serde(flatten)]
    pub bill: Purchase,
}

#[derive(Clone, Debug, Serialize)]
pub struct CostResult {
    #[serde(flatten)]
    pub made: Provenance,
    /// Name of the price file. `shipped` for the file that is shipped with lightloom.
    pub prices: String,
    pub gpus: u32,
    pub gpus_per_node: u32,
    pub tp: u32,
    pub faults: String,
    pub seed: u64,
    pub samples: u64,
    pub rows: Vec<CostRow>,
    pub usable: Vec<UsableCost>,
    pub gpu_usd: Option<f64>,
    pub aggregate: Vec<Aggregate>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsableCost {
    pub arch: String,
    pub waste_mean: f64,
    pub usable_mean_gpus: f64,
    pub cost_per_usable_gpu_usd: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReproduceResult {
    #[serde(flatten)]
    pub made: Provenance,
    pub study: String,
    pub seed: u64,
    pub samples: u64,
    pub sentences: Vec<Sentence>,
    pub claims: Vec<Claim>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<Why>,
}
