// SPDX-License-Identifier: Apache-2.0
//! Reinforcement learning jobs: the trainer as a training job, and the work of the generation pool.

use lightloom_fabric::fabric::{Fabric, Job as FabricJob};
use lightloom_fabric::file::{MappingFile, RlFile, ShardingFile};
use lightloom_fabric::plan::{Plan, Rank};
use lightloom_training::batching::{ReplicaCosts, Request};
use lightloom_training::calibration::Calibration;
use lightloom_training::reinforcement::{PoolStep, TrainingLoop, generate};
use lightloom_training::rollout::{self, Lengths};
use lightloom_training::step::{OwnedJob, Replica, step_time};
use lightloom_units::seed::Seed;
use schemars::JsonSchema;
use serde::Deserialize;

use super::TrainError;

/// Sample generation by the pool of a job with `step: {rl: …}`. Response lengths are log-normal;
/// their mean is the fabric's `tokens_per_sample` minus the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "RolloutFile")]
pub struct Rollout {
    /// Order of generation and training.
    #[serde(rename = "loop")]
    pub training_loop: RolloutLoop,
    /// Tokens per prompt.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub prompt: u32,
    /// Standard deviation of the logarithm of the response length; 0 for equal lengths.
    #[schemars(range(min = 0.0, max = 4.0))]
    pub sigma: f64,
    /// Maximum response length in tokens; longer responses are truncated.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub longest: u32,
    /// Forward passes over all samples before training, such as those for the reference model and
    /// the log probabilities.
    #[schemars(range(min = 0, max = 8))]
    pub forward_passes: u32,
    /// Maximum number of samples that a replica decodes concurrently.
    #[schemars(range(min = 1, max = 4096))]
    pub batch: u32,
}

/// Order of generation and training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LoopFile")]
pub enum RolloutLoop {
    /// Training uses the samples of the previous step.
    #[default]
    OneStepOff,
    /// Generate, then train.
    Synchronous,
    /// Training on a sample starts as soon as it is complete.
    Streaming,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            training_loop: RolloutLoop::default(),
            prompt: 512,
            sigma: 1.0,
            longest: 16_384,
            forward_passes: 2,
            batch: 256,
        }
    }
}

pub(super) fn trainer_of(rl: &RlFile) -> MappingFile {
    let data = (rl.trainer_gpus / (rl.tp * rl.pp).max(1)).max(1);
    MappingFile {
        model: rl.model.clone(),
        pp: rl.pp,
        dp: Some(data),
        cp: 1,
        ep: rl.ep,
        sharding: ShardingFile::Replicated,
        micro_batches: (rl.samples / data).max(1),
        tokens: rl.tokens_per_sample,
        gradient_slack: rl.slack.gradients,
        micro_batch_slack: rl.slack.train,
        usable_share: 1.0,
    }
}

pub(super) fn leaves(fabric: &Fabric, plan: &Plan, job: u32) -> Vec<u32> {
    let mut own: Vec<&Rank> = plan.ranks.iter().filter(|rank| rank.job == Some(job)).collect();
    own.sort_by_key(|rank| (rank.dp, rank.tp));
    own.into_iter().map(|rank| fabric.dcn.leaf_of(rank.gpu).0).collect()
}

pub(super) fn pool_step(
    leaves: &[u32],
    job: &FabricJob,
    rl: &RlFile,
    rollout: &Rollout,
    owned: &OwnedJob,
    calibration: &Calibration,
) -> Result<PoolStep, TrainError> {
    let name = job.name.clone();
    let pool = (leaves.len() as u32).saturating_sub(rl.trainer_gpus);
    let gpus = rl.replica_gpus;
    let replica = Replica {
        model: &owned.model,
        compute: owned.job().compute,
        network: &owned.network,
        calibration,
        gpus,
        host_seconds: 0.0,
    };
    let replicas = pool / gpus.max(1);
    if replicas == 0 {
        return Err(TrainError::NoGroups { job: name });
    }
    let heads = owned.model.attention.heads();
    if !heads.is_multiple_of(gpus) {
        return Err(TrainError::Heads { job: name, heads, gpus });
    }
    let mean = rl.tokens_per_sample.saturating_sub(rollout.prompt);
    if mean == 0 {
        let (prompt, tokens) = (rollout.prompt, rl.tokens_per_sample);
        return Err(TrainError::Prompt { job: name, prompt, tokens });
    }
    let lengths = Lengths { mean: mean.into(), sigma: rollout.sigma, most: rollout.longest };
    let lengths = lengths.draw(rl.samples as usize, Seed(rl.seed), 0);
    let samples = rollout::samples(rollout.prompt, &lengths);
    let longest = samples.iter().map(Request::tokens).max().unwrap_or(0);
    let costs = ReplicaCosts::of(&replica, rollout.batch);
    let costs = costs.filter(|costs| costs.cache_tokens >= longest);
    let costs = costs.ok_or(TrainError::Memory { job: name, gpus, tokens: longest })?;
    let weight_bytes = 2.0 * owned.model.parameters();
    let reload = weight_bytes / f64::from(gpus) / owned.card_rate();
    let (chunks, tokens) = generate(&costs, replicas, &samples, reload);
    let time = step_time(&owned.job());
    let micro_batches = owned.mapping.micro_batches(owned.batch) as f64;
    let pass = (time.compute_seconds + time.tensor_seconds + time.expert_seconds) / 3.0;
    let all: u64 = tokens.iter().sum();
    let moved = replica.cache_bytes() * rl.migrated_share * all as f64 / f64::from(replicas);
    Ok(PoolStep {
        training_loop: match rollout.training_loop {
            RolloutLoop::OneStepOff => TrainingLoop::OneStepOff,
            RolloutLoop::Synchronous => TrainingLoop::Synchronous,
            RolloutLoop::Streaming => TrainingLoop::Streaming,
        },
        replica_gpus: [gpus, rl.tail_replica_gpus.unwrap_or(gpus)],
        tensor: job.tp,
        chunks,
        tokens,
        leaves: leaves[..(rl.trainer_gpus + replicas * gpus) as usize].to_vec(),
        method: rl.weight_sync.method,
        weight_bytes: weight_bytes as u64,
        delta_share: rl.weight_sync.delta_share,
        moved_bytes: moved as u64,
        pass_seconds: f64::from(rollout.forward_passes) * pass / micro_batches,
    })
}
