// SPDX-License-Identifier: Apache-2.0
//! Rederives the traffic of a reinforcement-learning step rank by rank in floating point. Shares
//! only the model's dimensions with the planner. The first groups of the job are the trainer.

use std::collections::BTreeMap;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::file::{MappingFile, RlFile, ShardingFile, SyncMethod};
use lightloom_fabric::plan::{Plan, Rank};
use lightloom_units::id::LeafId;

use super::Violation;
use super::network::{Grid, Named, Place, Sent, Step};
use crate::rfabric::workload::card::ModelCard;

/// Token id and log-probability of one sampled token, in bytes.
const SAMPLE_TOKEN: f64 = 8.0;

pub(super) fn expected(
    fabric: &Fabric,
    plan: &Plan,
    index: u32,
    raw: &RlFile,
    card: &ModelCard,
    found: &mut Vec<Violation>,
) -> Option<Named> {
    let mut own: Vec<&Rank> = plan.ranks.iter().filter(|rank| rank.job == Some(index)).collect();
    own.sort_by_key(|rank| (rank.dp, rank.tp));
    let all: Vec<Place> = own
        .iter()
        .map(|rank| Place {
            leaf: fabric.dcn.leaf_of(rank.gpu),
            island: fabric.hbd.island_of(rank.gpu, rank.group.0),
            gpu: Some(rank.gpu),
        })
        .collect();
    let (trainer, pool) = all.split_at_checked(raw.trainer_gpus as usize)?;
    let tail = raw.tail_replica_gpus.unwrap_or(raw.replica_gpus);
    let mut sizes = [raw.replica_gpus, tail].into_iter().map(|size| size.max(1) as usize);
    let wanted = raw.generation_gpus as usize;
    let fits = sizes.all(|size| pool.len().is_multiple_of(size)) && pool.len() <= wanted;
    if !fits || (pool.len() < wanted && plan.given_up.is_empty()) {
        let job = fabric.jobs[index as usize].name.clone();
        found.push(Violation::Dimensions { job, ranks: all.len() });
        return None;
    }
    let data = raw.trainer_gpus / (raw.tp * raw.pp);
    let mut grid = Grid::new();
    for (number, place) in (0_u32..).zip(trainer) {
        let (tensor, group) = (number % raw.tp, number / raw.tp);
        grid.insert([tensor, 0, group % data, group / data], *place);
    }
    let mapping = MappingFile {
        model: raw.model.clone(),
        pp: raw.pp,
        dp: Some(data),
        cp: 1,
        ep: raw.ep,
        sharding: ShardingFile::Replicated,
        micro_batches: raw.samples / data,
        tokens: raw.tokens_per_sample,
        gradient_slack: raw.slack.gradients,
        micro_batch_slack: raw.slack.train,
        usable_share: 1.0,
    };
    let training = Step { grid: &grid, sizes: [raw.tp, 1, data, raw.pp], raw: &mapping, card };
    let pool = Pool { raw, card, places: pool };
    let mut train = training.micro_batches();
    pool.generate(&mut train);
    pool.send_samples(&mut train, trainer);
    let phases = [
        ("train+generate", train),
        ("gradients", training.gradients()),
        ("weight-sync", pool.new_weights(trainer)),
        ("parallelism-switch", pool.other_parallelism(tail)),
    ];
    let sends = phases.into_iter().filter(|(_, sent)| sent.total() > 0.0);
    Some(sends.map(|(name, sent)| (name.to_owned(), sent)).collect())
}

struct Pool<'a> {
    raw: &'a RlFile,
    card: &'a ModelCard,
    places: &'a [Place],
}

impl Pool<'_> {
    fn tokens(&self) -> f64 {
        f64::from(self.raw.samples) * f64::from(self.raw.tokens_per_sample)
    }

    fn replicas(&self) -> usize {
        self.places.len() / self.raw.replica_gpus as usize
    }

    fn replica(&self, number: usize) -> &[Place] {
        let size = self.raw.replica_gpus as usize;
        let first = number % self.replicas() * size;
        &self.places[first..first + size]
    }

    fn generate(&self, sent: &mut Sent) {
        let tokens = (self.tokens() / self.replicas() as f64).floor();
        let residual = self.card.token_bytes().0 as f64 * tokens;
        let cache = self.card.cache_bytes_per_token().0 as f64;
        let moved = cache * (tokens * self.raw.migrated_share).floor();
        for number in 0..self.replicas() {
            let (ranks, next) = (self.replica(number), self.replica(number + 1));
            let count = ranks.len();
            for (at, from) in ranks.iter().enumerate() {
                sent.send(*from, next[at], moved / count as f64);
                if count < 2 {
                    continue;
                }
                match self.card.experts {
                    None => {
                        let all = residual * 2.0 * f64::from(self.card.layers);
                        let share = 2.0 * (count - 1) as f64 / count as f64;
                        sent.send(*from, ranks[(at + 1) % count], all * share);
                    }
                    Some(experts) => {
                        let all = residual * f64::from(experts.layers) * f64::from(experts.top_k);
                        let to_each = 2.0 * all / (count * count) as f64;
                        for to in (0..count).filter(|to| *to != at) {
                            sent.send(*from, ranks[to], to_each);
                        }
                    }
                }
            }
        }
    }

    fn send_samples(&self, sent: &mut Sent, trainer: &[Place]) {
        let (from, to) = (leaves(self.places), leaves(trainer));
        let each = (self.tokens() * SAMPLE_TOKEN / (from.len() * to.len()) as f64).floor();
        for from in &from {
            for to in &to {
                sent.send(*from, *to, each);
            }
        }
    }

    fn new_weights(&self, trainer: &[Place]) -> Sent {
        let sync = self.raw.weight_sync;
        let weights = self.card.weight_bytes().0 as f64 * sync.delta_share;
        let mut sent = Sent::default();
        if sync.method == SyncMethod::Shards {
            self.own_shards(trainer, weights, &mut sent);
            return sent;
        }
        let roots = leaves(trainer);
        let shard = weights / roots.len() as f64;
        for (number, root) in roots.iter().enumerate() {
            for position in 0..self.replicas() {
                let is_first = position == 0 || sync.method == SyncMethod::Broadcast;
                let from = if is_first { *root } else { self.holder((position - 1) / 2, number) };
                sent.send(from, self.holder(position, number), shard);
            }
        }
        sent
    }

    /// Returns the leaf that holds shard `number` at a position of its tree.
    fn holder(&self, position: usize, number: usize) -> Place {
        let leaves = leaves(self.replica(position + number));
        leaves[number % leaves.len()]
    }

    fn own_shards(&self, trainer: &[Place], weights: f64, sent: &mut Sent) {
        let (size, tp) = (self.raw.replica_gpus as usize, self.raw.tp as usize);
        let holders = trainer.len() / tp;
        for (gpu, to) in self.places.iter().enumerate() {
            let mine = gpu % size;
            for (rank, from) in trainer.iter().enumerate() {
                let tensor = rank % tp;
                let end = ((mine + 1) * tp).min((tensor + 1) * size);
                let common = end.saturating_sub((mine * tp).max(tensor * size));
                if common > 0 {
                    let share = common as f64 / (tp * size) as f64;
                    sent.send(*from, *to, weights * share / holders as f64);
                }
            }
        }
    }

    fn other_parallelism(&self, tail: u32) -> Sent {
        let (before, after) = (self.raw.replica_gpus as usize, tail as usize);
        let unit = self.card.weight_bytes().0 as f64 / (before * after) as f64;
        let mut sent = Sent::default();
        for (gpu, place) in self.places.iter().enumerate() {
            let (replica, mine) = (gpu / before, gpu % before);
            let (first, last) = ((gpu % after) * before, (gpu % after + 1) * before);
            for holder in (0..before).filter(|holder| *holder != mine) {
                let common =
                    last.min((holder + 1) * after).saturating_sub(first.max(holder * after));
                if common > 0 {
                    let from = self.places[replica * before + holder];
                    sent.send(from, *place, unit * common as f64);
                }
            }
        }
        sent
    }
}

/// Islands are ignored because traffic between leaves never stays within one.
fn leaves(places: &[Place]) -> Vec<Place> {
    let mut seen: BTreeMap<LeafId, usize> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        seen.entry(place.leaf).or_insert(at);
    }
    let mut order: Vec<(usize, LeafId)> = seen.into_iter().map(|(leaf, at)| (at, leaf)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, leaf)| Place { leaf, island: None, gpu: None }).collect()
}
