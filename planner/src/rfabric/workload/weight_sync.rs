// SPDX-License-Identifier: Apache-2.0
//! Distribution of new weights from the trainer to every replica.
//!
//! By leaf, each leaf of the trainer holds an equal shard of the weights and sends shard s to one
//! replica, which forwards it. The first replica rotates with s, so that the trees spread over the
//! links of all replicas. The total is params·b × replicas; with trees, only params·b leaves the
//! trainer. By GPU, each GPU of a replica receives its part from the trainer ranks that hold it.
//!
//! RFabric proposes a tree for this phase; StreamRL (arXiv 2504.15930) uses several balanced ones.

use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::super::demand::Demand;
use super::collective::share;
use super::generation::Generation;
use super::place::Seats;

/// How a shard reaches the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOut {
    /// Each replica forwards to at most this many others; 1 results in a chain.
    Tree(u32),
    /// The trainer sends directly to every replica.
    Star,
    /// Each trainer rank sends its part of the weights to the GPUs that will hold it.
    Shards {
        /// Tensor-parallel ranks of the trainer.
        tp: u32,
        /// Pipeline stages of the trainer.
        pp: u32,
    },
}

/// Returns the traffic of one synchronisation of `size` bytes per replica.
pub fn traffic(
    leaves: usize,
    size: Bytes,
    trainer: &Seats,
    pool: &Generation,
    fan_out: FanOut,
) -> Demand {
    if let FanOut::Shards { tp, pp } = fan_out {
        return shards(leaves, size, trainer, pool, [tp, pp]);
    }
    let mut demand = Demand::none(leaves);
    let roots = trainer.leaves();
    let count = roots.len() as u64;
    for (shard, root) in (0..).zip(roots) {
        let size = part(size, u64::from(shard), u64::from(shard) + 1, count);
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

fn part(size: Bytes, first: u64, end: u64, whole: u64) -> Bytes {
    Bytes(share(size, end, whole).0 - share(size, first, whole).0)
}

/// Each trainer stage holds 1/pp of the layers, and each tensor rank 1/tp of each layer. GPU i of g
/// in a replica holds [i/g, (i+1)/g) of every layer. Data-parallel ranks send equal parts.
fn shards(
    leaves: usize,
    size: Bytes,
    trainer: &Seats,
    pool: &Generation,
    [tp, pp]: [u32; 2],
) -> Demand {
    let mut demand = Demand::none(leaves);
    let copies = trainer.count() / (tp * pp);
    let whole = [tp, pp, copies, pool.replica_gpus].into_iter().map(u64::from).product();
    for replica in 0..pool.replicas() {
        let mut end = 0;
        for stage in 0..pp {
            for (gpu, to) in (0..).zip(pool.ranks(replica)) {
                // Ranges count parts of 1/(tp·g) of a layer.
                let wanted = gpu * tp..(gpu + 1) * tp;
                for holder in
                    wanted.start / pool.replica_gpus..=(wanted.end - 1) / pool.replica_gpus
                {
                    let held = holder * pool.replica_gpus..(holder + 1) * pool.replica_gpus;
                    let common = wanted.end.min(held.end) - wanted.start.max(held.start);
                    for copy in 0..copies {
                        let from = trainer.0[(holder + tp * (copy + copies * stage)) as usize];
                        let first = end;
                        end += u64::from(common);
                        demand.send(from, *to, part(size, first, end, whole));
                    }
                }
            }
        }
    }
    demand
}

fn member(pool: &Generation, position: u32, shard: u32) -> LeafId {
    let replica = (position + shard) % pool.replicas();
    let leaves = Seats(pool.ranks(replica).to_vec()).leaves();
    leaves[shard as usize % leaves.len()]
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use crate::rfabric::testkit::dense_card;
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
        let demand = traffic(8, dense_card().weight_bytes(), &trainer.into(), &pool, fan_out);
        let cut = demand.flows().filter(|(from, ..)| from.0 < 4).map(|(_, _, bytes)| bytes.0).sum();
        (demand, cut)
    }

    #[test]
    fn tree_crosses_the_cut_once_and_a_star_once_per_replica() {
        let weights = 145_400_000_000;
        let (tree, cut) = case(FanOut::Tree(2));
        assert_eq!((tree.total(), cut), (Bytes(4 * weights), weights));
        let (star, cut) = case(FanOut::Star);
        assert_eq!((star.total(), cut), (Bytes(4 * weights), 4 * weights));
    }

    #[test]
    fn every_replica_receives_every_shard() {
        let shards = FanOut::Shards { tp: 4, pp: 2 };
        for fan_out in [FanOut::Tree(1), FanOut::Tree(2), FanOut::Star, shards] {
            let (demand, _) = case(fan_out);
            for leaf in 4..8 {
                let received: u64 =
                    demand.flows().filter(|(_, to, _)| to.0 == leaf).map(|(.., b)| b.0).sum();
                assert_eq!(received, 145_400_000_000, "leaf{leaf} under {fan_out:?}");
            }
        }
    }

    /// The sizes do not divide evenly, with tensor parallelism of 4 and 3 and replicas of 6.
    #[test]
    fn every_gpu_receives_exactly_its_shard() {
        for (tp, pp) in [(4, 2), (3, 2), (8, 3), (1, 1), (24, 1)] {
            let trainer = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 24 };
            let pool = Generation {
                card: dense_card(),
                seats: Place { first_leaf: 24, gpus_per_leaf: 1, gpus: 12 }.into(),
                replica_gpus: 6,
                tokens: 0,
                migrated_tokens: 0,
            };
            let size = Bytes(1_000_003);
            let demand = traffic(36, size, &trainer.into(), &pool, FanOut::Shards { tp, pp });
            let received = |leaf: u32| -> u64 {
                demand.flows().filter(|(_, to, _)| to.0 == leaf).map(|(.., b)| b.0).sum()
            };
            for replica in [24..30, 30..36] {
                assert_eq!(replica.clone().map(received).sum::<u64>(), size.0, "tp {tp}, pp {pp}");
                for leaf in replica {
                    assert!(received(leaf).abs_diff(size.0 / 6) <= u64::from(pp), "leaf{leaf}");
                }
            }
            for leaf in 0..24 {
                let sent: u64 =
                    demand.flows().filter(|(from, ..)| from.0 == leaf).map(|(.., b)| b.0).sum();
                assert!(sent.abs_diff(2 * size.0 / 24) <= 12, "leaf{leaf} sends {sent}");
            }
        }
    }
}
