// SPDX-License-Identifier: Apache-2.0
//! A training step with tensor, pipeline, data, context and expert parallelism.
//!
//! In rank order, the tensor dimension changes fastest, then context, data and pipeline. Expert
//! groups are runs of data-parallel ranks. In the table, t is the number of tokens of a micro-batch
//! on one context-parallel rank, and h·b is the number of bytes of a token.
//!
//! | dimension | traffic |
//! | --- | --- |
//! | tensor | 4 all-reduces of t·h·b per layer and micro-batch (2 forward, 2 backward) |
//! | expert | 4 all-to-alls of t/tp·top_k·h·b per mixture-of-experts layer and micro-batch |
//! | pipeline | t·h·b/tp in each direction per boundary and micro-batch |
//! | context | 3(c−1)·t·kv·b/tp per rank, layer and micro-batch (ring attention) |
//! | data | all-reduces of params·b/(tp·pp) (non-expert) and params·b/(tp·pp·ep) (expert gradients) |
//!
//! The all-to-alls (dispatch and combine, forward and backward) share one matrix and its transpose
//! (MixNet, arXiv 2501.03905). Keys and values of t tokens make c−1 hops around the ring of c ranks
//! in the forward pass, and again with their gradients in the backward pass. Gradients are reduced
//! over data and context ranks, and expert gradients over the ranks with the same experts. If
//! sharded (FSDP), there are two all-gathers and a reduce-scatter of the same size.

use lightloom_fabric::file::ShardingFile;
use lightloom_units::Bytes;
use lightloom_units::seed::Seed;

use super::super::demand::{Demand, Seat};
use super::card::ModelCard;
use super::collective::{all_gather, all_reduce, dispatch_and_combine, ring, share};
use super::place::Seats;
use super::shapes::log_normal;

/// A model distributed over tp·cp·dp·pp GPUs. dp must be a multiple of ep.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// The model.
    pub card: ModelCard,
    /// Seats of the ranks.
    pub seats: Seats,
    /// Tensor-parallel ranks.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Expert-parallel ranks, a subset of the data-parallel ranks.
    pub ep: u32,
    /// Whether weights and gradients are sharded over the data-parallel ranks.
    pub sharding: ShardingFile,
    /// Micro-batches per step.
    pub micro_batches: u32,
    /// Tokens of a micro-batch on one pipeline, over all context-parallel ranks.
    pub tokens: u32,
    /// Spread of expert popularity, as the sigma of a log-normal distribution. 0 for balanced experts.
    pub expert_skew: f64,
    /// Random seed for expert popularity.
    pub seed: Seed,
}

impl Training {
    fn seat(&self, tensor: u32, context: u32, data: u32, stage: u32) -> Seat {
        let rank = tensor + self.tp * (context + self.cp * (data + self.dp * stage));
        self.seats.0[rank as usize]
    }

    fn micro_batch_bytes(&self) -> Bytes {
        share(self.card.token_bytes() * u64::from(self.tokens), 1, u64::from(self.cp))
    }

    /// Returns the traffic of a step's micro-batches, without gradients.
    pub fn micro_batch_traffic(&self, mut demand: Demand) -> Demand {
        self.add_tensor(&mut demand);
        self.add_context(&mut demand);
        self.add_expert(&mut demand);
        self.add_pipeline(&mut demand);
        demand
    }

    /// Returns the traffic of the gradients in a step, including the weights if sharded.
    pub fn data_parallel_traffic(&self, mut demand: Demand) -> Demand {
        let cut = u64::from(self.tp) * u64::from(self.pp);
        let experts = self.card.expert_bytes();
        let dense = Bytes(self.card.weight_bytes().0.saturating_sub(experts.0));
        self.add_gradients(&mut demand, share(dense, 1, cut), 1);
        if experts.0 > 0 {
            let ep = self.ep.max(1);
            self.add_gradients(&mut demand, share(experts, 1, cut * u64::from(ep)), ep);
        }
        demand
    }

    fn add_gradients(&self, demand: &mut Demand, size: Bytes, apart: u32) {
        for stage in 0..self.pp {
            for (tensor, first) in (0..self.tp).flat_map(|t| (0..apart).map(move |r| (t, r))) {
                let ranks: Vec<Seat> = self
                    .replicas()
                    .filter(|(_, data)| data % apart == first)
                    .map(|(context, data)| self.seat(tensor, context, data, stage))
                    .collect();
                match self.sharding {
                    ShardingFile::Replicated => all_reduce(demand, &ranks, size),
                    ShardingFile::Sharded => all_gather(demand, &ranks, size * 3),
                }
            }
        }
    }

    fn add_tensor(&self, demand: &mut Demand) {
        let layers = u64::from(self.card.layers / self.pp);
        let size = self.micro_batch_bytes() * (4 * layers * u64::from(self.micro_batches));
        for stage in 0..self.pp {
            for (context, data) in self.replicas() {
                let ranks: Vec<Seat> =
                    (0..self.tp).map(|tensor| self.seat(tensor, context, data, stage)).collect();
                all_reduce(demand, &ranks, size);
            }
        }
    }

    fn replicas(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (cp, dp) = (self.cp, self.dp);
        (0..dp).flat_map(move |data| (0..cp).map(move |context| (context, data)))
    }

    fn add_context(&self, demand: &mut Demand) {
        if self.cp < 2 {
            return;
        }
        let layers = u64::from(self.card.layers / self.pp);
        let token =
            u64::from(self.card.cache_elements_per_layer) * u64::from(self.card.element_bytes);
        let all =
            Bytes(token * u64::from(self.tokens)) * (3 * layers * u64::from(self.micro_batches));
        let size = share(all, u64::from(self.cp - 1), u64::from(self.cp) * u64::from(self.tp));
        for stage in 0..self.pp {
            for data in 0..self.dp {
                for tensor in 0..self.tp {
                    let ranks: Vec<Seat> = (0..self.cp)
                        .map(|context| self.seat(tensor, context, data, stage))
                        .collect();
                    ring(demand, &ranks, size);
                }
            }
        }
    }

    fn add_expert(&self, demand: &mut Demand) {
        let Some(experts) = self.card.experts.filter(|_| self.ep > 1) else { return };
        let layers = u64::from(experts.layers) / u64::from(self.pp);
        // A dispatch and its combine are two all-to-alls; doubling the bytes covers both passes.
        let all = self.micro_batch_bytes()
            * (2 * layers * u64::from(self.micro_batches) * u64::from(experts.top_k));
        let size = share(all, 1, u64::from(self.tp));
        for stage in 0..self.pp {
            for group in 0..self.dp / self.ep {
                let index = u64::from(stage * self.dp + group);
                let weights = self.popularity(index);
                for (tensor, context) in self.columns() {
                    let ranks: Vec<Seat> = (0..self.ep)
                        .map(|rank| self.seat(tensor, context, group * self.ep + rank, stage))
                        .collect();
                    dispatch_and_combine(demand, &ranks, size, &weights);
                }
            }
        }
    }

    fn popularity(&self, group: u64) -> Vec<f64> {
        let mut stream = self.seed.stream("training.expert_popularity", group);
        (0..self.ep).map(|_| log_normal(&mut stream, self.expert_skew)).collect()
    }

    fn columns(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (tp, cp) = (self.tp, self.cp);
        (0..cp).flat_map(move |context| (0..tp).map(move |tensor| (tensor, context)))
    }

    fn add_pipeline(&self, demand: &mut Demand) {
        let all = self.micro_batch_bytes() * u64::from(self.micro_batches);
        let size = share(all, 1, u64::from(self.tp));
        for stage in 1..self.pp {
            for data in 0..self.dp {
                for (tensor, context) in self.columns() {
                    let before = self.seat(tensor, context, data, stage - 1);
                    let after = self.seat(tensor, context, data, stage);
                    demand.send(before, after, size);
                    demand.send(after, before, size);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::*;
    use lightloom_units::id::LeafId;

    fn training() -> Training {
        Training {
            card: ModelCard {
                parameters: 671_000_000_000,
                ..ModelCard::named("deepseek-v3").unwrap()
            },
            seats: Place { first_leaf: 0, gpus_per_leaf: 8, gpus: 64 }.into(),
            cp: 1,
            tp: 1,
            pp: 2,
            dp: 32,
            ep: 16,
            sharding: ShardingFile::Replicated,
            micro_batches: 3,
            tokens: 4096,
            expert_skew: 0.0,
            seed: Seed(0),
        }
    }

    #[test]
    fn expert_traffic_follows_the_formula() {
        let job = Training { pp: 1, dp: 64, ..training() };
        let mut demand = Demand::none(8);
        job.add_expert(&mut demand);
        // 64 ranks, 58 layers, 3 micro-batches, 4 all-to-alls of 4096·8·7168·2 bytes. Half of them
        // stay within a leaf, which holds 8 of the 16 ranks.
        let formula = 64 * 58 * 3 * 4 * 4096 * 8 * 7168 * 2 / 2;
        let total = demand.total().0;
        assert!(total.abs_diff(formula) * 1_000_000 < formula, "{total} {formula}");
    }

    #[test]
    fn pipeline_and_data_traffic_follow_their_formulas() {
        let job = training();
        let mut demand = Demand::none(8);
        job.add_pipeline(&mut demand);
        assert_eq!(demand.total().0, 2 * 32 * 3 * 4096 * 7168 * 2);
        assert_eq!(
            demand.bytes(LeafId(0), LeafId(4)).0,
            8 * 3 * 4096 * 7168 * 2,
            "stage 0 of eight pipelines to stage 1"
        );
        let gradients = job.data_parallel_traffic(Demand::none(8));
        // 58 layers of 256 experts. All 32 ranks of a stage hold the non-expert weights.
        let experts = 58 * 256 * 3 * 7168 * 2048;
        let one_hop = (671_000_000_000 - experts) * 2 / 2 * 2 * 31 / 32;
        assert_eq!(
            gradients.bytes(LeafId(0), LeafId(1)).0,
            one_hop,
            "each leaf has one outgoing ring edge"
        );
        // A rank holds a sixteenth of the experts of a stage, like the rank two leaves later.
        assert_eq!(gradients.bytes(LeafId(0), LeafId(2)).0, 8 * experts * 2 / 2 / 16);
        let sharded = Training { sharding: ShardingFile::Sharded, ..job }
            .data_parallel_traffic(Demand::none(8));
        assert_eq!(sharded.bytes(LeafId(0), LeafId(1)).0, one_hop / 2 * 3);
    }

    #[test]
    fn tensor_parallelism_within_a_leaf_adds_no_demand() {
        let job = Training { tp: 8, dp: 4, ep: 1, ..training() };
        let mut demand = Demand::none(8);
        job.add_tensor(&mut demand);
        assert_eq!(demand.total(), Bytes(0));
        let wide = Training { tp: 16, dp: 2, ..job };
        wide.add_tensor(&mut demand);
        let size = 4096 * 7168 * 2 * 4 * 30 * 3;
        assert_eq!(demand.bytes(LeafId(0), LeafId(1)).0, size * 2 * 15 / 16);
    }

    #[test]
    fn skew_moves_traffic_without_adding_any() {
        let even = training().micro_batch_traffic(Demand::none(8)).total().0 as f64;
        let skewed =
            Training { expert_skew: 0.5, ..training() }.micro_batch_traffic(Demand::none(8));
        assert!((skewed.total().0 as f64 / even - 1.0).abs() < 0.05);
    }

    #[test]
    fn expert_gradients_travel_between_ranks_with_the_same_experts() {
        let total = |ep| {
            let job = Training { pp: 1, dp: 64, ep, ..training() };
            let seats = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 64 }.into();
            Training { seats, ..job }.data_parallel_traffic(Demand::none(64)).total().0
        };
        // Each of 64 ranks sends 2·63/64 of the dense weights. 64/ep ranks hold the same experts.
        let (experts, all) = (58u64 * 256 * 3 * 7168 * 2048, 671_000_000_000u64);
        let by_hand = |ep: u64| {
            let dense = (all - experts) * 2 * 2 * 63 / 64;
            let ranks = 64 / ep;
            64 * (dense + experts * 2 / ep * 2 * (ranks - 1) / ranks)
        };
        for ep in [1, 16, 64] {
            let (ours, expected) = (total(ep as u32), by_hand(ep));
            assert!(ours.abs_diff(expected) * 1_000_000 < expected, "EP {ep}: {ours} {expected}");
        }
        assert!(total(64) * 10 < total(1));
    }
}
