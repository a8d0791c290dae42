// SPDX-License-Identifier: Apache-2.0
//! RLHFuse (arXiv 2409.13221): when few samples remain, their caches move to a few instances and
//! the others start the next stage.
//!
//! Number of remaining instances: m = max(R/BS, R·M/C) for R remaining samples, batch size BS per
//! instance, M bytes of cache per sample and C bytes of cache per instance. Bytes per moved sample:
//! its length × cache bytes per token. (From a reading note.)

use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::generation::Generation;

/// The long tail of a generation phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Unfinished samples, over all instances.
    pub remaining: u32,
    /// Tokens of each sample so far.
    pub tokens: u64,
    /// Maximum batch size of one instance, in samples.
    pub batch_max: u32,
    /// Cache of one instance.
    pub cache: Bytes,
}

impl Tail {
    /// Returns the number of instances that the remaining samples need.
    #[must_use]
    pub fn instances(&self, pool: &Generation) -> u32 {
        let by_batch = self.remaining.div_ceil(self.batch_max);
        let need = pool.card.cache_bytes_per_token().0 * self.tokens * u64::from(self.remaining);
        let by_cache = u32::try_from(need.div_ceil(self.cache.0)).unwrap_or(u32::MAX);
        by_batch.max(by_cache).clamp(1, pool.replicas())
    }

    /// Returns the transfer of caches from the freed instances to the remaining ones, round-robin.
    #[must_use]
    pub fn migration(&self, leaves: usize, pool: &Generation) -> Demand {
        let mut demand = Demand::none(leaves);
        let stay = self.instances(pool);
        let sample = pool.card.cache_bytes_per_token().0 * self.tokens;
        for sample_index in 0..self.remaining {
            let from = sample_index % pool.replicas();
            if from >= stay {
                let to = pool.ranks(sample_index % stay);
                for (from, to) in pool.ranks(from).iter().zip(to) {
                    demand.send(*from, *to, Bytes(sample / u64::from(pool.replica_gpus)));
                }
            }
        }
        demand
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::rfabric::testing::dense_card;

    fn pool() -> Generation {
        Generation {
            card: dense_card(),
            seats: Place { first_leaf: 0, gpus_per_leaf: 8, gpus: 64 }.into(),
            replica_gpus: 8,
            tokens: 0,
            migrated_tokens: 0,
        }
    }

    #[test]
    fn larger_of_batch_and_cache_limits_the_remaining_instances() {
        let tail = Tail { remaining: 16, tokens: 1_000, batch_max: 8, cache: Bytes(100 << 30) };
        assert_eq!(tail.instances(&pool()), 2, "16 samples, 8 a batch");
        // 16 x 1,000 tokens x 320 KiB are 4.9 GiB.
        assert_eq!(Tail { cache: Bytes(1 << 30), ..tail }.instances(&pool()), 5);
    }

    #[test]
    fn only_samples_of_freed_instances_move() {
        let tail = Tail { remaining: 16, tokens: 1_000, batch_max: 8, cache: Bytes(100 << 30) };
        let moved = tail.migration(8, &pool()).total();
        assert_eq!(moved, Bytes(12 * 1_000 * (320 << 10)), "two samples on each of six instances");
    }
}
