// SPDX-License-Identifier: Apache-2.0
//! What a job sends, again and again, as a fabric file writes it.

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

/// What runs, again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StepFile {
    /// A training step of a model, mapped onto the GPUs that the job gets.
    Training(MappingFile),
    /// A training step whose mapping is searched for: the one with which `lightloom mfu --fabric` finds the shortest
    /// step, of those that the job's groups can take.
    Search(SearchFile),
    /// A step of disaggregated reinforcement learning.
    Rl(RlFile),
    /// Phases with a demand matrix each.
    Phases(Vec<PhaseFile>),
}

/// A step of disaggregated reinforcement learning: trainer on the job's first groups, generation on the others. In a job
/// without `tp`, trainer on the first leaves, generation after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RlFile {
    /// A model that comes with lightloom, such as qwen2.5-72b, llama-3.1-405b or deepseek-v3; or a model file of
    /// your own, relative to this file (`lightloom schema model`). Its bytes are taken in BF16.
    pub model: String,
    /// GPUs that train.
    #[schemars(range(min = 1))]
    pub trainer_gpus: u32,
    /// GPUs that generate.
    #[schemars(range(min = 1))]
    pub generation_gpus: u32,
    /// Tensor-parallel ranks of the trainer; where the job has `tp`, the same.
    #[schemars(range(min = 1))]
    pub tp: u32,
    /// Pipeline stages of the trainer.
    #[schemars(range(min = 1))]
    pub pp: u32,
    /// Expert-parallel ranks of the trainer.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub ep: u32,
    /// Spread of expert popularity: sigma of a log-normal distribution.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 3.0))]
    pub expert_skew: f64,
    /// Samples of a step.
    #[schemars(range(min = 1))]
    pub samples: u32,
    /// Tokens of a sample.
    #[schemars(range(min = 1))]
    pub tokens_per_sample: u32,
    /// GPUs of a generation replica.
    #[schemars(range(min = 1))]
    pub replica_gpus: u32,
    /// GPUs of a replica for the long tail; the same as `replica_gpus` where it does not switch.
    #[serde(default)]
    pub tail_replica_gpus: Option<u32>,
    /// Share of a replica's cache that migrates in a step.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub migrated_share: f64,
    /// How new weights reach the replicas.
    #[serde(default, skip_serializing_if = "WeightSyncFile::is_usual")]
    pub weight_sync: WeightSyncFile,
    /// Idle network time before each phase.
    #[serde(default)]
    pub slack: SlackFile,
    /// Seed of everything drawn.
    #[serde(default)]
    pub seed: u64,
}

/// How new weights reach the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WeightSyncFile {
    /// Who sends what to whom.
    pub method: SyncMethod,
    /// Share of the weights' bytes that is sent, positions included: 1 is all of them, 0.01 to 0.03 a sparse delta.
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

/// Who sends new weights to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMethod {
    /// Each leaf of the trainer sends its part to one replica, and replicas hand it on in a binary tree.
    Relay,
    /// Each leaf of the trainer sends its part to every replica.
    Broadcast,
    /// Each GPU of a replica receives the shard that it holds, from the ranks of the trainer that hold it.
    Shards,
}

impl SyncMethod {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Relay, Self::Broadcast, Self::Shards];

    /// As a fabric file writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Broadcast => "broadcast",
            Self::Shards => "shards",
        }
    }
}

/// Idle network time before each phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SlackFile {
    /// Before the micro-batches.
    pub train: Text<Picoseconds>,
    /// Before the gradients.
    pub gradients: Text<Picoseconds>,
    /// Before the new weights.
    pub weight_sync: Text<Picoseconds>,
    /// Before the pool changes its parallelism.
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
    /// Its name.
    pub name: String,
    /// How long the network is idle before it.
    #[serde(default = "at_once")]
    pub slack: Text<Picoseconds>,
    /// What it sends.
    pub demand: DemandFile,
    /// How often it sends that: layers of a workload that describes one, say.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub times: u32,
}

/// Where a demand matrix comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DemandFile {
    /// A file of comma-separated bytes, one row a line.
    Csv(String),
    /// A file with an array of rows of bytes.
    Json(String),
    /// The rows themselves, in bytes.
    Matrix(Vec<Vec<f64>>),
    /// A synthetic shape, about 1 GB a pair.
    Shape(ShapeFile),
    /// Traffic described by what produces it.
    Workload(WorkloadFile),
    /// An all-reduce whose rings the planner chooses: strides without a common divisor with the number of
    /// leaves, as many as suit the circuits.
    AllReduce(AllReduceFile),
}

/// An all-reduce over consecutive leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllReduceFile {
    /// The first leaf.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// How many leaves take part, at least 2.
    pub leaves: u32,
    /// What each of them contributes.
    pub bytes: Text<Bytes>,
}

/// A synthetic shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ShapeFile {
    /// Skewed all-to-all in groups of 8 leaves and a light ring.
    Moe(SeedFile),
    /// Half of the leaves send shards to the other half, and form a ring.
    WeightSync(SeedFile),
    /// Every leaf to every other.
    Dense(SeedFile),
}

/// What a shape is drawn from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeedFile {
    /// Seed of the draws.
    pub seed: u64,
}

/// A training step: which model, and how it is spread over the job's groups. `tp`, the GPUs of one group, is
/// set at the job. Ranks are counted with tensor parallelism fastest, then context, data and pipeline;
/// which groups they get is for the planner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MappingFile {
    /// A model that comes with lightloom, such as llama-3.1-405b; or a model file of your own, relative to this
    /// file (`lightloom schema model`). Its bytes are taken in BF16.
    pub model: String,
    /// Pipeline stages.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub pp: u32,
    /// Data-parallel ranks [default: as many as the job's GPUs make].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub dp: Option<u32>,
    /// Context-parallel ranks.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub cp: u32,
    /// Expert-parallel ranks, within the data-parallel ones.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub ep: u32,
    /// Whether weights are replicated (DP) or sharded (FSDP) over the data-parallel ranks.
    #[serde(default)]
    pub sharding: ShardingFile,
    /// Micro-batches of a step on one pipeline.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub micro_batches: u32,
    /// Tokens of a micro-batch on one pipeline, over its context-parallel ranks.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub tokens: u32,
    /// Idle network time before the gradients: what of computing hides a change of circuits.
    #[serde(default = "at_once")]
    pub gradient_slack: Text<Picoseconds>,
    /// Idle network time before the micro-batches.
    #[serde(default = "at_once")]
    pub micro_batch_slack: Text<Picoseconds>,
    /// Share of a network link's rate that its exchanges fill: in plans, in step times by formula, and in packets.
    #[serde(default = "usable_share", skip_serializing_if = "is_usual_share")]
    #[schemars(range(min = 0.01, max = 1.0))]
    pub usable_share: f64,
}

/// What exchanges between H100 and later GPUs fill.
fn usable_share() -> f64 {
    0.85
}

fn is_usual_share(share: &f64) -> bool {
    share.to_bits() == usable_share().to_bits()
}

/// A training step whose mapping is searched for: GPUs of a group (`tp` of the job, where that is not given), stages,
/// replicas, experts' ranks, micro-batches and recomputation. Needs `gpus` at the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(example = "{model: llama-3.1-70b, sequences: 256, sequence: 8192}")]
pub struct SearchFile {
    /// A model that comes with lightloom, such as llama-3.1-405b; or a model file of your own, relative to this
    /// file (`lightloom schema model`). Its bytes are taken in BF16.
    pub model: String,
    /// Sequences of a step, over all replicas.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub sequences: u64,
    /// Tokens of a sequence.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub sequence: u64,
    /// An accelerator that comes with lightloom (`lightloom mfu --accelerator`).
    #[serde(default = "h100")]
    pub accelerator: String,
    /// Software whose constants are used (`lightloom mfu --constants`) [default: what the accelerator is mostly used
    /// with].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constants: Option<String>,
    /// Whether weights are replicated (DP) or sharded (FSDP) over the data-parallel ranks.
    #[serde(default)]
    pub sharding: ShardingFile,
    /// Idle network time before the gradients: what of computing hides a change of circuits.
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
    /// The files beside the fabric file that it names: matrices and models.
    #[must_use]
    pub fn files(&self) -> Vec<&str> {
        match self {
            Self::Training(training) => vec![training.model.as_str()],
            Self::Search(search) => vec![search.model.as_str()],
            Self::Rl(rl) => vec![rl.model.as_str()],
            Self::Phases(phases) => phases.iter().filter_map(|phase| phase.demand.file()).collect(),
        }
    }

    /// Whether it names leaves itself, so that no GPU has to be placed for it.
    #[must_use]
    pub fn names_leaves(&self) -> bool {
        !matches!(self, Self::Training(_) | Self::Search(_))
    }
}

impl DemandFile {
    fn file(&self) -> Option<&str> {
        match self {
            Self::Csv(file) | Self::Json(file) => Some(file),
            Self::Workload(workload) => workload.model(),
            Self::Matrix(_) | Self::Shape(_) | Self::AllReduce(_) => None,
        }
    }
}

/// How to plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanningFile {
    /// Share of the live demand's rate that no stage of a transition may go below.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub floor: f64,
}

impl Default for PlanningFile {
    fn default() -> Self {
        Self { floor: 0.75 }
    }
}
