// SPDX-License-Identifier: Apache-2.0
//! A change of parallelism in the generation pool, where every GPU fetches the weights that it lacks.
//!
//! With `before` GPUs per replica, GPU i of a replica holds the share [i/before, (i+1)/before);
//! with `after`, [j/after, (j+1)/after). It keeps the overlap and fetches the rest from GPUs of its
//! old replica. The total is params·b × new replicas × (1 − overlap).

use super::super::demand::Demand;
use super::card::ModelCard;
use super::collective::share;
use super::place::Seats;

/// Returns the traffic for a change from `before` to `after` GPUs per replica.
///
/// # Panics
/// Panics if the pool does not divide into replicas of both sizes.
pub fn traffic(leaves: usize, card: &ModelCard, pool: &Seats, before: u32, after: u32) -> Demand {
    assert!(pool.count().is_multiple_of(before) && pool.count().is_multiple_of(after));
    let seat = |gpu: u32| pool.0[gpu as usize];
    let mut demand = Demand::none(leaves);
    for gpu in 0..pool.count() {
        let (replica, mine) = (gpu / before, gpu % before);
        // Ranges count parts of 1/(before·after) of the weights.
        let wanted = (gpu % after) * before..(gpu % after + 1) * before;
        for holder in 0..before {
            let held = holder * after..(holder + 1) * after;
            let common = wanted.end.min(held.end).saturating_sub(wanted.start.max(held.start));
            if common > 0 && holder != mine {
                let size = share(
                    card.weight_bytes(),
                    u64::from(common),
                    u64::from(before) * u64::from(after),
                );
                demand.send(seat(replica * before + holder), seat(gpu), size);
            }
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::rfabric::testkit::dense_card;
    use lightloom_units::Bytes;
    use lightloom_units::id::LeafId;

    #[test]
    fn halving_a_replica_fetches_the_missing_weights() {
        let pool = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 4 };
        let card = dense_card();
        let quarter = card.weight_bytes().0 / 4;
        // Before [0,¼) [¼,½) [½,¾) [¾,1); after [0,½) [½,1) [0,½) [½,1).
        let demand = traffic(4, &card, &pool.into(), 4, 2);
        assert_eq!(demand.bytes(LeafId(1), LeafId(0)), Bytes(quarter));
        assert_eq!(demand.bytes(LeafId(2), LeafId(1)), Bytes(quarter));
        assert_eq!(demand.bytes(LeafId(0), LeafId(2)), Bytes(quarter));
        assert_eq!(demand.bytes(LeafId(2), LeafId(3)), Bytes(quarter));
        assert_eq!(demand.total(), Bytes(6 * quarter), "GPUs 0 and 3 each keep a quarter");
    }

    #[test]
    fn unchanged_parallelism_causes_no_traffic() {
        let pool = Place { first_leaf: 0, gpus_per_leaf: 2, gpus: 16 };
        assert_eq!(traffic(8, &dense_card(), &pool.into(), 8, 8).total(), Bytes(0));
    }
}
