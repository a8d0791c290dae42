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

use lightloom_fabric::file::{RlFile, ShardingFile, SyncMethod};
use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::super::mistake::Mistake;
use super::super::phases::Phase;
use super::card::ModelCard;
use super::generation::Generation;
use super::parallelism_switch;
use super::place::{Place, Seats};
use super::training::Training;
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
    /// Parallelism, samples, slack and weight distribution. Its numbers of GPUs and its model are not used.
    pub raw: RlFile,
}

/// This limit is far above any real step and keeps byte counts within 64 bits.
const TOKENS_MAX: u64 = 10_000_000_000;

fn divides(
    field: &'static str,
    what: &'static str,
    whole: u32,
    part: u32,
) -> Result<(), Vec<Mistake>> {
    if part > 0 && whole.is_multiple_of(part) {
        return Ok(());
    }
    let message =
        format!("{what}: {whole} is not a multiple of {part}; choose a divisor of {whole}");
    Err(mistake_in(field, message))
}

fn mistake_in(field: &str, message: String) -> Vec<Mistake> {
    Mistake::within(&format!("/rl/{field}"), Mistake::of_whole(message, ""))
}

/// Places the trainer on the first leaves and the pool on the following ones.
///
/// # Errors
/// Fails if the trainer does not fill whole leaves or the GPUs do not fit.
pub fn leaf_after_leaf(
    [trainer, pool]: [u32; 2],
    gpus_per_leaf: u32,
    leaves: usize,
) -> Result<[Seats; 2], Vec<Mistake>> {
    divides("trainer_gpus", "trainer GPUs by GPUs per leaf", trainer, gpus_per_leaf)?;
    let needed = trainer.saturating_add(pool).div_ceil(gpus_per_leaf);
    if needed as usize > leaves {
        let message = format!(
            "the step needs {needed} leaves, but the fabric has {leaves}; add leaves or use fewer GPUs"
        );
        return Err(mistake_in("generation_gpus", message));
    }
    Ok([(0, trainer), (trainer / gpus_per_leaf, pool)]
        .map(|(first_leaf, gpus)| Place { first_leaf, gpus_per_leaf, gpus }.into()))
}

impl RlStep {
    /// Returns the phases with traffic on a fabric with `leaves` leaves.
    pub fn phases(&self, leaves: usize) -> Result<Vec<Phase>, Vec<Mistake>> {
        self.refuse_bad_sizes()?;
        let RlFile { tp, pp, replica_gpus, weight_sync: sync, slack, .. } = &self.raw;
        let (trainer, pool) = (self.training(), self.pool());
        let mut train = trainer.micro_batch_traffic(Demand::none(leaves));
        train.add_all(&pool.traffic(leaves));
        self.add_samples(&mut train);
        let fan_out = match sync.method {
            SyncMethod::Relay => FanOut::Tree(2),
            SyncMethod::Broadcast => FanOut::Star,
            SyncMethod::Shards => FanOut::Shards { tp: *tp, pp: *pp },
        };
        let size = Bytes((self.card.weight_bytes().0 as f64 * sync.delta_share).round() as u64);
        let sync = weight_sync::traffic(leaves, size, &self.trainer, &pool, fan_out);
        let tail = self.tail_replica_gpus();
        let switch =
            parallelism_switch::traffic(leaves, &self.card, &self.pool, *replica_gpus, tail);
        let gradients = trainer.data_parallel_traffic(Demand::none(leaves));
        let phases = [
            ("train+generate", train, slack.train.0),
            ("gradients", gradients, slack.gradients.0),
            ("weight-sync", sync, slack.weight_sync.0),
            ("parallelism-switch", switch, slack.parallelism_switch.0),
        ];
        Ok(phases
            .into_iter()
            .filter(|(_, demand, _)| *demand != Demand::none(leaves))
            .map(|(name, demand, slack)| Phase { job: None, name: name.into(), demand, slack })
            .collect())
    }

    fn tail_replica_gpus(&self) -> u32 {
        self.raw.tail_replica_gpus.unwrap_or(self.raw.replica_gpus)
    }

    fn tokens(&self) -> u64 {
        u64::from(self.raw.samples) * u64::from(self.raw.tokens_per_sample)
    }

    /// Token ids and log-probabilities have 4 bytes each. Training leaves get equal parts.
    fn add_samples(&self, demand: &mut Demand) {
        const BYTES_PER_TOKEN: u64 = 8;
        let (pool, trainer) = (self.pool.leaves(), self.trainer.leaves());
        let pairs = (pool.len() * trainer.len()).max(1) as u64;
        for from in &pool {
            for to in &trainer {
                demand.send(*from, *to, Bytes(self.tokens() * BYTES_PER_TOKEN / pairs));
            }
        }
    }

    fn refuse_bad_sizes(&self) -> Result<(), Vec<Mistake>> {
        let (trainer, pool) = (self.trainer.count(), self.pool.count());
        let RlFile { tp, pp, ep, samples, replica_gpus, .. } = self.raw;
        divides("tp", "trainer GPUs by tp·pp", trainer, tp.saturating_mul(pp))?;
        divides("ep", "data-parallel ranks by ep", self.dp(), ep)?;
        divides("samples", "samples by data-parallel ranks", samples, self.dp())?;
        divides("replica_gpus", "generation GPUs by replica GPUs", pool, replica_gpus)?;
        let tail = self.tail_replica_gpus();
        divides("tail_replica_gpus", "generation GPUs by tail replica GPUs", pool, tail)?;
        let tokens = self.tokens();
        if tokens > TOKENS_MAX {
            let message = format!("{tokens} tokens per step exceed the maximum of {TOKENS_MAX}");
            return Err(mistake_in("samples", message));
        }
        Ok(())
    }

    fn dp(&self) -> u32 {
        self.trainer.count() / (self.raw.tp * self.raw.pp)
    }

    fn training(&self) -> Training {
        Training {
            card: self.card.clone(),
            seats: self.trainer.clone(),
            cp: 1,
            tp: self.raw.tp,
            pp: self.raw.pp,
            dp: self.dp(),
            ep: self.raw.ep,
            sharding: ShardingFile::Replicated,
            micro_batches: self.raw.samples / self.dp(),
            tokens: self.raw.tokens_per_sample,
            expert_skew: self.raw.expert_skew,
            seed: Seed(self.raw.seed),
        }
    }

    fn pool(&self) -> Generation {
        let tokens = self.tokens() / u64::from(self.pool.count() / self.raw.replica_gpus);
        Generation {
            card: self.card.clone(),
            seats: self.pool.clone(),
            replica_gpus: self.raw.replica_gpus,
            tokens,
            migrated_tokens: (tokens as f64 * self.raw.migrated_share) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfabric::testkit::dense_card;
    use lightloom_fabric::file::{SlackFile, WeightSyncFile};
    use lightloom_units::{Picoseconds, Text};

    fn step() -> RlStep {
        let [trainer, pool] = leaf_after_leaf([64, 64], 8, 16).unwrap();
        let slack =
            SlackFile { weight_sync: Text(Picoseconds::from_millis(500)), ..SlackFile::default() };
        let raw = RlFile {
            model: String::new(),
            trainer_gpus: 64,
            generation_gpus: 64,
            tp: 8,
            pp: 2,
            ep: 1,
            expert_skew: 0.0,
            samples: 64,
            tokens_per_sample: 8_192,
            replica_gpus: 16,
            tail_replica_gpus: Some(8),
            migrated_share: 0.1,
            weight_sync: WeightSyncFile::default(),
            slack,
            seed: 0,
        };
        RlStep { card: dense_card(), trainer, pool, raw }
    }

    fn with(change: impl FnOnce(&mut RlFile)) -> RlStep {
        let mut step = step();
        change(&mut step.raw);
        step
    }

    #[test]
    fn step_has_its_phases_and_sends_weights_once_per_replica() {
        let phases = step().phases(16).unwrap();
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["train+generate", "gradients", "weight-sync", "parallelism-switch"]);
        assert_eq!(phases[2].demand.total(), Bytes(4 * 145_400_000_000));
        assert_eq!(phases[2].slack, Picoseconds::from_millis(500));
        let same = with(|raw| raw.tail_replica_gpus = None);
        assert_eq!(
            same.phases(16).unwrap().len(),
            3,
            "equal parallelism does not require a switch"
        );
        let joined = with(|raw| (raw.replica_gpus, raw.tail_replica_gpus) = (8, Some(16)));
        let switch = &joined.phases(16).unwrap()[3].demand;
        assert_eq!(switch.total(), Bytes(0), "each leaf holds all weights already");
    }

    #[test]
    fn error_names_the_size_that_does_not_fit() {
        let message = |step: RlStep, leaves| step.phases(leaves).unwrap_err()[0].message.clone();
        let too_few = leaf_after_leaf([64, 64], 8, 15).unwrap_err()[0].message.clone();
        assert!(too_few.contains("needs 16 leaves"));
        assert!(message(with(|raw| raw.tp = 6), 16).contains("tp·pp: 64 is not a multiple of 12"));
        assert!(message(with(|raw| raw.replica_gpus = 0), 16).contains("multiple of 0"));
    }
}
