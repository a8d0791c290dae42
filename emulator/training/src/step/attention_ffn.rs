// SPDX-License-Identifier: Apache-2.0
//! Decoding with attention–FFN disaggregation (Step-3, arXiv 2507.19427): attention and feed-forward on separate GPUs.
//!
//! ```text
//! attention instances, with caches ──each token to every instance──▶ feed-forward instances, with experts
//!        ▲ adds up                 ◀──────its part of the sum─────── each layer
//! ```
//! Micro-batches form a pipeline: while one is in attention, others are on the network or in the
//! feed-forward part. A layer takes the number of micro-batches times the slowest stage, or the
//! round trip of one micro-batch if that is longer.
//!
//! Instances shard their matrices over their GPUs. Feed-forward instances share the experts and shard the layers
//! that all tokens pass through. Their GPUs gather inputs and add up partial sums while computing another
//! micro-batch, and network cards send and receive at the same time, as in the introduction of StepMesh.
//!
//! Assumptions: requests are spread evenly over attention instances and micro-batches, each micro-batch passes the
//! output layer separately, and norms and residual additions run on the attention side.

use serde::Serialize;

use super::Server;
use super::inference::{DecodePass, USABLE_MEMORY};
use crate::model::LayerShares;
use crate::network::Group;
use crate::step::{Compute, Replica};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Instances {
    pub count: u32,
    pub gpus: u32,
}

impl Instances {
    pub fn all_gpus(self) -> u32 {
        self.count.saturating_mul(self.gpus)
    }
}

/// Attention instances and the feed-forward instances that they share.
#[derive(Clone, Copy, Debug)]
pub struct AttentionFfn<'a> {
    /// The server's number of GPUs per replica is ignored.
    pub server: Server<'a>,
    pub attention: Instances,
    pub feed_forward: Instances,
    pub micro_batches: u32,
    /// Whether kernels overlap memory reads with computing. Otherwise the times add up.
    pub reads_while_computing: bool,
}

/// Seconds of one micro-batch in the stages of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerStages {
    pub attention: f64,
    pub cached_token: f64,
    pub there: f64,
    /// Seconds of communication between the GPUs of a feed-forward instance.
    pub inside: f64,
    pub feed_forward: f64,
    pub back: f64,
}

impl LayerStages {
    fn max(&self, other: &Self) -> Self {
        Self {
            attention: self.attention.max(other.attention),
            cached_token: self.cached_token.max(other.cached_token),
            there: self.there.max(other.there),
            inside: self.inside.max(other.inside),
            feed_forward: self.feed_forward.max(other.feed_forward),
            back: self.back.max(other.back),
        }
    }

    pub fn seconds(&self, micro_batches: u32, cached: f64) -> f64 {
        let attention = self.attention + cached * self.cached_token;
        let others = [self.there, self.inside, self.feed_forward, self.back];
        let round = attention + others.iter().sum::<f64>();
        let slowest = others.into_iter().fold(attention, f64::max);
        round.max(f64::from(micro_batches) * slowest)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    pub micro_batches: u32,
    /// Share of all cached tokens that one micro-batch has in the fullest attention instance.
    pub cached_share: f64,
    pub layers: [(u32, LayerStages); 2],
    /// Output layer of all micro-batches, and software overhead.
    pub rest: f64,
}

impl Stages {
    pub fn seconds(&self, cached: f64) -> f64 {
        let layers = self.layers.iter().map(|(count, layer)| {
            f64::from(*count) * layer.seconds(self.micro_batches, cached * self.cached_share)
        });
        layers.sum::<f64>() + self.rest
    }
}

impl AttentionFfn<'_> {
    pub fn gpus(&self) -> u32 {
        self.attention.all_gpus().saturating_add(self.feed_forward.all_gpus())
    }

    fn token_bytes(&self) -> [f64; 2] {
        let hidden = f64::from(self.server.replica.model.hidden);
        [self.server.formats.weights.operand_bytes() * hidden, 2.0 * hidden]
    }

    /// Returns the network bytes of a token's decode step: in each layer, to every feed-forward instance and back.
    pub fn bytes_per_token(&self) -> f64 {
        let layers = f64::from(self.server.replica.model.layers);
        layers * f64::from(self.feed_forward.count) * self.token_bytes().iter().sum::<f64>()
    }

    /// Returns the bytes of a micro-batch through the card of an attention GPU and of a
    /// feed-forward GPU, per layer and direction.
    pub fn bytes_per_gpu(&self, instance_tokens: f64, all_tokens: f64, bytes: f64) -> [f64; 2] {
        let copies = f64::from(self.feed_forward.count);
        [
            instance_tokens * copies * bytes / f64::from(self.attention.gpus),
            all_tokens * bytes / f64::from(self.feed_forward.gpus),
        ]
    }

    pub fn stages(&self, batch: u32) -> Stages {
        let compute = self.server.replica.compute.clone();
        if !self.reads_while_computing {
            return self.stages_on(&compute, batch);
        }
        let never = f64::INFINITY;
        let reads = Compute {
            peak_flops: never,
            peak_flops_fp8: never,
            peak_flops_fp4: never,
            ..compute.clone()
        };
        let computes = Compute { memory_rate: never, ..compute };
        let [one, other] = [reads, computes].map(|compute| self.stages_on(&compute, batch));
        let layers = [0, 1].map(|at| (one.layers[at].0, one.layers[at].1.max(&other.layers[at].1)));
        Stages { layers, rest: one.rest.max(other.rest), ..one }
    }

    fn stages_on(&self, compute: &Compute, batch: u32) -> Stages {
        let constants = self.server.replica.decoding();
        let replica = Replica { compute, calibration: &constants, ..self.server.replica };
        let server = Server { replica, ..self.server };
        let held = batch.max(1).div_ceil(self.attention.count);
        let micro_batches = held.min(self.micro_batches.max(1));
        let (instance, all) = (held.div_ceil(micro_batches), batch.max(1).div_ceil(micro_batches));
        let [attends, feeds] = [self.attention.gpus, self.feed_forward.gpus]
            .map(|gpus| Server { replica: Replica { gpus, ..replica }, ..server });
        let jobs = [attends.job(instance, 1), feeds.job(all, 1)];
        let [attention, feed_forward] = jobs.each_ref().map(|job| DecodePass { job });
        let group = Group::new(self.gpus().into(), 1);
        let [there, back] = self.token_bytes().map(|bytes| {
            let [one, other] = self.bytes_per_gpu(instance.into(), all.into(), bytes);
            replica.network.neighbour(group, one.max(other), &replica.calibration.network).0
        });
        let [dense, expert] = [false, true].map(|is_expert| LayerStages {
            attention: attention.attention_part(is_expert),
            cached_token: attends.cached_token_seconds() / f64::from(replica.model.layers),
            there,
            inside: feed_forward.inner_exchange(),
            feed_forward: feed_forward
                .feed_forward_part(is_expert, f64::from(self.feed_forward.count)),
            back,
        });
        let output = attention.job.output().forward.total();
        Stages {
            micro_batches,
            cached_share: f64::from(held) / f64::from(batch.max(1)) / f64::from(micro_batches),
            layers: [
                (replica.model.dense_layers(), dense),
                (replica.model.expert_layers(), expert),
            ],
            rest: f64::from(micro_batches) * output + replica.host_seconds,
        }
    }

    /// Returns the cache capacity of all attention instances. `None` if the weights do not fit, or
    /// there are more feed-forward instances than experts.
    pub fn cache_tokens(&self) -> Option<u64> {
        let (model, bytes) =
            (self.server.replica.model, self.server.formats.weights.operand_bytes());
        let usable = USABLE_MEMORY * self.server.replica.compute.memory_bytes;
        let experts = model.feed_forward.experts.as_ref().map(|experts| experts.count);
        let feed_forward = f64::from(model.dense_layers()) * model.dense_parameters()
            + f64::from(model.expert_layers())
                * (model.shared_parameters()
                    + f64::from(experts.unwrap_or(0)) * model.expert_parameters());
        let fits = bytes * feed_forward / f64::from(self.feed_forward.all_gpus()) < usable
            && experts.is_none_or(|experts| self.feed_forward.count <= experts);
        let attention = bytes * f64::from(model.layers) * model.attention_parameters()
            + 4.0 * model.embedding_parameters();
        let free = usable - attention / f64::from(self.attention.gpus);
        let replica = Replica { gpus: self.attention.gpus, ..self.server.replica };
        let cached = Server { replica, ..self.server }.cache_bytes_per_gpu();
        (fits && free > 0.0)
            .then(|| f64::from(self.attention.count) * (free / cached).floor())
            .map(|tokens| tokens as u64)
    }
}

impl DecodePass<'_> {
    fn attention_part(&self, is_expert: bool) -> f64 {
        let shares = self.job.model.shares();
        let mixing = LayerShares { feed_forward: 0.0, ..shares };
        let moved = self.job.element_bytes_of(mixing, is_expert)
            + self.job.residual_bytes(shares.feed_forward / 2.0);
        self.job.projection_gemms()
            + self.job.memory_seconds(moved)
            + 2.0 * mixing.parts() * self.decode_exchange()
            + self.attention_starts()
    }

    fn feed_forward_part(&self, is_expert: bool, instances: f64) -> f64 {
        let share = self.job.model.shares().feed_forward;
        let alone = LayerShares { attention: 0.0, state_space: 0.0, feed_forward: share };
        let products = if is_expert {
            self.decode_experts(instances)
        } else {
            let width = f64::from(self.job.model.feed_forward.width) / instances;
            self.job.feed_forward_products(self.job.tokens(), width)
        };
        let moved =
            self.job.element_bytes_of(alone, is_expert) - self.job.residual_bytes(share / 2.0);
        share * products
            + self.job.memory_seconds(moved / instances)
            + self.feed_forward_starts(is_expert)
    }

    /// Inputs use the format of the weights, and partial sums use 16 bits. Each exchange is half of an all-reduce.
    fn inner_exchange(&self) -> f64 {
        let share = self.job.model.shares().feed_forward;
        share * self.decode_exchange() * (self.job.precision.operand_bytes() + 2.0) / 4.0
    }
}

#[cfg(test)]
mod tests;
