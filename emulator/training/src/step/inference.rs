// SPDX-License-Identifier: Apache-2.0
//! Times of a generating replica, and the number of tokens that its memory holds.
//!
//! ```text
//! decode step = products that read all weights + tokens in cache × their reading + kernel starts + two all-reduces a layer + the host
//! prompt      = a forward pass of training over its tokens
//! ```
//! Times add up as in training. Decoding runs in a graph and mostly reads memory, so two of its constants are measured
//! instead (see [`KERNEL_START`]). Assumptions: attention core and output layer use 16 bits, TP shards every expert, and
//! a batch reads every expert that any of its tokens visits. Tokens choose experts at random. `host_seconds` is the
//! software overhead between two steps.

use lightloom_collective::CollectiveKind;
use serde::Serialize;

use super::Job;
use crate::calibration::{Calibration, Precision};
use crate::features::Feature;
use crate::mapping::{Batch, Mapping};
use crate::memory::weights_per_gpu;
use crate::model::{Attention, Model};
use crate::network::{Group, Network};
use crate::step::Compute;

#[derive(Clone, Copy, Debug)]
pub struct Replica<'a> {
    pub model: &'a Model,
    pub compute: &'a Compute,
    pub network: &'a Network,
    pub calibration: &'a Calibration,
    pub gpus: u32,
    pub host_seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Formats {
    pub weights: Precision,
    pub cache_value_bytes: f64,
}

impl Formats {
    pub const SIXTEEN_BITS: Self = Self { weights: Precision::Bf16, cache_value_bytes: 2.0 };
}

#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    pub replica: Replica<'a>,
    pub formats: Formats,
}

impl<'a> From<&Replica<'a>> for Server<'a> {
    fn from(replica: &Replica<'a>) -> Self {
        Self { replica: *replica, formats: Formats::SIXTEEN_BITS }
    }
}

/// Share of memory for weights and caches, the default of serving software.
pub(super) const USABLE_MEMORY: f64 = 0.9;

/// Seconds from the end of one kernel in a graph to full speed of the next. On an H200 with PyTorch 2.11, products of 16
/// rows by 4096×28672 take 59.9 µs with 16 bits and 31.8 µs with 8 bits: their bytes at 4.17 TB/s, and 3.6 µs each.
const KERNEL_START: f64 = 3.6e-6;
/// Share of the memory rate in these products: 4.17 of 4.8 TB/s.
const READING: f64 = 0.87;
/// Both products of a part of a layer. Measured times of products include their starts.
const PRODUCT_KERNELS: f64 = 2.0;
/// Positions with the write to the cache, attention core, and two norms with their additions.
const ATTENTION_KERNELS: f64 = 4.0;
/// The activation. Experts add the router, its selection, and both permutations.
const FEED_FORWARD_KERNELS: [f64; 2] = [1.0, 5.0];

impl Replica<'_> {
    pub(super) fn decoding(&self) -> Calibration {
        let mut constants =
            Calibration { memory_efficiency: READING, gemm_lost_flops: 0.0, ..*self.calibration };
        let software = &mut constants.software;
        software.features = software.features.with(Feature::Graphs);
        constants
    }

    /// Uses 16 bits and counts each key and value once.
    pub fn cache_bytes(&self) -> f64 {
        Server::from(self).cache_bytes()
    }
}

impl<'a> Server<'a> {
    pub(super) fn job(&self, batch: u32, tokens: u64) -> Job<'a> {
        let replica = self.replica;
        let mapping = Mapping { tensor: replica.gpus, micro_batch: batch, ..Mapping::ONE_GPU };
        Job {
            model: replica.model,
            mapping,
            batch: Batch { sequences: batch.into(), tokens },
            compute: replica.compute,
            network: replica.network,
            calibration: replica.calibration,
            precision: self.formats.weights,
            expert_imbalance: 0.0,
        }
    }

    /// Returns the time for `batch` tokens, excluding the time to read their caches.
    pub fn decode_seconds(&self, batch: u32) -> f64 {
        let constants = self.replica.decoding();
        let job = Job { calibration: &constants, ..self.job(batch, 1) };
        let (dense, experts) =
            (self.replica.model.dense_layers(), self.replica.model.expert_layers());
        let pass = DecodePass { job: &job };
        let layers = f64::from(dense) * pass.decode_layer(false)
            + f64::from(experts) * pass.decode_layer(true);
        let window = f64::from(batch) * self.window_tokens() * self.read_seconds();
        layers + job.output().forward.total() + window + self.replica.host_seconds
    }

    /// Returns the share of attention layers without a sliding window.
    fn unlimited(&self) -> f64 {
        let model = self.replica.model;
        model
            .window
            .map_or(1.0, |window| 1.0 - f64::from(window.layers) / f64::from(model.layers.max(1)))
    }

    /// Returns the tokens that layers with a window read for a request, relative to all layers. Requests are longer.
    fn window_tokens(&self) -> f64 {
        let tokens = self.replica.model.window.map_or(0, |window| window.tokens);
        f64::from(tokens) * (1.0 - self.unlimited())
    }

    pub fn cached_token_seconds(&self) -> f64 {
        self.unlimited() * self.read_seconds()
    }

    /// Returns the time to attend to a cached token in all layers.
    fn read_seconds(&self) -> f64 {
        let constants = self.replica.decoding();
        let job = Job { calibration: &constants, ..self.job(1, 1) };
        let attention =
            self.replica.model.shares().attention * f64::from(self.replica.model.layers);
        let work = 2.0 * self.replica.model.attention.core_width()
            / f64::from(self.replica.gpus)
            / (self.replica.compute.peak_flops * self.replica.calibration.attention_efficiency);
        job.memory_seconds(self.cache_bytes_per_gpu()) + attention * work
    }

    pub fn prompt_seconds(&self, tokens: u32) -> f64 {
        if tokens == 0 {
            return 0.0;
        }
        // Serving software launches kernels ahead and computes all experts in one kernel.
        let mut constants = *self.replica.calibration;
        let software = &mut constants.software;
        software.flash_attention = true;
        software.features = software.features.with(Feature::Graphs).with(Feature::GroupedExperts);
        // It does not overlap all-reduces with products.
        software.sequence_parallel = false;
        constants.tensor_exposed = [1.0; 2];
        let job = Job { calibration: &constants, ..self.job(1, tokens.into()) };
        let last = Job { calibration: &constants, ..self.job(1, 1) };
        let all = job.work().mean_stage().forward.total();
        all - job.output().forward.total() + last.output().forward.total()
    }

    pub fn weight_bytes_per_gpu(&self) -> f64 {
        let job = self.job(1, 1);
        let mut software = job.calibration.software;
        software.folded_experts = false;
        let (dense, experts) = weights_per_gpu(self.replica.model, &job.mapping, &software);
        // Embedding and output layer stay at 16 bits.
        let ends = 2.0 * self.replica.model.embedding_parameters() / f64::from(self.replica.gpus);
        let saved = 2.0 - self.formats.weights.operand_bytes();
        2.0 * (dense + experts) - saved * (dense - ends + experts)
    }

    pub fn cache_bytes(&self) -> f64 {
        let attention =
            self.replica.model.shares().attention * f64::from(self.replica.model.layers);
        let values = f64::from(self.replica.model.attention.cache_elements());
        self.formats.cache_value_bytes * attention * values
    }

    /// Heads are distributed; heads that cannot be split further are replicated.
    pub(super) fn cache_bytes_per_gpu(&self) -> f64 {
        let parts = match self.replica.model.attention {
            Attention::Grouped { key_value_heads, .. } => self.replica.gpus.min(key_value_heads),
            Attention::Latent { .. } => 1,
        };
        self.cache_bytes() / f64::from(parts.max(1))
    }

    /// Returns the cache capacity in tokens. `None` if the weights do not fit.
    pub fn cache_tokens(&self) -> Option<u64> {
        let free = USABLE_MEMORY * self.replica.compute.memory_bytes - self.weight_bytes_per_gpu();
        (free > 0.0)
            .then(|| (free / (self.unlimited().max(0.01) * self.cache_bytes_per_gpu())) as u64)
    }
}

/// One token of each request of a job's batch, on its way through the layers.
pub(super) struct DecodePass<'j> {
    pub(super) job: &'j Job<'j>,
}

impl DecodePass<'_> {
    fn decode_layer(&self, is_expert: bool) -> f64 {
        let shares = self.job.model.shares();
        let feed_forward = if is_expert {
            shares.feed_forward * self.decode_experts(1.0)
        } else {
            self.job.feed_forward_gemms(false)
        };
        self.job.projection_gemms()
            + feed_forward
            + self.job.memory_seconds(self.job.element_bytes(is_expert))
            + 2.0 * shares.parts() * self.decode_exchange()
            + self.attention_starts()
            + self.feed_forward_starts(is_expert)
    }

    pub(super) fn attention_starts(&self) -> f64 {
        let shares = self.job.model.shares();
        (shares.attention + shares.state_space) * self.starts(ATTENTION_KERNELS)
    }

    pub(super) fn feed_forward_starts(&self, is_expert: bool) -> f64 {
        let kernels = FEED_FORWARD_KERNELS[usize::from(is_expert)];
        self.job.model.shares().feed_forward * self.starts(kernels)
    }

    fn starts(&self, others: f64) -> f64 {
        let is_measured = self.job.compute.operators.is_some();
        KERNEL_START * if is_measured { others } else { others + PRODUCT_KERNELS }
    }

    pub(super) fn decode_exchange(&self) -> f64 {
        let group = Group::new(self.job.mapping.tensor.into(), 1);
        let links = &self.job.calibration.network;
        let bytes = self.job.activation_bytes();
        self.job.network.collective(CollectiveKind::AllReduce, group, bytes, links)
    }

    /// The experts that a batch visits, each sharded over one of `groups` groups.
    pub(super) fn decode_experts(&self, groups: f64) -> f64 {
        let Some(experts) = &self.job.model.feed_forward.experts else { return 0.0 };
        let (tokens, count) = (self.job.tokens(), f64::from(experts.count));
        let visits = f64::from(experts.top_k);
        let visited = count * (1.0 - (1.0 - visits / count).powf(tokens));
        let rows = tokens * visits / visited;
        let sizes = self.job.feed_forward_sizes(rows, f64::from(experts.width) / self.job.tensor());
        let routed = sizes.map(|size| self.job.gemms(visited / groups, size, self.job.precision));
        let routed = routed[0] + routed[1];
        if experts.shared_width == 0 {
            return routed;
        }
        routed + self.job.feed_forward_products(tokens, f64::from(experts.shared_width) / groups)
    }
}
