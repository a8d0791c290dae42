// SPDX-License-Identifier: Apache-2.0
//! Step times of disaggregated reinforcement learning: some GPUs generate samples, others train,
//! and the trainer sends new weights to the generating pool.
//!
//! ```text
//! synchronous    generate ▶ forward passes and training ▶ weights
//! streaming      train on each sample as it ends, in order, as fast as training goes ▶ weights
//! one step off   generate the next step's samples during forward passes and training of this one ▶ weights
//! asynchronous   generate without end; a step is the slower of the two, and the pool stops only for the weights
//! ```
//! Assumptions: rewards take no time. A forward pass takes a third of a training step's computing
//! and no data-parallel communication. Training uses samples of the mean length. Weights are sent by
//! shard, each byte once per replica, over the network cards of both sides at their achieved rate.

mod tasks;

pub use tasks::{Chunk, PoolStep, ReinforcementTasks, generate, reinforcement_tasks};

use rayon::prelude::*;
use serde::Serialize;

use crate::batching::{ReplicaCosts, Request, serve};
use crate::calibration::{Calibration, Precision};
use crate::cards::Accelerator;
use crate::mapping::{Batch, Mapping};
use crate::model::Model;
use crate::network::Network;
use crate::rollout::{self, ChangeCost, Dispatch, Generation, Lengths, Pool, ReplicaDeath, Stage};
use crate::search::{Limits, Search};
use crate::step::{Replica, StepTime};
use lightloom_units::seed::Seed;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrainingLoop {
    Synchronous,
    #[default]
    OneStepOff,
    /// Training on a sample starts when it is complete, with weights as recent as in a synchronous loop.
    Streaming,
    Asynchronous,
}

#[derive(Clone, Debug)]
pub struct ReinforcementJob {
    pub model: Model,
    pub card: Accelerator,
    pub network: Network,
    pub gpus: [u32; 2],
    /// The only size of a replica to use; `None` for all that fit.
    pub replica_gpus: Option<u32>,
    pub samples: u32,
    pub prompt: u32,
    pub lengths: Lengths,
    pub forward_passes: u32,
    pub training_loop: TrainingLoop,
    pub batch: u32,
    /// Software overhead per decode step.
    pub host_seconds: f64,
    /// Software overhead per change of replica size.
    pub change_seconds: f64,
    /// Time of a replica failure after the start of generation.
    pub death_seconds: Option<f64>,
    pub seed: Seed,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReinforcementError {
    #[error(
        "no allowed replica size that divides the {gpus} GPUs and the model's heads can hold the weights and a sample of {tokens} tokens: use more GPUs, such as a multiple of 16, or shorter samples"
    )]
    NoReplica { gpus: u32, tokens: u64 },
    #[error(
        "no mapping can train the model on {gpus} GPUs: its states do not fit in memory, or \
         {samples} samples cannot be divided; use more GPUs"
    )]
    NoMapping { gpus: u32, samples: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    FixedEven,
    /// Replicas of one size that take the next sample when they have room.
    Fixed,
    /// The replica size follows the remaining samples, predicted from the previous step.
    Adaptive,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReinforcementStep {
    pub way: Way,
    pub generation: Generation,
    pub training_seconds: f64,
    pub weights_seconds: f64,
    pub step_seconds: f64,
    pub tokens_per_second: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReinforcementReport {
    pub replica_gpus: Vec<u32>,
    /// Tokens per second for each replica size with a shared queue; 0 if a sample does not fit.
    pub tokens_per_second_by_size: Vec<f64>,
    pub mapping: Mapping,
    pub training: StepTime,
    pub steps: Vec<ReinforcementStep>,
    pub least_generation_seconds: f64,
    /// Cost of the requested replica failure at the best size. `None` without a request or another
    /// replica, or if generation ends earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub death: Option<ReplicaDeath>,
}

/// Sizes of a replica in GPUs.
pub const SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Number of simulated steps of an asynchronous loop. The mean excludes the first and the last step.
const STEPS: usize = 5;

/// Returns the end of `training` seconds of training that starts on each sample as soon as the sample is complete.
fn streamed(ended: &[f64], training: f64) -> f64 {
    let each = training / ended.len().max(1) as f64;
    let left = (1..=ended.len()).rev().map(|left| left as f64 * each);
    ended.iter().zip(left).map(|(end, left)| end + left).fold(0.0, f64::max)
}

pub fn reports(jobs: &[ReinforcementJob]) -> Vec<Option<ReinforcementReport>> {
    jobs.par_iter().map(|job| job.report().ok()).collect()
}

impl ReinforcementJob {
    fn pool(&self, calibration: &Calibration) -> Pool {
        let compute = self.card.compute();
        let replica = Replica {
            model: &self.model,
            compute: &compute,
            network: &self.network,
            calibration,
            gpus: 1,
            host_seconds: self.host_seconds,
        };
        let generate = self.gpus[0];
        let sizes = SIZES.into_iter().filter(|size: &u32| {
            generate.is_multiple_of(*size)
                && self.model.attention.heads().is_multiple_of(*size)
                && self.replica_gpus.is_none_or(|only| only == *size)
        });
        let links = &calibration.network;
        let change = ChangeCost {
            weight_bytes: 2.0 * self.model.parameters(),
            cache_bytes: replica.cache_bytes(),
            inside_rate: self.network.domain_rate * links.domain,
            across_rate: self.network.card_rate(&calibration.network),
            software_seconds: self.change_seconds,
        };
        let sizes = sizes
            .filter_map(|gpus| ReplicaCosts::of(&Replica { gpus, ..replica }, self.batch))
            .collect();
        Pool { gpus: generate, sizes, change }
    }

    fn draw(&self, index: u64) -> Vec<u32> {
        self.lengths.draw(self.samples as usize, self.seed, index)
    }

    fn training(
        &self,
        calibration: &Calibration,
        lengths: &[u32],
    ) -> Option<(Mapping, StepTime, f64)> {
        let all: u64 = lengths.iter().map(|length| u64::from(*length + self.prompt)).sum();
        let mean = all.div_ceil(lengths.len() as u64).next_multiple_of(128);
        let search = Search {
            model: &self.model,
            batch: Batch { sequences: self.samples.into(), tokens: mean },
            gpus: self.gpus[1].into(),
            compute: &self.card.compute(),
            network: &self.network,
            calibration,
            precision: Precision::Bf16,
            expert_imbalance: 0.0,
            limits: Limits::default(),
        };
        let found = *search.run().found.first()?;
        let pass =
            found.step.compute_seconds + found.step.tensor_seconds + found.step.expert_seconds;
        Some((found.mapping, found.step, f64::from(self.forward_passes) * pass / 3.0))
    }

    pub fn report(&self) -> Result<ReinforcementReport, ReinforcementError> {
        self.report_of(&[Way::FixedEven, Way::Fixed, Way::Adaptive])
    }

    /// An asynchronous loop always uses [`Way::Fixed`]. Fails if the model does not fit on the GPUs of one pool.
    pub fn report_of(&self, ways: &[Way]) -> Result<ReinforcementReport, ReinforcementError> {
        let calibration = self.card.calibration();
        let (pool, lengths, seen) = (self.pool(&calibration), self.draw(0), self.draw(1));
        let samples = rollout::samples(self.prompt, &lengths);
        let tokens = samples.iter().map(Request::tokens).max().unwrap_or(0);
        let none = ReinforcementError::NoReplica { gpus: self.gpus[0], tokens };
        let (mapping, training, forward) = self
            .training(&calibration, &lengths)
            .ok_or(ReinforcementError::NoMapping { gpus: self.gpus[1], samples: self.samples })?;
        let card_rate = self.network.card_rate(&calibration.network);
        let training_seconds = training.step_seconds + forward;
        let step = |way: Way, generation: Generation| {
            let begins = generation.stages.first().map_or(1, |stage| stage.replica_gpus);
            let weights_seconds =
                pool.change.weight_bytes / f64::from(begins.min(self.gpus[1])) / card_rate;
            self.step(way, generation, weights_seconds, training_seconds)
        };
        let able: Vec<usize> = pool.able(&samples).collect();
        // With a continuous supply of samples, long samples do not cause a tail.
        let of_size = |size: usize, dispatch| match self.training_loop {
            TrainingLoop::Asynchronous => Some(self.steady_of(&pool, size)),
            _ => rollout::fixed(&pool, size, &samples, dispatch),
        };
        let ways = match self.training_loop {
            TrainingLoop::Asynchronous => &[Way::Fixed],
            _ => ways,
        };
        let steps = ways.iter().map(|way| {
            let dispatch = match way {
                Way::FixedEven => Dispatch::Even,
                Way::Fixed => Dispatch::Shared,
                Way::Adaptive => {
                    let adaptive = rollout::adaptive(&pool, &samples, &seen);
                    return Some(step(*way, adaptive?));
                }
            };
            let all = able.iter().filter_map(|size| Some(step(*way, of_size(*size, dispatch)?)));
            all.min_by(|a, b| a.step_seconds.total_cmp(&b.step_seconds))
        });
        let steps = steps.collect::<Option<Vec<_>>>().ok_or(none)?;
        let mut rates = vec![0.0; pool.sizes.len()];
        for &size in &able {
            if let Some(generation) = of_size(size, Dispatch::Shared) {
                rates[size] = step(Way::Fixed, generation).tokens_per_second;
            }
        }
        let fastest = able.iter().copied().max_by(|a, b| rates[*a].total_cmp(&rates[*b]));
        let death = self.death_seconds.zip(fastest);
        let death = death.and_then(|(at, size)| rollout::death(&pool, size, &samples, at));
        let work = rollout::least_work_seconds(&pool, &samples);
        let least_generation_seconds = match self.training_loop {
            TrainingLoop::Asynchronous => work,
            _ => work.max(rollout::longest_seconds(&pool, &samples)),
        };
        Ok(ReinforcementReport {
            replica_gpus: pool.sizes.iter().map(|size| size.gpus).collect(),
            tokens_per_second_by_size: rates,
            mapping,
            training,
            steps,
            least_generation_seconds,
            death,
        })
    }

    fn step(
        &self,
        way: Way,
        generation: Generation,
        weights_seconds: f64,
        training_seconds: f64,
    ) -> ReinforcementStep {
        let seconds = generation.seconds;
        let step_seconds = weights_seconds
            + match self.training_loop {
                TrainingLoop::Synchronous => seconds + training_seconds,
                TrainingLoop::Streaming => streamed(&generation.ended, training_seconds),
                _ => seconds.max(training_seconds),
            };
        ReinforcementStep {
            way,
            training_seconds,
            weights_seconds,
            step_seconds,
            tokens_per_second: generation.tokens as f64 / step_seconds,
            generation,
        }
    }

    fn steady_of(&self, pool: &Pool, size: usize) -> Generation {
        let costs = &pool.sizes[size];
        let lengths: Vec<u32> = (0..STEPS as u64).flat_map(|step| self.draw(step)).collect();
        let samples = rollout::samples(self.prompt, &lengths);
        let served = serve(costs, pool.gpus / costs.gpus, &samples, 0);
        let mut ended: Vec<f64> = served.ended.into_iter().filter(|end| end.is_finite()).collect();
        ended.sort_unstable_by(f64::total_cmp);
        let [first, last] =
            [1, STEPS - 1].map(|steps| ended[(steps * ended.len() / STEPS).max(1) - 1]);
        let seconds = (last - first) / (STEPS - 2) as f64;
        let (replica_gpus, count) = (costs.gpus, self.samples as usize);
        let stage = Stage { replica_gpus, samples: count, seconds, ..Stage::default() };
        let tokens = served.tokens / STEPS as u64;
        Generation { stages: vec![stage], seconds, tokens, busy_share: 1.0, ended: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streamed_training_waits_for_samples_or_for_itself() {
        assert_eq!(streamed(&[1.0, 2.0, 3.0, 4.0], 0.4), 4.0 + 0.1, "it waits for samples");
        assert_eq!(streamed(&[1.0, 1.0, 1.0, 1.0], 4.0), 5.0, "it waits for itself");
        assert_eq!(streamed(&[1.0, 1.5, 9.0], 3.0), 10.0);
    }
}
