//! The analytic step: how long one training step takes, and where the time goes.
//!
//! ```text
//! layer  = matrix products + attention core + element-wise work + exposed TP, CP, EP exchange
//! stage  = layers of a stage (+ output layer on the last)
//! step   = pipeline(stages, micro-batches) + exposed pipeline transfers + exposed DP exchange + optimizer
//! ```
//! Compute and memory time add up (Calculon's `no_overlap`): kernels run one after the other.

use serde::Serialize;

use super::calibration::{Calibration, ContextExchange, Precision, Sharding};
use super::flops::{self, Mask};
use super::mapping::{Batch, Mapping, Recompute};
use super::memory::weights_per_gpu;
use super::model::{Activation, Model};
use super::network::{Group, Network};
use super::schedule::{PipelineTime, StageTime, pipeline_time};

/// What a GPU can do, as far as the step needs it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compute {
    /// Peak operations per second in sixteen bits.
    pub peak_flops: f64,
    /// Peak operations per second in eight bits.
    pub peak_flops_fp8: f64,
    /// Bytes per second of its memory.
    pub memory_rate: f64,
    /// Bytes of its memory.
    pub memory_bytes: f64,
}

/// Everything that a step depends on.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// What is trained.
    pub model: &'a Model,
    /// How it is cut.
    pub mapping: Mapping,
    /// The work of a step.
    pub batch: Batch,
    /// The GPU.
    pub compute: &'a Compute,
    /// What joins the GPUs.
    pub network: &'a Network,
    /// Constants of accelerator and software.
    pub calibration: &'a Calibration,
    /// Number format.
    pub precision: Precision,
    /// How much more than its share the fullest expert rank gets: 0.2 is 20 %.
    pub expert_imbalance: f64,
}

/// How long a step takes, and where the time goes. The parts add up to `step_seconds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    /// The step.
    pub step_seconds: f64,
    /// Computing on the slowest stage.
    pub compute_seconds: f64,
    /// TP exchange that is not hidden.
    pub tensor_seconds: f64,
    /// CP exchange that is not hidden.
    pub context_seconds: f64,
    /// EP exchange that is not hidden.
    pub expert_seconds: f64,
    /// Waiting in the pipeline.
    pub bubble_seconds: f64,
    /// Pipeline transfers that are not hidden.
    pub transfer_seconds: f64,
    /// DP exchange that is not hidden.
    pub data_seconds: f64,
    /// Optimizer and what belongs to no micro-batch.
    pub optimizer_seconds: f64,
    /// Stragglers and congestion that grow with the job.
    pub jitter_seconds: f64,
}

/// Seconds of one pass over one layer, by what they are spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    compute: f64,
    tensor: f64,
    context: f64,
    expert: f64,
}

impl Spent {
    fn total(&self) -> f64 {
        self.compute + self.tensor + self.context + self.expert
    }
    fn plus(&self, other: &Self) -> Self {
        self.plus_times(other, 1.0)
    }
    fn plus_times(&self, other: &Self, times: f64) -> Self {
        Self {
            compute: self.compute + other.compute * times,
            tensor: self.tensor + other.tensor * times,
            context: self.context + other.context * times,
            expert: self.expert + other.expert * times,
        }
    }
    /// A pass is at least as long as launching its kernels takes.
    fn at_least(mut self, seconds: f64) -> Self {
        self.compute += (seconds - self.total()).max(0.0);
        self
    }
}

/// Forward and backward pass of a layer or of the output layer; the share of the backward pass that is
/// weight gradients is what a zero-bubble schedule can move.
#[derive(Clone, Copy, Debug, Default)]
struct Passes {
    forward: Spent,
    backward: Spent,
    weight_gradient: f64,
}

impl Passes {
    fn times(&self, times: f64) -> Self {
        let none = Spent::default();
        Self {
            forward: none.plus_times(&self.forward, times),
            backward: none.plus_times(&self.backward, times),
            weight_gradient: self.weight_gradient * times,
        }
    }
    fn plus(&self, other: &Self) -> Self {
        Self {
            forward: self.forward.plus(&other.forward),
            backward: self.backward.plus(&other.backward),
            weight_gradient: self.weight_gradient + other.weight_gradient,
        }
    }
    fn total(&self) -> f64 {
        self.forward.total() + self.backward.total()
    }
    fn stage_time(&self) -> StageTime {
        StageTime {
            forward_seconds: self.forward.total(),
            input_gradient_seconds: self.backward.total() - self.weight_gradient,
            weight_gradient_seconds: self.weight_gradient,
        }
    }
}

impl Job<'_> {
    /// Tokens that one rank of a micro-batch works on (before TP).
    fn tokens(&self) -> f64 {
        f64::from(self.mapping.micro_batch) * self.batch.tokens as f64
            / f64::from(self.mapping.context)
    }

    fn tensor(&self) -> f64 {
        f64::from(self.mapping.tensor)
    }

    /// Seconds of the product of a `rows×inner` and an `inner×columns` matrix: its operations, what it loses
    /// at start and end, and its operands and result on their way to and from memory.
    fn gemm(&self, rows: f64, inner: f64, columns: f64, precision: Precision) -> f64 {
        let (rate, operand_bytes) = match precision {
            Precision::Bf16 => (self.compute.peak_flops * self.calibration.gemm_efficiency, 2.0),
            Precision::Fp8 => {
                (self.compute.peak_flops_fp8 * self.calibration.gemm_efficiency_fp8, 1.0)
            }
        };
        let bytes = operand_bytes * (rows * inner + inner * columns) + 2.0 * rows * columns;
        (2.0 * rows * inner * columns + self.calibration.gemm_lost_flops) / rate
            + self.memory_seconds(bytes)
    }

    fn memory_seconds(&self, bytes: f64) -> f64 {
        bytes / (self.compute.memory_rate * self.calibration.memory_efficiency)
    }

    /// Seconds of the products of a feed-forward part of `width` that `rows` tokens pass.
    fn feed_forward_products(&self, rows: f64, width: f64) -> f64 {
        let h = f64::from(self.model.hidden);
        let width = width / self.tensor();
        let gates = self.model.feed_forward.activation.matrices() - 1.0;
        self.gemm(rows, h, gates * width, self.precision)
            + self.gemm(rows, width, h, self.precision)
    }

    /// Seconds of the products of one pass over the feed-forward part.
    fn feed_forward_gemms(&self, is_expert: bool) -> f64 {
        let tokens = self.tokens();
        let (Some(experts), true) = (&self.model.feed_forward.experts, is_expert) else {
            return self.feed_forward_products(tokens, self.model.feed_forward.width.into());
        };
        let grouped = match self.precision {
            Precision::Bf16 => self.calibration.expert_efficiency,
            Precision::Fp8 => self.calibration.expert_efficiency_fp8,
        };
        let local = f64::from(experts.count) / f64::from(self.mapping.expert);
        let fullest = if self.mapping.expert > 1 { 1.0 + self.expert_imbalance } else { 1.0 };
        let rows = tokens * f64::from(experts.top_k) / local * fullest;
        let routed = local * self.feed_forward_products(rows, experts.width.into()) / grouped;
        if experts.shared_width == 0 {
            return routed;
        }
        routed + self.feed_forward_products(tokens, experts.shared_width.into())
    }

    /// Seconds of the projections of one pass over attention: one product in, one out.
    fn projection_gemms(&self) -> f64 {
        let h = f64::from(self.model.hidden);
        let values = self.model.attention.core_width() / 2.0;
        let into = self.model.attention.parameters(self.model.hidden) / h - values;
        let tokens = self.tokens();
        self.gemm(tokens, h, into / self.tensor(), self.precision)
            + self.gemm(tokens, values / self.tensor(), h, self.precision)
    }

    /// Seconds of one forward attention core, and of its backward pass.
    fn attention_core(&self) -> (f64, f64) {
        let tokens = self.tokens() / self.tensor();
        let rate = self.compute.peak_flops * self.calibration.attention_efficiency;
        let full = flops::attention_core(self.model, self.batch.tokens, Mask::Full) * tokens;
        if self.calibration.software.flash_attention {
            // Five products backward (scores are computed again) against two forward.
            let forward = full / 2.0 / rate;
            return (forward, 2.5 * forward);
        }
        let scores = f64::from(self.model.attention.heads()) * self.batch.tokens as f64 * tokens;
        // Softmax and dropout read and write the scores twice, and a mask of one byte.
        (
            full / rate + self.memory_seconds(9.0 * scores),
            2.0 * full / rate + self.memory_seconds(11.0 * scores),
        )
    }

    /// Bytes that element-wise work of a forward pass moves.
    fn element_bytes(&self, is_expert: bool) -> f64 {
        let tokens = self.tokens();
        let h = f64::from(self.model.hidden);
        let split = if self.calibration.software.sequence_parallel { self.tensor() } else { 1.0 };
        // Two norms (read, write) and two residual additions with bias (read twice, write).
        let residual = 10.0 * h / split;
        let per_width = match self.model.feed_forward.activation {
            Activation::Gelu => 2.0,
            Activation::Swiglu => 3.0,
        };
        let (width, routed) = match (&self.model.feed_forward.experts, is_expert) {
            (Some(experts), true) => (
                f64::from(experts.top_k) * f64::from(experts.width)
                    + f64::from(experts.shared_width),
                // Tokens are permuted on the way in and out.
                4.0 * f64::from(experts.top_k) * h / split,
            ),
            _ => (f64::from(self.model.feed_forward.width), 0.0),
        };
        // Inputs of the products are read, and written twice as eight bits: as they are and turned over.
        let cast = match self.precision {
            Precision::Bf16 => 0.0,
            Precision::Fp8 => 2.0 * (3.0 * h + width) / self.tensor(),
        };
        2.0 * tokens * (residual + routed + cast + per_width * width / self.tensor())
    }

    /// Weights that one rank holds of one layer.
    fn layer_weights(&self, is_expert: bool) -> f64 {
        let feed_forward = match (&self.model.feed_forward.experts, is_expert) {
            (Some(experts), true) => {
                f64::from(experts.count) / f64::from(self.mapping.expert)
                    * self.model.expert_parameters()
                    + self.model.shared_parameters()
            }
            _ => self.model.dense_parameters(),
        };
        (self.model.attention_parameters() + feed_forward) / self.tensor()
    }

    /// Exchange of one forward pass over a layer: all of TP's, what is exposed of EP's.
    fn exchange(&self, is_expert: bool) -> (f64, f64) {
        let (mapping, calibration) = (&self.mapping, self.calibration);
        let links = &calibration.network;
        let tensor_group = Group { size: mapping.tensor.into(), stride: 1 };
        let bytes = 2.0 * self.tokens() * f64::from(self.model.hidden);
        // Four all-gathers or reduce-scatters, or two all-reduces: the same bytes.
        let tensor = 4.0 * self.network.all_gather(tensor_group, bytes, links);
        let expert = if is_expert && mapping.expert > 1 {
            let group = Group { size: mapping.expert.into(), stride: mapping.tensor.into() };
            let bytes = self.dispatch_bytes() * (1.0 + self.expert_imbalance);
            2.0 * self.network.all_to_all(group, bytes, links)
        } else {
            0.0
        };
        (tensor, expert * calibration.expert_exposed)
    }

    /// Bytes that a rank has for the experts of all ranks.
    fn dispatch_bytes(&self) -> f64 {
        let top_k = self.model.feed_forward.experts.as_ref().map_or(0, |experts| experts.top_k);
        2.0 * self.tokens() * f64::from(self.model.hidden) / self.tensor() * f64::from(top_k)
    }

    /// Bytes of the keys and values of a rank's tokens.
    fn context_block(&self) -> f64 {
        let split = self.tensor().min(self.model.attention.key_value_width());
        2.0 * self.tokens() * self.model.attention.key_value_width() / split
    }

    /// Exposed context-parallel exchange of one forward and one backward pass over a layer. Backward, a ring passes
    /// keys and values on with their gradients, and what was gathered is gathered again and its gradients reduced.
    fn context_exchange(&self) -> [f64; 2] {
        let mapping = &self.mapping;
        if mapping.context == 1 {
            return [0.0; 2];
        }
        let links = &self.calibration.network;
        let group = Group { size: mapping.context.into(), stride: mapping.tensor.into() };
        let c = f64::from(mapping.context);
        let block = self.context_block();
        match self.calibration.software.context_exchange {
            ContextExchange::Ring => {
                let (core, core_backward) = self.attention_core();
                let exposed = |bytes: f64, core: f64| {
                    let step = self.network.neighbour(group, bytes, links);
                    (c - 1.0) * (step - core / c).max(0.0)
                };
                [exposed(block, core), exposed(2.0 * block, core_backward)]
            }
            ContextExchange::AllGather => {
                let once = self.network.all_gather(group, block * c, links);
                [once, 2.0 * once]
            }
            ContextExchange::AllToAll => {
                let once = |bytes: f64| self.network.all_to_all(group, bytes, links);
                let both = self.context_turns().map(once).iter().sum();
                [both, both]
            }
        }
    }

    /// Bytes that a rank has for the all-to-alls of Ulysses: queries, keys and values before the attention core, its
    /// values after it.
    fn context_turns(&self) -> [f64; 2] {
        let values = 2.0 * self.tokens() * self.model.attention.core_width() / 2.0 / self.tensor();
        [values + self.context_block(), values]
    }

    /// Forward and backward pass of one layer, recomputation included.
    fn layer(&self, is_expert: bool) -> Passes {
        let gemms = self.projection_gemms() + self.feed_forward_gemms(is_expert);
        let (core, core_backward) = self.attention_core();
        let elements = self.memory_seconds(self.element_bytes(is_expert));
        let (all_tensor, expert) = self.exchange(is_expert);
        let [context, context_backward] = self.context_exchange();
        // TP exchange hides behind the matrix products, never more of it than they last.
        let exposed = all_tensor * self.calibration.tensor_exposed;
        let tensor = exposed.max(all_tensor - gemms);
        let launch = self.calibration.launch_seconds;
        let forward = Spent { compute: gemms + core + elements, tensor, context, expert };
        let accumulate = self.memory_seconds(
            2.0 * self.calibration.software.gradient_bytes * self.layer_weights(is_expert),
        );
        let backward = Spent {
            compute: 2.0 * gemms + core_backward + 2.0 * elements + accumulate,
            tensor,
            context: context_backward,
            expert,
        };
        let forward = forward.at_least(launch);
        let again = match self.mapping.recompute {
            Recompute::None => Spent::default(),
            Recompute::Selective => Spent {
                // With a fused core, norms and activation are computed again instead of the scores.
                compute: if self.calibration.software.flash_attention { elements } else { core },
                ..Spent::default()
            },
            Recompute::Full => forward,
        };
        Passes {
            forward,
            backward: backward.at_least(2.0 * launch).plus(&again),
            weight_gradient: gemms + accumulate,
        }
    }

    /// Forward and backward pass of output layer and loss.
    fn output(&self) -> Passes {
        let per_rank = self.tokens() / self.tensor();
        let (h, vocabulary) = (f64::from(self.model.hidden), f64::from(self.model.vocabulary));
        let gemm = self.gemm(self.tokens(), h, vocabulary / self.tensor(), Precision::Bf16);
        let logits = vocabulary * per_rank;
        let spent = |compute| Spent { compute, ..Spent::default() };
        Passes {
            // Logits are written, widened to four bytes, and read for maximum, sum and loss.
            forward: spent(gemm + self.memory_seconds(16.0 * logits)),
            backward: spent(2.0 * gemm + self.memory_seconds(8.0 * logits)),
            weight_gradient: gemm,
        }
    }

    /// What the last stage does beside its layers: output layer and loss, and for each multi-token-prediction depth
    /// a projection from twice the width, a layer and a further output layer.
    fn last_stage_extra(&self) -> Passes {
        let output = self.output();
        let depths = f64::from(self.model.prediction_depths);
        let h = f64::from(self.model.hidden);
        let gemm = self.gemm(self.tokens(), 2.0 * h, h / self.tensor(), self.precision);
        let spent = |compute| Spent { compute, ..Spent::default() };
        let projection =
            Passes { forward: spent(gemm), backward: spent(2.0 * gemm), weight_gradient: gemm };
        let depth = projection.plus(&self.layer(self.model.expert_layers() > 0)).plus(&output);
        output.plus(&depth.times(depths))
    }

    /// The mean stage and the slowest.
    fn stages(&self) -> (Passes, Passes) {
        let model = self.model;
        let layers = f64::from(model.layers);
        let mean_layer = self
            .layer(false)
            .times(f64::from(model.dense_layers()) / layers)
            .plus(&self.layer(true).times(f64::from(model.expert_layers()) / layers));
        let output = self.last_stage_extra();
        let p = self.mapping.pipeline;
        let mean = mean_layer.times(layers / f64::from(p)).plus(&output.times(1.0 / f64::from(p)));
        if p == 1 {
            return (mean, mean);
        }
        let ends = if self.calibration.software.balanced_ends { 2 } else { 0 };
        let inner = (model.layers + ends).div_ceil(p);
        let last = inner - u32::from(ends > 0 || !model.layers.is_multiple_of(p));
        let inner = mean_layer.times(inner.into());
        let last = mean_layer.times(last.into()).plus(&output);
        (mean, if last.total() > inner.total() { last } else { inner })
    }

    /// Seconds of one pipeline transfer.
    fn transfer(&self) -> f64 {
        let mapping = &self.mapping;
        if mapping.pipeline == 1 {
            return 0.0;
        }
        let group = Group {
            size: mapping.pipeline.into(),
            stride: mapping.gpus() / u64::from(mapping.pipeline),
        };
        let split = if self.calibration.software.split_transfers { self.tensor() } else { 1.0 };
        let bytes = 2.0 * self.tokens() * f64::from(self.model.hidden) / split;
        self.network.neighbour(group, bytes, &self.calibration.network)
    }

    /// Seconds of the DP exchange of a step, before anything hides it.
    fn data_exchange(&self, micro_batches: f64) -> f64 {
        let (mapping, software) = (&self.mapping, &self.calibration.software);
        let links = &self.calibration.network;
        let (dense, experts) = weights_per_gpu(self.model, mapping);
        let replicas = u64::from(mapping.data) * u64::from(mapping.context);
        let all = Group { size: replicas, stride: mapping.tensor.into() };
        let expert_replicas = Group {
            size: replicas / u64::from(mapping.expert),
            stride: u64::from(mapping.tensor) * u64::from(mapping.expert),
        };
        let gather = |bytes: f64| {
            self.network.all_gather(all, dense * bytes, links)
                + self.network.all_gather(expert_replicas, experts * bytes, links)
        };
        match software.sharding {
            Sharding::Replicated => 2.0 * gather(software.gradient_bytes),
            Sharding::Optimizer | Sharding::Gradients => {
                gather(software.gradient_bytes) + gather(2.0)
            }
            Sharding::Everything => {
                micro_batches * (gather(software.gradient_bytes) + 2.0 * gather(2.0))
            }
        }
    }

    /// Seconds of the optimizer: it reads gradient, master weight and moments, and writes them and the weight.
    fn optimizer(&self) -> f64 {
        let (dense, experts) = weights_per_gpu(self.model, &self.mapping);
        let replicas = f64::from(self.mapping.data) * f64::from(self.mapping.context);
        let shared = match self.calibration.software.sharding {
            Sharding::Replicated => 1.0,
            _ => replicas,
        };
        let expert_shared = (shared / f64::from(self.mapping.expert)).max(1.0);
        self.memory_seconds(30.0 * (dense / shared + experts / expert_shared))
            + self.calibration.step_seconds
    }

    /// DP exchange that is not hidden: what exceeds the passes it may hide behind, and what contention costs.
    fn exposed_data(&self, stage: &Passes, exchange: f64, micro_batches: f64) -> f64 {
        let software = &self.calibration.software;
        if !software.data_overlap {
            return exchange;
        }
        let passes = if software.sharding == Sharding::Everything { micro_batches } else { 1.0 };
        let window = stage.total() * passes;
        (exchange - window).max(exchange * self.calibration.data_exposed)
    }
}

/// Seconds of computing in the two directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Half {
    /// Forward.
    pub forward: f64,
    /// Both gradients.
    pub backward: f64,
    /// The gradient of the weights, part of `backward`; known for the output layer only.
    pub weight_gradient: f64,
}

/// What a rank computes in one layer. Without exchange; recomputation of the whole layer not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerParts {
    /// Attention without its core.
    pub attention: Half,
    /// The attention core.
    pub core: Half,
    /// The feed-forward part or the experts.
    pub feed_forward: Half,
    /// The weight gradients of the layer, part of the backward passes above.
    pub weight_gradient: f64,
    /// Whether it has experts.
    pub is_expert: bool,
}

/// What a rank does in a step: what a task graph is made of. Seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pieces {
    /// A dense layer and one with experts.
    layers: [LayerParts; 2],
    /// Whether whole layers are computed again.
    pub is_recomputed: bool,
    /// What the last stage does beside its layers.
    pub output: Half,
    /// Bytes of the whole array in one all-gather or reduce-scatter of TP.
    pub exchange_bytes: f64,
    /// Bytes of the keys and values of a rank's tokens.
    pub context_block_bytes: f64,
    /// Bytes that a rank has for Ulysses' all-to-alls before and after the attention core.
    pub context_turn_bytes: [f64; 2],
    /// Bytes that a rank has for one all-to-all of EP.
    pub expert_bytes: f64,
    /// Bytes that a rank sends to the next stage.
    pub transfer_bytes: f64,
    /// Weights of a rank: those that all replicas share, and experts.
    pub weights: (f64, f64),
    /// Seconds of the optimizer.
    pub optimizer_seconds: f64,
}

impl Pieces {
    /// The parts of a layer by its place in the model: dense layers come first.
    #[must_use]
    pub fn layer(&self, job: &Job<'_>, layer: u32) -> LayerParts {
        self.layers[usize::from(layer >= job.model.dense_layers())]
    }
}

impl Job<'_> {
    /// The pieces of a step.
    #[must_use]
    pub fn pieces(&self) -> Pieces {
        let output = self.last_stage_extra();
        let split = if self.calibration.software.split_transfers { self.tensor() } else { 1.0 };
        let bytes = 2.0 * self.tokens() * f64::from(self.model.hidden);
        Pieces {
            layers: [self.layer_parts(false), self.layer_parts(true)],
            is_recomputed: self.mapping.recompute == Recompute::Full,
            output: Half {
                forward: output.forward.total(),
                backward: output.backward.total(),
                weight_gradient: output.weight_gradient,
            },
            exchange_bytes: bytes,
            context_block_bytes: self.context_block(),
            context_turn_bytes: self.context_turns(),
            expert_bytes: self.dispatch_bytes(),
            transfer_bytes: bytes / split,
            weights: weights_per_gpu(self.model, &self.mapping),
            optimizer_seconds: self.optimizer(),
        }
    }

    fn layer_parts(&self, is_expert: bool) -> LayerParts {
        let (projections, products) = (self.projection_gemms(), self.feed_forward_gemms(is_expert));
        let (core, core_backward) = self.attention_core();
        let elements = self.memory_seconds(self.element_bytes(is_expert));
        let passes = self.layer(is_expert);
        let accumulate = passes.weight_gradient - projections - products;
        let half = |gemms: f64| Half {
            forward: gemms + elements / 2.0,
            backward: 2.0 * gemms + elements + accumulate / 2.0,
            weight_gradient: 0.0,
        };
        let mut parts = LayerParts {
            attention: half(projections),
            core: Half { forward: core, backward: core_backward, weight_gradient: 0.0 },
            feed_forward: half(products),
            weight_gradient: passes.weight_gradient,
            is_expert,
        };
        // Launching kernels, and what selective recomputation repeats, stand with attention.
        let again =
            if self.mapping.recompute == Recompute::Full { passes.forward.compute } else { 0.0 };
        let (forward, backward) = (passes.forward.compute, passes.backward.compute - again);
        parts.attention.forward += forward - parts.sum(|half| half.forward);
        parts.attention.backward += backward - parts.sum(|half| half.backward);
        parts
    }

    /// Layers of the `place`-th of `places` pieces of the model. Where ends are balanced, the first and the last
    /// piece hold one less; otherwise the first pieces hold what is left over.
    #[must_use]
    pub fn layers_of(&self, place: u32, places: u32) -> std::ops::Range<u32> {
        let layers = self.model.layers;
        let ends = u32::from(self.calibration.software.balanced_ends && places > 1);
        let cut = |place: u32| {
            let all = layers + 2 * ends;
            let before = all / places * place + (all % places).min(place);
            before.saturating_sub(ends).min(layers)
        };
        cut(place)..cut(place + 1)
    }
}

impl LayerParts {
    fn sum(&self, of: impl Fn(&Half) -> f64) -> f64 {
        [self.attention, self.core, self.feed_forward].iter().map(of).sum()
    }
}

/// How long one step of `job` takes.
#[must_use]
pub fn step_time(job: &Job<'_>) -> StepTime {
    let mapping = &job.mapping;
    let (mean, slowest) = job.stages();
    let micro_batches = mapping.micro_batches(job.batch);
    let (m, p, v) =
        (micro_batches as f64, f64::from(mapping.pipeline), f64::from(mapping.virtual_stages));
    // The mean of the stages beside the slowest: with it, the pipeline takes the sum of all stages and no more.
    let others = if mapping.pipeline > 1 {
        mean.times(p / (p - 1.0)).plus(&slowest.times(-1.0 / (p - 1.0)))
    } else {
        mean
    };
    let PipelineTime { bubble_seconds, .. } = pipeline_time(
        mapping.schedule,
        mapping.pipeline,
        mapping.virtual_stages,
        micro_batches,
        others.stage_time(),
        slowest.stage_time(),
    );
    let transfer = job.transfer();
    let transfer_seconds = 2.0 * transfer * (m * v * job.calibration.pipeline_exposed + (p - 1.0));
    let data_seconds = job.exposed_data(&mean, job.data_exchange(m), m);
    let optimizer_seconds = job.optimizer();
    let busy = slowest.forward.plus(&slowest.backward);
    let before_jitter =
        m * busy.total() + bubble_seconds + transfer_seconds + data_seconds + optimizer_seconds;
    let doublings = (mapping.gpus() as f64 / 8.0).log2().max(0.0);
    let jitter_seconds = before_jitter * job.calibration.jitter_per_doubling * doublings;
    StepTime {
        step_seconds: before_jitter + jitter_seconds,
        compute_seconds: m * busy.compute,
        tensor_seconds: m * busy.tensor,
        context_seconds: m * busy.context,
        expert_seconds: m * busy.expert,
        bubble_seconds,
        transfer_seconds,
        data_seconds,
        optimizer_seconds,
        jitter_seconds,
    }
}
