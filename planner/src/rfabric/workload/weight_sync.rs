// SPDX-License-Identifier: Apache-2.0
//! New weights from the trainer to every replica: each byte crosses the cut once per tree and fans out.
//!
//! The trainer's leaves each hold an equal shard of the weights. Shard s is sent to one replica and
//! handed on from replica to replica; which replica is first rotates with s, so that no replica's
//! links carry all the trees. In total params·b × replicas; across the cut params·b.
//!
//! RFabric names a tree for this phase; StreamRL (arXiv 2504.15930) uses several balanced ones.

use lightloom_units::id::LeafId;

use super::super::demand::Demand;
use super::card::ModelCard;
use super::collective::share;
use super::generation::Generation;
use super::place::Seats;

/// How a shard reaches the replicas after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// Each replica hands on to up to this many others. 1 is a chain.
    Tree(u32),
    /// The trainer sends to every replica itself.
    Star,
}

/// The traffic of one synchronisation.
#[must_use]
pub fn traffic(
    leaves: usize,
    card: &ModelCard,
    trainer: &Seats,
    pool: &Generation,
    fan_out: FanOut,
) -> Demand {
    let mut demand = Demand::none(leaves);
    let roots = trainer.leaves();
    let size = share(card.weight_bytes(), 1, roots.len() as u64);
    for (shard, root) in (0..).zip(roots) {
        for position in 0..pool.replicas() {
            let to = member(pool, position, shard);
            let from = match fan_out {
                FanOut::Tree(width) if position > 0 => {
                    member(pool, (position - 1) / width.max(1), shard)
                }
                _ => root,
            };
            demand.send(from, to, size);
        }
    }
    demand
}

/// The leaf that takes `shard` in the replica at `position` of the shard's tree.
fn member(pool: &Generation, position: u32, shard: u32) -> LeafId {
    let replica = (position + shard) % pool.replicas();
    let leaves = Seats(pool.ranks(replica).to_vec()).leaves();
    leaves[shard as usize % leaves.len()]
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::rfabric::testing::dense_card;
    use lightloom_units::Bytes;

    fn case(fan_out: FanOut) -> (Demand, u64) {
        let trainer = Place { first_leaf: 0, gpus_per_leaf: 8, gpus: 32 };
        let pool = Generation {
            card: dense_card(),
            seats: Place { first_leaf: 4, gpus_per_leaf: 8, gpus: 32 }.into(),
            replica_gpus: 8,
            tokens: 0,
            migrated_tokens: 0,
        };
        let demand = traffic(8, &dense_card(), &trainer.into(), &pool, fan_out);
        let cut = demand.flows().filter(|(from, ..)| from.0 < 4).map(|(_, _, bytes)| bytes.0).sum();
        (demand, cut)
    }

    #[test]
    fn a_tree_crosses_the_cut_once_and_a_star_once_a_replica() {
        let weights = 145_400_000_000;
        let (tree, cut) = case(FanOut::Tree(2));
        assert_eq!((tree.total(), cut), (Bytes(4 * weights), weights));
        let (star, cut) = case(FanOut::Star);
        assert_eq!((star.total(), cut), (Bytes(4 * weights), 4 * weights));
    }

    #[test]
    fn every_replica_receives_every_shard() {
        for fan_out in [FanOut::Tree(1), FanOut::Tree(2), FanOut::Star] {
            let (demand, _) = case(fan_out);
            for leaf in 4..8 {
                let received: u64 =
                    demand.flows().filter(|(_, to, _)| to.0 == leaf).map(|(.., b)| b.0).sum();
                assert_eq!(received, 145_400_000_000, "leaf{leaf} under {fan_out:?}");
            }
        }
    }
}
