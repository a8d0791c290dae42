// SPDX-License-Identifier: Apache-2.0
//! Traffic described by what produces it, as the file writes it: one entry a generator of the planner,
//! where the byte formulas and their sources are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::step::one;
use lightloom_units::id::LeafId;
use lightloom_units::{Bytes, Picoseconds, Text};

/// Traffic described by what produces it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum WorkloadFile {
    /// A training step: tensor, pipeline, expert and data parallelism over consecutive GPUs.
    Training(TrainingFile),
    /// New weights from a trainer to every replica of a pool, along trees.
    Weights(WeightsFile),
    /// Samples that stream from a pool to a trainer (StreamRL).
    Samples(SamplesFile),
    /// Caches of long-tail samples that move to a few instances (RLHFuse).
    SampleMigration(SampleMigrationFile),
    /// Context parallelism of sparse attention, one layer (DSV).
    SparseAttention(SparseAttentionFile),
    /// Attention tasks that balance long documents, one layer (core-attention disaggregation).
    CoreAttention(CoreAttentionFile),
    /// Hidden states between attention and feed-forward GPUs, one decode step (Step-3).
    AttentionFeedForward(AttentionFeedForwardFile),
    /// Caches that decode GPUs pull from prefill GPUs (as Frontier simulates).
    PrefillDecode(PrefillDecodeFile),
    /// Hits in a pool of prefix caches, one layer (TokenLake).
    PrefixPool(PrefixPoolFile),
    /// Pipelines whose messages change from batch to batch (PipeWeaver).
    Pipeline(PipelineFile),
    /// Gradients that are compressed where that sends less (ByteComp).
    CompressedGradients(CompressedGradientsFile),
    /// Gradients whose ring waits for the slowest rank (QSync); what the others wait is added to the slack.
    Stragglers(StragglersFile),
    /// Weights for ranks that join a job (Aryl).
    ElasticJoin(ElasticJoinFile),
}

impl WorkloadFile {
    /// The model it names, if any.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Training(raw) => Some(&raw.model),
            Self::Weights(raw) => Some(&raw.model),
            Self::SampleMigration(raw) => Some(&raw.model),
            Self::PrefillDecode(raw) => Some(&raw.model),
            Self::ElasticJoin(raw) => Some(&raw.model),
            _ => None,
        }
    }

    /// Its key in the file.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Training(_) => "training",
            Self::Weights(_) => "weights",
            Self::Samples(_) => "samples",
            Self::SampleMigration(_) => "sample_migration",
            Self::SparseAttention(_) => "sparse_attention",
            Self::CoreAttention(_) => "core_attention",
            Self::AttentionFeedForward(_) => "attention_feed_forward",
            Self::PrefillDecode(_) => "prefill_decode",
            Self::PrefixPool(_) => "prefix_pool",
            Self::Pipeline(_) => "pipeline",
            Self::CompressedGradients(_) => "compressed_gradients",
            Self::Stragglers(_) => "stragglers",
            Self::ElasticJoin(_) => "elastic_join",
        }
    }
}

/// Consecutive GPUs that fill leaf after leaf.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceFile {
    /// The leaf of the first.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// How many.
    #[schemars(range(min = 1, max = 8192))]
    pub gpus: u32,
}

/// Consecutive leaves, one rank each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RanksFile {
    /// The first.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// How many.
    #[schemars(range(min = 1))]
    pub leaves: u32,
}

/// A training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainingFile {
    /// A shipped model or a model file.
    pub model: String,
    /// Where it trains.
    pub place: PlaceFile,
    /// Tensor-parallel ranks.
    #[schemars(range(min = 1, max = 8192))]
    pub tp: u32,
    /// Pipeline stages.
    #[schemars(range(min = 1, max = 8192))]
    pub pp: u32,
    /// Expert-parallel ranks, within the data-parallel ones.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8192))]
    pub ep: u32,
    /// Whether weights are replicated (DP) or sharded (FSDP) over the data-parallel ranks.
    #[serde(default)]
    pub sharding: ShardingFile,
    /// Which part of the step.
    pub part: TrainingPart,
    /// Micro-batches of the step.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 65536))]
    pub micro_batches: u32,
    /// Tokens of a micro-batch on one pipeline.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub tokens: u32,
    /// Spread of expert popularity: sigma of a log-normal distribution.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 3.0))]
    pub expert_skew: f64,
    /// Seed of the popularity.
    #[serde(default)]
    pub seed: u64,
}

/// What data-parallel ranks keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShardingFile {
    /// Everything: gradients are all-reduced.
    #[default]
    Replicated,
    /// A shard: weights are gathered twice, gradients scattered once.
    Sharded,
}

/// A part of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TrainingPart {
    /// All micro-batches: tensor, pipeline and expert parallelism.
    MicroBatches,
    /// Gradients, and weights where they are sharded.
    DataParallel,
}

/// New weights for a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightsFile {
    /// A shipped model or a model file.
    pub model: String,
    /// Who has the weights.
    pub trainer: PlaceFile,
    /// Who needs them.
    pub pool: PlaceFile,
    /// GPUs of one replica.
    #[schemars(range(min = 1))]
    pub replica_gpus: u32,
    /// To how many others each replica hands the weights on; 0: the trainer sends to every replica itself.
    #[serde(default = "two")]
    pub fan_out: u32,
}

fn two() -> u32 {
    2
}

/// Samples on their way to the trainer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplesFile {
    /// Who generates.
    pub pool: PlaceFile,
    /// Who trains.
    pub trainer: PlaceFile,
    /// Tokens of all samples.
    #[schemars(range(min = 1, max = 10_000_000_000_u64))]
    pub tokens: u64,
}

/// The long tail of a generation phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SampleMigrationFile {
    /// A shipped model or a model file.
    pub model: String,
    /// Who generates.
    pub pool: PlaceFile,
    /// GPUs of one instance.
    #[schemars(range(min = 1))]
    pub replica_gpus: u32,
    /// Samples that are not finished.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub remaining: u32,
    /// Tokens of each so far.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub tokens: u64,
    /// Samples that one instance can batch.
    #[schemars(range(min = 1))]
    pub batch_max: u32,
    /// Cache that one instance has.
    pub cache: Text<Bytes>,
}

/// A layer of sparse attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SparseAttentionFile {
    /// Where the sequence is.
    pub place: PlaceFile,
    /// Heads.
    #[schemars(range(min = 1, max = 1024))]
    pub heads: u32,
    /// Width of a head.
    #[schemars(range(min = 1, max = 4096))]
    pub head_size: u32,
    /// Tokens of the sequence.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub sequence: u64,
    /// Share of key-value pairs that attention skips.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sparsity: f64,
    /// Share of the critical pairs that lie on other GPUs.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub remote_share: f64,
    /// GPUs of a group that exchanges heads; the others gather between groups.
    #[schemars(range(min = 1))]
    pub head_ranks: u32,
}

/// The shapes of an attention layer, in BF16.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttentionFile {
    /// Query heads.
    #[schemars(range(min = 1, max = 1024))]
    pub query_heads: u32,
    /// Key-value heads.
    #[schemars(range(min = 1, max = 1024))]
    pub key_value_heads: u32,
    /// Width of a head.
    #[schemars(range(min = 1, max = 4096))]
    pub head_size: u32,
}

/// Attention tasks of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreAttentionFile {
    /// The first leaf of the GPUs.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// The layer.
    pub attention: AttentionFile,
    /// Tokens that each GPU has before they are balanced, one entry a GPU.
    #[schemars(length(min = 1, max = 8192))]
    pub tokens: Vec<u64>,
}

/// One decode step of disaggregated attention and feed-forward.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttentionFeedForwardFile {
    /// Who attends.
    pub attention: PlaceFile,
    /// Who has the feed-forward parts.
    pub feed_forward: PlaceFile,
    /// Width of the hidden state.
    #[schemars(range(min = 1, max = 131_072))]
    pub hidden: u32,
    /// Layers.
    #[schemars(range(min = 1, max = 1000))]
    pub layers: u32,
    /// Tokens over all attention GPUs.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub tokens: u64,
}

/// Caches that decode GPUs pull.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefillDecodeFile {
    /// A shipped model or a model file.
    pub model: String,
    /// Who has the caches.
    pub prefill: PlaceFile,
    /// Who pulls them.
    pub decode: PlaceFile,
    /// Prompts in order.
    #[schemars(length(min = 1))]
    pub prompts: Vec<PromptFile>,
    /// Cache that one decode GPU has room for; what finds none waits at the prefill side.
    pub room: Text<Bytes>,
}

/// A prompt.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromptFile {
    /// The prefill GPU that has its cache, from 0.
    pub gpu: u32,
    /// Its length.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub tokens: u64,
}

/// Hits in a pool of prefix caches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefixPoolFile {
    /// The layer.
    pub attention: AttentionFile,
    /// Requests that need a cached segment.
    #[schemars(length(min = 1))]
    pub hits: Vec<HitFile>,
}

/// A request that needs a cached segment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HitFile {
    /// Where the request runs.
    pub request: LeafId,
    /// Where the segment is.
    pub segment: LeafId,
    /// Query tokens.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub query_tokens: u64,
    /// Tokens of the segment.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub segment_tokens: u64,
}

/// A pipeline whose messages change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// Its GPUs.
    pub place: PlaceFile,
    /// Boundaries between stages.
    #[schemars(length(min = 1))]
    pub boundaries: Vec<BoundaryFile>,
    /// For each micro-batch, its tokens by modality.
    #[schemars(length(min = 1))]
    pub micro_batches: Vec<Vec<u32>>,
}

/// A boundary between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoundaryFile {
    /// GPU of the stage before, from 0.
    pub before: u32,
    /// GPU of the stage after.
    pub after: u32,
    /// Which modality's tokens cross, from 0.
    pub modality: u32,
    /// Bytes of one token there.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub token_bytes: u32,
}

/// Gradients that may be compressed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompressedGradientsFile {
    /// Who exchanges them.
    pub ranks: RanksFile,
    /// Gradients of one rank.
    pub bytes: Text<Bytes>,
    /// Size after compression, as a share. Above 2 ÷ ranks they are sent as they are.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub ratio: f64,
}

/// Gradients of ranks of unequal speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StragglersFile {
    /// The first leaf; each rank has one.
    #[serde(default)]
    pub first_leaf: LeafId,
    /// Gradients of one rank.
    pub bytes: Text<Bytes>,
    /// Computation of a rank of speed 1.
    pub compute: Text<Picoseconds>,
    /// Each rank's speed.
    #[schemars(length(min = 2))]
    pub speeds: Vec<f64>,
    /// How much faster each rank becomes by lower precision; 1 where it keeps the full one.
    #[serde(default)]
    pub low_precision_gain: Option<Vec<f64>>,
}

/// Ranks that join a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ElasticJoinFile {
    /// A shipped model or a model file.
    pub model: String,
    /// Who has the weights.
    pub members: RanksFile,
    /// Who joins.
    pub joining: RanksFile,
}
