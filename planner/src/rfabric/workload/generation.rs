// SPDX-License-Identifier: Apache-2.0
//! Generation by replicas, with traffic within each replica and caches that migrate between replicas.
//!
//! | traffic | bytes |
//! | --- | --- |
//! | tensor parallelism | 2 all-reduces of h·b per layer and token |
//! | expert parallelism | 2 all-to-alls of top_k·h·b per mixture-of-experts layer and token |
//! | migration of a request to another replica | its length in tokens × cache bytes per token |
//!
//! Without migration, the demand consists of isolated pods, RFabric's template for this phase.

use lightloom_units::Bytes;

use super::super::demand::{Demand, Seat};
use super::card::ModelCard;
use super::collective::{all_reduce, dispatch_and_combine, share};
use super::place::Seats;

/// A pool of equal replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The model.
    pub card: ModelCard,
    /// Seats of the GPUs.
    pub seats: Seats,
    /// GPUs per replica, which are expert-parallel ranks if there are experts and tensor-parallel ranks otherwise.
    pub replica_gpus: u32,
    /// Tokens that one replica reads or writes in the phase.
    pub tokens: u64,
    /// Tokens whose cache migrates from each replica to the next.
    pub migrated_tokens: u64,
}

impl Generation {
    /// Returns the number of replicas.
    pub fn replicas(&self) -> u32 {
        self.seats.count() / self.replica_gpus
    }

    /// Returns the seats of one replica's GPUs.
    pub fn ranks(&self, replica: u32) -> &[Seat] {
        let first = (replica * self.replica_gpus) as usize;
        &self.seats.0[first..first + self.replica_gpus as usize]
    }

    /// Returns the traffic of the phase.
    pub fn traffic(&self, leaves: usize) -> Demand {
        let mut demand = Demand::none(leaves);
        for replica in 0..self.replicas() {
            self.add_replica(&mut demand, self.ranks(replica));
            let next = self.ranks((replica + 1) % self.replicas());
            self.add_migration(&mut demand, self.ranks(replica), next);
        }
        demand
    }

    fn add_replica(&self, demand: &mut Demand, ranks: &[Seat]) {
        let residual = self.card.token_bytes() * self.tokens;
        match self.card.experts {
            None => all_reduce(demand, ranks, residual * (2 * u64::from(self.card.layers))),
            Some(experts) => {
                let all = residual * u64::from(experts.layers) * u64::from(experts.top_k);
                let size = share(all, 1, ranks.len() as u64);
                dispatch_and_combine(demand, ranks, size, &vec![1.0; ranks.len()]);
            }
        }
    }

    fn add_migration(&self, demand: &mut Demand, from: &[Seat], to: &[Seat]) {
        let all = self.card.cache_bytes_per_token() * self.migrated_tokens;
        let part = Bytes(all.0 / from.len() as u64);
        for (from, to) in from.iter().zip(to) {
            demand.send(*from, *to, part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::rfabric::testkit::dense_card;
    use lightloom_units::id::LeafId;

    #[test]
    fn dense_replica_uses_a_ring_and_a_mixture_exchanges() {
        let place = Place { first_leaf: 2, gpus_per_leaf: 8, gpus: 32 };
        let dense = Generation {
            card: dense_card(),
            seats: place.into(),
            replica_gpus: 16,
            tokens: 10,
            migrated_tokens: 0,
        };
        let demand = dense.traffic(6);
        assert_eq!(demand.bytes(LeafId(2), LeafId(3)).0, 2 * 80 * 8192 * 2 * 10 * 2 * 15 / 16);
        assert_eq!(demand.bytes(LeafId(3), LeafId(4)), Bytes(0), "replicas keep to themselves");
        let mixture = Generation { card: ModelCard::named("deepseek-v3").unwrap(), ..dense };
        // Half of the traffic among 16 ranks crosses between the leaves in either direction.
        let formula = 10 * 58 * 8 * 7168 * 2;
        assert_eq!(mixture.traffic(6).bytes(LeafId(2), LeafId(3)).0, formula / 2);
    }

    #[test]
    fn migrated_caches_have_the_size_of_their_tokens() {
        let pool = Generation {
            card: dense_card(),
            seats: Place { first_leaf: 0, gpus_per_leaf: 8, gpus: 16 }.into(),
            replica_gpus: 8,
            tokens: 0,
            migrated_tokens: 1_000,
        };
        assert_eq!(pool.traffic(2).bytes(LeafId(0), LeafId(1)).0, 1_000 * (320 << 10));
    }
}
