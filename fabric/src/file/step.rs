// SPDX-License-Identifier: Apache-2.0
//! A job's repeated step in the fabric file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::workload::{ShardingFile, WorkloadFile};
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds, Text};

pub(super) fn one() -> u32 {
    1
}

pub(super) fn at_once() -> Text<Picoseconds> {
    Text(Picoseconds::ZERO)
}

/// The workload that a job repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StepFile {
    /// A training step of a model, mapped to the job's GPUs.
    Training(MappingFile),
    /// A training step with a mapping search. Of the mappings that the job's groups support, it
    /// uses the one with the shortest step according to `lightloom mfu --fabric`.
    Search(SearchFile),
    /// A step of disaggregated reinforcement learning.
    Rl(RlFile),
    /// Phases with one demand matrix each.
    Phases(Vec<PhaseFile>),
}

/// A step of disaggregated reinforcement learning. The trainer uses the job's first groups (or
/// leaves, if the job has no `tp`), and generation uses the following ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RlFile {
    /// A shipped model, such as qwen2.5-72b, llama-3.1-405b or deepseek-v3, or a model file
    /// relative to this file (`lightloom schema model`). Sizes assume BF16.
    pub model: String,
    /// GPUs for training.
    #[schemars(range(min = 1))]
    pub trainer_gpus: u32,
    /// GPUs for generation.
    #[schemars(range(min = 1))]
    pub generation_gpus: u32,
    /// Tensor-parallel ranks of the trainer. Must equal the job's `tp` if that is set.
    #[schemars(range(min = 1))]
    pub tp: u32,
    /// Pipeline stages of the trainer.
    #[schemars(range(min = 1))]
    pub pp: u32,
    /// Expert-parallel ranks of the trainer.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub ep: u32,
    /// Skew of expert popularity, as the sigma of a log-normal distribution.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 3.0))]
    pub expert_skew: f64,
    /// Samples per step.
    #[schemars(range(min = 1))]
    pub samples: u32,
    /// Tokens per sample.
    #[schemars(range(min = 1))]
    pub tokens_per_sample: u32,
    /// GPUs per generation replica.
    #[schemars(range(min = 1))]
    pub replica_gpus: u32,
    /// GPUs per replica for the long tail [default: `replica_gpus`, no parallelism switch].
    #[serde(default)]
    pub tail_replica_gpus: Option<u32>,
    /// Fraction of a replica's cache that migrates per step.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub migrated_share: f64,
    /// Distribution of new weights to the replicas.
    #[serde(default, skip_serializing_if = "WeightSyncFile::is_usual")]
    pub weight_sync: WeightSyncFile,
    /// Idle network time before each phase.
    #[serde(default)]
    pub slack: SlackFile,
    /// Random seed.
    #[serde(default)]
    pub seed: u64,
}

/// Distribution of new weights to the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WeightSyncFile {
    /// Distribution method.
    pub method: SyncMethod,
    /// Fraction of the weights' bytes that is sent, including indices. 1 sends everything, and 0.01
    /// to 0.03 is a sparse delta.
    #[schemars(range(min = 0.000_001, max = 1.0))]
    pub delta_share: f64,
}

impl Default for WeightSyncFile {
    fn default() -> Self {
        Self { method: SyncMethod::Relay, delta_share: 1.0 }
    }
}

impl WeightSyncFile {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Method of distributing new weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMethod {
    /// Each trainer leaf sends its part to one replica; replicas forward it along a binary tree.
    Relay,
    /// Each leaf of the trainer sends its part to every replica.
    Broadcast,
    /// Each GPU of a replica receives its shard directly from the trainer ranks that hold it.
    Shards,
}

impl SyncMethod {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Relay, Self::Broadcast, Self::Shards];
}

lightloom_units::display_as_serialized!(SyncMethod);

/// Idle network time before each phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlackFile {
    /// Idle time before the micro-batches.
    pub train: Text<Picoseconds>,
    /// Idle time before the gradients.
    pub gradients: Text<Picoseconds>,
    /// Idle time before the new weights.
    pub weight_sync: Text<Picoseconds>,
    /// Idle time before the pool switches its parallelism.
    pub parallelism_switch: Text<Picoseconds>,
}

impl Default for SlackFile {
    fn default() -> Self {
        let [train, gradients, weight_sync, parallelism_switch] = [at_once(); 4];
        Self { train, gradients, weight_sync, parallelism_switch }
    }
}

/// A phase with its demand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseFile {
    /// Name of the phase.
    pub name: String,
    /// Idle network time before the phase.
    #[serde(default = "at_once")]
    pub slack: Text<Picoseconds>,
    /// Traffic of the phase.
    pub demand: DemandFile,
    /// Number of repetitions, such as the number of layers if the workload describes only one.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub times: u32,
}

/// Source of a demand matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DemandFile {
    /// A CSV file in bytes, one matrix row per line.
    Csv(String),
    /// A JSON file with an array of rows in bytes.
    Json(String),
    /// Inline rows in bytes.
    Matrix(Vec<Vec<f64>>),
    /// A synthetic shape, about 1 GB per pair.
    Shape(ShapeFile),
    /// Traffic generated by a workload model.
    Workload(WorkloadFile),
    /// Transfers between leaves.
    Transfers(Vec<TransferFile>),
    /// An all-reduce over rings whose strides are coprime to the number of leaves. The planner
    /// chooses as many rings as suit the circuits.
    AllReduce(AllReduceFile),
}

/// Bytes sent between ranges of consecutive leaves, divided evenly among all pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransferFile {
    /// Senders.
    pub from: LeavesFile,
    /// Receivers.
    pub to: LeavesFile,
    /// Total over all pairs.
    pub bytes: Text<Bytes>,
}

/// Consecutive leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeavesFile {
    /// The first leaf.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// Number of leaves.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub leaves: u32,
}

/// An all-reduce over consecutive leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllReduceFile {
    /// The first leaf.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// Number of participating leaves, at least 2.
    pub leaves: u32,
    /// Contribution of each leaf.
    pub bytes: Text<Bytes>,
}

/// A synthetic shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ShapeFile {
    /// Skewed all-to-all in groups of 8 leaves, plus a light ring.
    Moe(SeedFile),
    /// Half of the leaves send shards to the other half, and the leaves also form a ring.
    WeightSync(SeedFile),
    /// All leaves to all others.
    Dense(SeedFile),
}

/// Random input of a shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeedFile {
    /// Random seed.
    pub seed: u64,
}

/// A training step of a model that is mapped to the job's groups. The job sets `tp`, the GPUs per
/// group. In rank order, tensor parallelism changes fastest, then context, data and pipeline. The
/// planner assigns groups to ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MappingFile {
    /// A shipped model, such as llama-3.1-405b, or a model file relative to this file (`lightloom
    /// schema model`). Sizes assume BF16.
    pub model: String,
    /// Pipeline stages.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub pp: u32,
    /// Data-parallel ranks [default: as many as the job's GPUs allow].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub dp: Option<u32>,
    /// Context-parallel ranks.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub cp: u32,
    /// Expert-parallel ranks, a subset of the data-parallel ranks.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub ep: u32,
    /// Whether weights are replicated (DP) or sharded (FSDP) across data-parallel ranks.
    #[serde(default)]
    pub sharding: ShardingFile,
    /// Micro-batches per step and pipeline.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub micro_batches: u32,
    /// Tokens per micro-batch and pipeline, across its context-parallel ranks.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub tokens: u32,
    /// Idle network time before the gradients, which hides a circuit change behind computation.
    #[serde(default = "at_once")]
    pub gradient_slack: Text<Picoseconds>,
    /// Idle network time before the micro-batches.
    #[serde(default = "at_once")]
    pub micro_batch_slack: Text<Picoseconds>,
    /// Achievable fraction of a network link's rate, applied in plans, analytical step times and
    /// packet emulation. By default, collectives achieve 0.96.
    #[serde(default = "usable_share", skip_serializing_if = "is_usual_share")]
    #[schemars(range(min = 0.01, max = 1.0))]
    pub usable_share: f64,
}

/// Measured utilisation in exchanges between H100 and later GPUs.
fn usable_share() -> f64 {
    0.85
}

fn is_usual_share(share: &f64) -> bool {
    share.to_bits() == usable_share().to_bits()
}

impl MappingFile {
    /// Measured fraction of a link's rate that a library's rings achieve.
    pub const LIBRARY_SHARE: f64 = 0.96;

    /// Returns whether the file specifies the usable share of links.
    pub fn states_share(&self) -> bool {
        !is_usual_share(&self.usable_share)
    }

    /// Returns the usable share of links for gradients.
    pub fn gradient_share(&self) -> f64 {
        if self.states_share() { self.usable_share } else { Self::LIBRARY_SHARE }
    }
}

/// A training step with a mapping search over GPUs per group (unless the job sets `tp`), pipeline
/// stages, replicas, expert-parallel ranks, micro-batches and recomputation. The job must set
/// `gpus`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = "{model: llama-3.1-70b, sequences: 256, sequence: 8192}")]
pub struct SearchFile {
    /// A shipped model, such as llama-3.1-405b, or a model file relative to this file (`lightloom
    /// schema model`). Sizes assume BF16.
    pub model: String,
    /// Sequences per step, across all replicas.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub sequences: u64,
    /// Tokens per sequence.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub sequence: u64,
    /// A shipped accelerator (`lightloom mfu --accelerator`).
    #[serde(default = "h100")]
    pub accelerator: String,
    /// Software stack whose performance constants apply (`lightloom mfu --constants`) [default: the
    /// most common one for the accelerator].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constants: Option<String>,
    /// Whether weights are replicated (DP) or sharded (FSDP) across data-parallel ranks.
    #[serde(default)]
    pub sharding: ShardingFile,
    /// Idle network time before the gradients, which hides a circuit change behind computation.
    #[serde(default = "at_once")]
    pub gradient_slack: Text<Picoseconds>,
    /// Idle network time before the micro-batches.
    #[serde(default = "at_once")]
    pub micro_batch_slack: Text<Picoseconds>,
}

fn h100() -> String {
    "h100".to_owned()
}

impl StepFile {
    /// Returns the files that the step refers to (matrices and models).
    pub fn files(&self) -> Vec<&str> {
        match self {
            Self::Training(training) => vec![training.model.as_str()],
            Self::Search(search) => vec![search.model.as_str()],
            Self::Rl(rl) => vec![rl.model.as_str()],
            Self::Phases(phases) => phases.iter().filter_map(|phase| phase.demand.file()).collect(),
        }
    }

    /// Returns whether the step refers to leaves, so that GPUs do not have to be placed.
    pub fn names_leaves(&self) -> bool {
        !matches!(self, Self::Training(_) | Self::Search(_))
    }
}

impl DemandFile {
    fn file(&self) -> Option<&str> {
        match self {
            Self::Csv(file) | Self::Json(file) => Some(file),
            Self::Workload(workload) => Some(workload.model()),
            Self::Matrix(_) | Self::Shape(_) | Self::Transfers(_) | Self::AllReduce(_) => None,
        }
    }
}

/// Planning settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanningFile {
    /// Smallest fraction of the current demand's rate to preserve in every stage of a transition.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub floor: f64,
}

impl Default for PlanningFile {
    fn default() -> Self {
        Self { floor: 0.75 }
    }
}
