// SPDX-License-Identifier: Apache-2.0
//! Disaggregated reinforcement learning, where trainer and generation pool use separate leaves.
//!
//! ```text
//!   trainer     │ micro-batches ……… │ gradients │            │ new weights ─┐
//!   generation  │ samples of the next step, with migration … │ ◀────────────┘ │ parallelism switch
//!   phase         train + generate      gradients              weight-sync      parallelism-switch
//! ```
//!
//! The pool generates the next batch while the trainer processes the current one, so their traffic shares a phase. The
//! step is reconstructed from the abstract of the RFabric paper and from a reading note, not from a trace of RFabric.

use lightloom_fabric::file::{SyncMethod, WeightSyncFile};
use lightloom_units::{Bytes, Picoseconds};

use super::super::demand::Demand;
use super::super::phases::Phase;
use super::card::ModelCard;
use super::generation::Generation;
use super::parallelism_switch;
use super::place::{Place, Seats};
use super::training::{Sharding, Training};
use super::weight_sync::{self, FanOut};
use lightloom_units::seed::Seed;

/// A step of asynchronous reinforcement learning, with generation one step ahead of training.
#[derive(Clone, Debug, PartialEq)]
pub struct RlStep {
    /// The model.
    pub card: ModelCard,
    /// Training GPUs in rank order. Tensor ranks change fastest, then data and pipeline ranks.
    pub trainer: Seats,
    /// Generating GPUs, replica by replica.
    pub pool: Seats,
    /// Tensor-parallel ranks of the trainer.
    pub tp: u32,
    /// Pipeline stages of the trainer.
    pub pp: u32,
    /// Expert-parallel ranks of the trainer, 1 for a dense model.
    pub ep: u32,
    /// Spread of expert popularity, as the sigma of a log-normal distribution. 0 for balanced experts.
    pub expert_skew: f64,
    /// Samples per step over all data-parallel ranks.
    pub samples: u32,
    /// Tokens per sample, prompt and answer together.
    pub tokens_per_sample: u32,
    /// GPUs per generation replica while most requests run.
    pub replica_gpus: u32,
    /// GPUs per replica for the long tail of requests, or `replica_gpus` to leave it unchanged.
    pub tail_replica_gpus: u32,
    /// Share of a replica's cache that migrates per step.
    pub migrated_share: f64,
    /// Idle network time before each phase.
    pub slack: Slack,
    /// Random seed.
    pub seed: Seed,
}

/// Idle network time before each phase, from computation without traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slack {
    /// Idle time before the micro-batches.
    pub train: Picoseconds,
    /// Idle time before the gradients.
    pub gradients: Picoseconds,
    /// Idle time before the new weights are sent, while the optimiser runs.
    pub weight_sync: Picoseconds,
    /// Idle time before the pool changes its parallelism.
    pub parallelism_switch: Picoseconds,
}

/// This limit is far above any real step and keeps byte counts within 64 bits.
const TOKENS_MAX: u64 = 10_000_000_000;

/// Why a step cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message documents its variant")]
pub enum RlStepError {
    #[error("{what}: {whole} is not a multiple of {part}; choose a divisor of {whole}")]
    NotDivisible { field: &'static str, what: &'static str, whole: u64, part: u64 },
    #[error("{tokens} tokens per step exceed the maximum of {TOKENS_MAX}")]
    TooManyTokens { tokens: u64 },
    #[error(
        "the step needs {needed} leaves, but the fabric has {there}; add leaves or use fewer GPUs"
    )]
    TooFewLeaves { needed: u32, there: usize },
}

impl RlStepError {
    /// Returns the invalid field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::NotDivisible { field, .. } => field,
            Self::TooManyTokens { .. } => "samples",
            Self::TooFewLeaves { .. } => "generation_gpus",
        }
    }
}

fn divides(
    field: &'static str,
    what: &'static str,
    whole: u32,
    part: u32,
) -> Result<(), RlStepError> {
    if part > 0 && whole.is_multiple_of(part) {
        return Ok(());
    }
    let (whole, part) = (u64::from(whole), u64::from(part));
    Err(RlStepError::NotDivisible { field, what, whole, part })
}

/// Places the trainer on the first leaves and the pool on the following ones.
///
/// # Errors
/// Fails if the trainer does not fill whole leaves or the GPUs do not fit.
pub fn leaf_after_leaf(
    [trainer, pool]: [u32; 2],
    gpus_per_leaf: u32,
    leaves: usize,
) -> Result<[Seats; 2], RlStepError> {
    divides("trainer_gpus", "trainer GPUs by GPUs per leaf", trainer, gpus_per_leaf)?;
    let needed = trainer.saturating_add(pool).div_ceil(gpus_per_leaf);
    if needed as usize > leaves {
        return Err(RlStepError::TooFewLeaves { needed, there: leaves });
    }
    let place = |first_leaf, gpus| Seats::from(Place { first_leaf, gpus_per_leaf, gpus });
    Ok([place(0, trainer), place(trainer / gpus_per_leaf, pool)])
}

impl RlStep {
    /// Returns the phases with traffic on a fabric with `leaves` leaves.
    pub fn phases(&self, leaves: usize) -> Result<Vec<Phase>, RlStepError> {
        self.phases_with(leaves, WeightSyncFile::default())
    }

    /// Like [`RlStep::phases`], with a given method of distributing new weights.
    pub fn phases_with(
        &self,
        leaves: usize,
        sync: WeightSyncFile,
    ) -> Result<Vec<Phase>, RlStepError> {
        self.refuse_bad_sizes()?;
        let (trainer, pool) = (self.training(), self.pool());
        let mut train = trainer.micro_batch_traffic(Demand::none(leaves));
        train.add_all(&pool.traffic(leaves));
        self.add_samples(&mut train);
        let fan_out = match sync.method {
            SyncMethod::Relay => FanOut::Tree(2),
            SyncMethod::Broadcast => FanOut::Star,
            SyncMethod::Shards => FanOut::Shards { tp: self.tp, pp: self.pp },
        };
        let size = Bytes((self.card.weight_bytes().0 as f64 * sync.delta_share).round() as u64);
        let sync = weight_sync::traffic(leaves, size, &self.trainer, &pool, fan_out);
        let switch = parallelism_switch::traffic(
            leaves,
            &self.card,
            &self.pool,
            self.replica_gpus,
            self.tail_replica_gpus,
        );
        let Slack { train: before_train, gradients, weight_sync, parallelism_switch } = self.slack;
        let phases = [
            ("train+generate", train, before_train),
            ("gradients", trainer.data_parallel_traffic(Demand::none(leaves)), gradients),
            ("weight-sync", sync, weight_sync),
            ("parallelism-switch", switch, parallelism_switch),
        ];
        Ok(phases
            .into_iter()
            .filter(|(_, demand, _)| *demand != Demand::none(leaves))
            .map(|(name, demand, slack)| Phase { job: None, name: name.into(), demand, slack })
            .collect())
    }

    /// Token ids and log-probabilities have 4 bytes each. Training leaves get equal parts.
    fn add_samples(&self, demand: &mut Demand) {
        const BYTES_PER_TOKEN: u64 = 8;
        let (pool, trainer) = (self.pool.leaves(), self.trainer.leaves());
        let tokens = u64::from(self.samples) * u64::from(self.tokens_per_sample);
        let pairs = (pool.len() * trainer.len()).max(1) as u64;
        for from in &pool {
            for to in &trainer {
                demand.send(*from, *to, Bytes(tokens * BYTES_PER_TOKEN / pairs));
            }
        }
    }

    fn refuse_bad_sizes(&self) -> Result<(), RlStepError> {
        let (trainer, pool) = (self.trainer.count(), self.pool.count());
        divides("tp", "trainer GPUs by tp·pp", trainer, self.tp.saturating_mul(self.pp))?;
        divides("ep", "data-parallel ranks by ep", self.dp(), self.ep)?;
        divides("samples", "samples by data-parallel ranks", self.samples, self.dp())?;
        divides("replica_gpus", "generation GPUs by replica GPUs", pool, self.replica_gpus)?;
        let tail = self.tail_replica_gpus;
        divides("tail_replica_gpus", "generation GPUs by tail replica GPUs", pool, tail)?;
        let tokens = u64::from(self.samples) * u64::from(self.tokens_per_sample);
        if tokens > TOKENS_MAX {
            return Err(RlStepError::TooManyTokens { tokens });
        }
        Ok(())
    }

    fn dp(&self) -> u32 {
        self.trainer.count() / (self.tp * self.pp)
    }

    fn training(&self) -> Training {
        Training {
            card: self.card.clone(),
            seats: self.trainer.clone(),
            cp: 1,
            tp: self.tp,
            pp: self.pp,
            dp: self.dp(),
            ep: self.ep,
            sharding: Sharding::Replicated,
            micro_batches: self.samples / self.dp(),
            tokens: self.tokens_per_sample,
            expert_skew: self.expert_skew,
            seed: self.seed,
        }
    }

    fn pool(&self) -> Generation {
        let replicas = u64::from(self.pool.count() / self.replica_gpus);
        let tokens = u64::from(self.samples) * u64::from(self.tokens_per_sample) / replicas;
        Generation {
            card: self.card.clone(),
            seats: self.pool.clone(),
            replica_gpus: self.replica_gpus,
            tokens,
            migrated_tokens: (tokens as f64 * self.migrated_share) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfabric::testkit::dense_card;

    fn step() -> RlStep {
        let [trainer, pool] = leaf_after_leaf([64, 64], 8, 16).unwrap();
        RlStep {
            card: dense_card(),
            trainer,
            pool,
            tp: 8,
            pp: 2,
            ep: 1,
            expert_skew: 0.0,
            samples: 64,
            tokens_per_sample: 8_192,
            replica_gpus: 16,
            tail_replica_gpus: 8,
            migrated_share: 0.1,
            slack: Slack {
                train: Picoseconds::ZERO,
                gradients: Picoseconds::ZERO,
                weight_sync: Picoseconds::from_millis(500),
                parallelism_switch: Picoseconds::ZERO,
            },
            seed: Seed(0),
        }
    }

    #[test]
    fn step_has_its_phases_and_sends_weights_once_per_replica() {
        let phases = step().phases(16).unwrap();
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["train+generate", "gradients", "weight-sync", "parallelism-switch"]);
        assert_eq!(phases[2].demand.total(), Bytes(4 * 145_400_000_000));
        assert_eq!(phases[2].slack, Picoseconds::from_millis(500));
        let same = RlStep { tail_replica_gpus: 16, ..step() };
        assert_eq!(
            same.phases(16).unwrap().len(),
            3,
            "equal parallelism does not require a switch"
        );
        let joined = RlStep { replica_gpus: 8, tail_replica_gpus: 16, ..step() };
        let switch = &joined.phases(16).unwrap()[3].demand;
        assert_eq!(switch.total(), Bytes(0), "each leaf holds all weights already");
    }

    #[test]
    fn error_names_the_size_that_does_not_fit() {
        let message = |step: RlStep, leaves| step.phases(leaves).unwrap_err().to_string();
        let too_few = leaf_after_leaf([64, 64], 8, 15).unwrap_err().to_string();
        assert!(too_few.contains("needs 16 leaves"));
        assert!(
            message(RlStep { tp: 6, ..step() }, 16).contains("tp·pp: 64 is not a multiple of 12")
        );
        assert!(message(RlStep { replica_gpus: 0, ..step() }, 16).contains("multiple of 0"));
    }
}
