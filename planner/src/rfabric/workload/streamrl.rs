// SPDX-License-Identifier: Apache-2.0
//! StreamRL (arXiv 2504.15930): samples stream from generation to training one by one.
//!
//! Bytes per sample: tokens × (4 bytes of token id + 4 bytes of log-probability). Its weights are
//! sent over several balanced broadcast trees: [`weight_sync`](super::weight_sync). Between data
//! centres it sends only from the first data-parallel rank.

use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::place::Seats;

const BYTES_PER_TOKEN: u64 = 8;

/// Returns `tokens` of samples, split evenly over all pairs of a pool leaf and a trainer leaf. All
/// leaves count as full.
#[must_use]
pub fn samples(leaves: usize, pool: &Seats, trainer: &Seats, tokens: u64) -> Demand {
    let mut demand = Demand::none(leaves);
    let (pool, trainer) = (pool.leaves(), trainer.leaves());
    let pairs = (pool.len() * trainer.len()).max(1) as u64;
    for from in &pool {
        for to in &trainer {
            demand.send(*from, *to, Bytes(tokens * BYTES_PER_TOKEN / pairs));
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use lightloom_units::id::LeafId;

    #[test]
    fn samples_have_eight_bytes_per_token() {
        let trainer = Place { first_leaf: 0, gpus_per_leaf: 2, gpus: 4 };
        let pool = Place { first_leaf: 2, ..trainer };
        let demand = samples(4, &pool.into(), &trainer.into(), 1_600);
        assert_eq!(demand.total(), Bytes(12_800));
        assert_eq!(demand.bytes(LeafId(2), LeafId(1)), Bytes(3_200));
        assert_eq!(demand.bytes(LeafId(1), LeafId(2)), Bytes(0));
    }
}
