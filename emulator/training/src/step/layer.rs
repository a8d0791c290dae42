// SPDX-License-Identifier: Apache-2.0
//! Computing in a layer and in the output layer, combined with the layer's communication.

use super::Job;
use crate::calibration::Precision;
use crate::features::Feature;
use crate::flops::{self, Mask};
use crate::mapping::Recompute;
use crate::model::{Activation, Experts, LayerShares, StateSpace};
use crate::operators::{BACKWARD_FLOPS, Estimate, Size};
use lightloom_step::program::{Exchange, LayerProgram, Overlap, PassSeconds, Stretch};
use lightloom_step::work::{LayerWork, Passes};

/// Seconds in a forward pass.
struct LayerProducts {
    projections: [f64; 2],
    feed_forward: [f64; 2],
    core: [f64; 2],
    elements: f64,
    tensor: [Option<Exchange>; 2],
}

impl LayerProducts {
    fn times(&self, times: f64) -> Self {
        let [projections, feed_forward] =
            [self.projections, self.feed_forward].map(|pair| pair.map(|one| one * times));
        Self { projections, feed_forward, ..*self }
    }

    fn gemms(&self) -> f64 {
        self.projections.iter().chain(&self.feed_forward).sum()
    }
}

/// The two products of a part of a layer on one rank.
pub(super) struct ProductPair {
    pub(super) names: [&'static str; 2],
    /// Rows, inner width and columns.
    pub(super) sizes: [[f64; 3]; 2],
    /// Products computed one after the other.
    pub(super) calls: f64,
    /// Products computed together in each call.
    pub(super) grouped: f64,
    pub(super) efficiency: f64,
}

impl ProductPair {
    fn of(names: [&'static str; 2], sizes: [[f64; 3]; 2]) -> Self {
        Self { names, sizes, calls: 1.0, grouped: 1.0, efficiency: 1.0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct PlainLayer {
    work: LayerWork,
    /// Work repeated by selective recomputation, in seconds.
    selective_seconds: f64,
}

impl PlainLayer {
    pub(super) fn with(&self, recompute: Recompute) -> LayerWork {
        let mut work = self.work.clone();
        let backward = &mut work.backward;
        match recompute {
            Recompute::None => {}
            Recompute::Selective => {
                backward.push(Stretch::compute("again", self.selective_seconds));
            }
            Recompute::Full => {
                backward.stretches.splice(0..0, work.forward.stretches.iter().copied());
            }
        }
        work
    }
}

/// Extends a pass to the launch time of its kernels, of which `later` seconds follow.
fn at_least(program: &mut LayerProgram, seconds: f64, later: f64) {
    if seconds <= later {
        return;
    }
    let gap = seconds - later - program.seconds().total();
    if gap > 0.0 {
        program.push(Stretch::compute("launch", gap));
    }
}

impl Job<'_> {
    pub(super) fn plain_layer(&self, is_expert: bool) -> PlainLayer {
        let products = self.layer_products(is_expert);
        let launch = self.launch(is_expert);
        let mut forward = self.pass(is_expert, &products, false);
        at_least(&mut forward, launch, 0.0);
        let mut backward = self.pass(is_expert, &products, true);
        let later = if self.splits_backward() { products.gemms() } else { 0.0 };
        let weight_gradient = later + self.accumulation_seconds(is_expert);
        at_least(&mut backward, 2.0 * launch, weight_gradient);
        let is_fused = self.calibration.software.flash_attention;
        let selective_seconds = if is_fused { products.elements } else { products.core[0] };
        PlainLayer { work: LayerWork { forward, backward, weight_gradient }, selective_seconds }
    }

    fn layer_products(&self, is_expert: bool) -> LayerProducts {
        let (projections, products) = (self.projection_gemms(), self.feed_forward_gemms(is_expert));
        let h = f64::from(self.model.hidden);
        let values = self.model.attention.core_width() / 2.0;
        let out = values / (self.model.attention.parameters(self.model.hidden) / h);
        let down = 1.0 / self.model.feed_forward.activation.matrices();
        LayerProducts {
            projections: [projections * (1.0 - out), projections * out],
            feed_forward: [products * (1.0 - down), products * down],
            core: self.attention_core().into(),
            elements: self.element_seconds(is_expert),
            tensor: self.tensor_exchanges(),
        }
    }

    fn splits_backward(&self) -> bool {
        let features = self.calibration.software.features;
        self.mapping.is_zero_bubble() || features.has(Feature::DualPipe)
    }

    /// Combines each product with its TP exchange, the attention core with CP, and experts with the EP exchanges
    /// around them. The backward pass is in reverse order, and both products of a gradient overlap with the exchange.
    fn pass(&self, is_expert: bool, products: &LayerProducts, is_backward: bool) -> LayerProgram {
        let mut program = LayerProgram { stretches: Vec::with_capacity(10) };
        if is_backward {
            let products = &products.times(if self.splits_backward() { 1.0 } else { 2.0 });
            self.feed_forward(is_expert, products, true, &mut program);
            self.attention(products, true, &mut program);
            program.push(Stretch::compute("norms", 2.0 * products.elements));
        } else {
            self.attention(products, false, &mut program);
            self.feed_forward(is_expert, products, false, &mut program);
            program.push(Stretch::compute("norms", products.elements));
        }
        program
    }

    fn attention(&self, products: &LayerProducts, is_backward: bool, to: &mut LayerProgram) {
        let shares = self.model.shares();
        let share = shares.attention + shares.state_space;
        let [into, out] = products.projections;
        let [mut first, mut second] = [("input projections", into), ("output projection", out)]
            .map(|(name, seconds)| Stretch::compute(name, seconds));
        if is_backward {
            std::mem::swap(&mut first, &mut second);
        }
        to.push(self.with_tensor(first, share, products.tensor[0], Overlap::Before));
        self.core_with_contexts(products.core[usize::from(is_backward)], is_backward, to);
        to.push(self.with_tensor(second, share, products.tensor[1], Overlap::After));
    }

    fn feed_forward(
        &self,
        is_expert: bool,
        products: &LayerProducts,
        is_backward: bool,
        to: &mut LayerProgram,
    ) {
        // Experts that TP does not split need no exchange.
        let is_whole = is_expert && !self.expert_layout().is_cut;
        let share = if is_whole { 0.0 } else { self.model.shares().feed_forward };
        let [up, down] = products.feed_forward;
        let mut turns = [up, down];
        let mut exchanges = self.expert_exchange().filter(|_| is_expert);
        if is_backward {
            turns.reverse();
            exchanges.iter_mut().for_each(|(both, _)| both.reverse());
        }
        let elsewhere = |at: usize| {
            exchanges.as_ref().map(|(both, shown)| {
                Stretch::compute("", 0.0).covered(both[at], *shown, Overlap::Beside)
            })
        };
        to.stretches.extend(elsewhere(0));
        let [first, second] = turns.map(|seconds| Stretch::compute("feed-forward", seconds));
        to.push(self.with_tensor(first, share, products.tensor[0], Overlap::Before));
        to.push(self.with_tensor(second, share, products.tensor[1], Overlap::After));
        to.stretches.extend(elsewhere(1));
    }

    fn with_tensor(
        &self,
        product: Stretch,
        share: f64,
        exchange: Option<Exchange>,
        cover: Overlap,
    ) -> Stretch {
        let Some(exchange) = exchange.filter(|_| share > 0.0) else { return product };
        product.covered(exchange.part(share), self.tensor_shown(&exchange), cover)
    }

    /// Returns the launch time of a forward pass, which is zero with CUDA graphs.
    fn launch(&self, is_expert: bool) -> f64 {
        let (shares, constants) = (self.model.shares(), self.calibration);
        let features = constants.software.features;
        if features.has(Feature::Graphs) {
            return 0.0;
        }
        if !is_expert {
            return shares.parts() * constants.launch_seconds;
        }
        let [waiting, free, overlapped] = constants.expert_launch_seconds;
        // In hybrid models, expert-only layers include the launches of the feed-forward part.
        shares.feed_forward
            * if features.has(Feature::OverlappedDispatch) {
                overlapped
            } else if features.has_any(&[Feature::HybridEp, Feature::TokenDrop]) {
                free
            } else {
                waiting
            }
    }

    pub(super) fn output(&self) -> Passes {
        let per_rank = self.tokens() / self.tensor();
        let (h, vocabulary) = (f64::from(self.model.hidden), f64::from(self.model.vocabulary));
        let gemm = self.gemm(self.tokens(), h, vocabulary / self.tensor(), Precision::Bf16);
        let logits = vocabulary * per_rank;
        let spent = PassSeconds::compute;
        Passes {
            // Logits are written, widened to four bytes, and read to compute their maximum, sum and loss.
            forward: spent(gemm + self.memory_seconds(16.0 * logits)),
            backward: spent(2.0 * gemm + self.memory_seconds(8.0 * logits)),
            weight_gradient: gemm,
        }
    }

    /// Output layer and loss, and per prediction depth a projection, a layer and an output layer.
    pub(super) fn last_stage_extra(&self, layer: &LayerWork) -> Passes {
        let output = self.output();
        let depths = f64::from(self.model.prediction_depths);
        if depths == 0.0 {
            return output;
        }
        let gemm = self.prediction_gemm();
        let spent = PassSeconds::compute;
        let projection =
            Passes { forward: spent(gemm), backward: spent(2.0 * gemm), weight_gradient: gemm };
        let depth = projection.plus(&layer.passes()).plus(&output);
        output.plus(&depth.times(depths))
    }

    pub(super) fn projection_gemms(&self) -> f64 {
        let shares = self.model.shares();
        let mamba = self.state_space_products();
        let mamba = mamba.map_or(0.0, |pair| self.product_seconds(&pair));
        let attention = self.product_seconds(&self.attention_products());
        shares.attention * attention + shares.state_space * mamba
    }

    pub(super) fn attention_products(&self) -> ProductPair {
        let values = self.model.attention.core_width() / 2.0;
        let into = self.model.attention.parameters(self.model.hidden)
            / f64::from(self.model.hidden)
            - values;
        self.projections(["input projections", "output projection"], into, values)
    }

    pub(super) fn state_space_products(&self) -> Option<ProductPair> {
        let mamba = self.model.state_space.as_ref()?;
        let names = ["state-space input", "state-space output"];
        Some(self.projections(names, mamba.projected(), mamba.inner()))
    }

    fn projections(&self, names: [&'static str; 2], into: f64, values: f64) -> ProductPair {
        let (tokens, h) = (self.tokens(), f64::from(self.model.hidden));
        let into = [tokens, h, into / self.tensor()];
        ProductPair::of(names, [into, [tokens, values / self.tensor(), h]])
    }

    pub(super) fn product_seconds(&self, pair: &ProductPair) -> f64 {
        let [into, out] = pair.sizes;
        let into = self.gemms(pair.grouped, into, self.precision);
        let out = self.gemms(pair.grouped, out, self.precision);
        pair.calls * (into + out) / pair.efficiency
    }

    pub(super) fn feed_forward_gemms(&self, is_expert: bool) -> f64 {
        let (products, shared) = self.feed_forward_pairs(is_expert);
        let shared = shared.map_or(0.0, |pair| self.product_seconds(&pair));
        self.model.shares().feed_forward * (self.product_seconds(&products) + shared)
    }

    /// Products of a dense layer, or of routed and shared experts.
    pub(super) fn feed_forward_pairs(&self, is_expert: bool) -> (ProductPair, Option<ProductPair>) {
        let (Some(experts), true) = (&self.model.feed_forward.experts, is_expert) else {
            let names = ["feed-forward up", "feed-forward down"];
            return (self.dense_products(names, self.model.feed_forward.width), None);
        };
        let names = ["shared experts up", "shared experts down"];
        let shared =
            (experts.shared_width > 0).then(|| self.dense_products(names, experts.shared_width));
        (self.routed_experts(experts), shared)
    }

    fn dense_products(&self, names: [&'static str; 2], width: u32) -> ProductPair {
        let width = f64::from(width) / self.tensor();
        ProductPair::of(names, self.feed_forward_sizes(self.tokens(), width))
    }

    fn routed_experts(&self, experts: &Experts) -> ProductPair {
        let features = self.calibration.software.features;
        let efficiency = match self.precision {
            // A fused kernel is scheduled like a dense product.
            _ if features.has(Feature::FusedExperts) => 1.0,
            Precision::Bf16 => self.calibration.expert_efficiency,
            _ => self.calibration.expert_efficiency_fp8,
        };
        let local = f64::from(experts.count) / f64::from(self.mapping.expert);
        let fullest = if self.mapping.expert > 1 { 1.0 + self.expert_imbalance } else { 1.0 };
        // A rank with whole experts receives the tokens of its own share of the sequence.
        let cut = self.expert_layout().cut(&self.mapping);
        let rows = self.tokens() * f64::from(experts.top_k) / local * fullest * cut / self.tensor();
        let is_grouped = features.has_any(&[Feature::GroupedExperts, Feature::FusedExperts]);
        let [calls, grouped] = if is_grouped { [1.0, local] } else { [local, 1.0] };
        let sizes = self.feed_forward_sizes(rows, f64::from(experts.width) / cut);
        let names = ["experts up", "experts down"];
        ProductPair { names, sizes, calls, grouped, efficiency }
    }

    pub(super) fn feed_forward_products(&self, rows: f64, width: f64) -> f64 {
        let sizes = self.feed_forward_sizes(rows, width / self.tensor());
        self.product_seconds(&ProductPair::of(["up", "down"], sizes))
    }

    /// `width` is per rank.
    pub(super) fn feed_forward_sizes(&self, rows: f64, width: f64) -> [[f64; 3]; 2] {
        let h = f64::from(self.model.hidden);
        let gates = self.model.feed_forward.activation.matrices() - 1.0;
        [[rows, h, gates * width], [rows, width, h]]
    }

    /// A `rows×inner` by `inner×columns` product: operations, ramp-up and tail, memory traffic.
    fn gemm(&self, rows: f64, inner: f64, columns: f64, precision: Precision) -> f64 {
        self.gemms(1.0, [rows, inner, columns], precision)
    }

    pub(super) fn gemms(
        &self,
        count: f64,
        [rows, inner, columns]: [f64; 3],
        precision: Precision,
    ) -> f64 {
        let (compute, shares) = (self.compute, self.calibration);
        let size = Size::of_product(count, [rows, inner, columns], precision.format());
        let table = compute.operators.as_ref();
        if let Some(estimate) = table.and_then(|table| table.product(size, precision)) {
            let seconds = estimate.ratio * size.roofline(self.peak(precision), compute.memory_rate);
            return seconds.max(self.start_seconds());
        }
        let rate = shares.gemm_efficiency[precision as usize] * self.peak(precision);
        (size.flops + self.calibration.gemm_lost_flops) / rate + self.memory_seconds(size.bytes)
    }

    fn peak(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Bf16 => self.compute.peak_flops,
            Precision::Fp8 | Precision::Mxfp8 => self.compute.peak_flops_fp8,
            Precision::Nvfp4 => self.compute.peak_flops_fp4,
        }
    }

    /// Without CUDA graphs, a product takes at least the measured time between two launches.
    fn start_seconds(&self) -> f64 {
        let is_launched = !self.calibration.software.features.has(Feature::Graphs);
        let table = self.compute.operators.as_ref().filter(|_| is_launched);
        table.map_or(0.0, |table| table.launch_seconds)
    }

    pub(super) fn attention_core(&self) -> (f64, f64) {
        let tokens = self.tokens() / self.tensor();
        let rate = self.compute.peak_flops * self.calibration.attention_efficiency;
        let full = flops::attention_core(self.model, self.batch.tokens, Mask::Full) * tokens;
        if self.calibration.software.flash_attention {
            let forward = full / 2.0 / rate;
            let seconds = [forward, BACKWARD_FLOPS * forward];
            let Some(estimates) = self.attention_estimates() else { return seconds.into() };
            // Relative to the time at peak.
            let [forward, backward] = [0, 1].map(|pass| {
                estimates[pass].ratio * seconds[pass] * self.calibration.attention_efficiency
            });
            return (forward, backward);
        }
        let scores = self.model.shares().attention
            * f64::from(self.model.attention.heads())
            * self.batch.tokens as f64
            * tokens;
        // Softmax and dropout read and write the scores twice, and a mask of one byte.
        (
            full / rate + self.memory_seconds(9.0 * scores),
            2.0 * full / rate + self.memory_seconds(11.0 * scores),
        )
    }

    pub(super) fn attention_estimates(&self) -> Option<[Estimate; 2]> {
        let attention = &self.model.attention;
        let head_size = attention.core_width() / 2.0 / f64::from(attention.heads());
        let table = self.compute.operators.as_ref()?;
        table.attention(self.rank_heads(), self.batch.tokens as f64, head_size)
    }

    /// Heads of all sequences of a micro-batch on one rank.
    pub(super) fn rank_heads(&self) -> f64 {
        let sequences = f64::from(self.mapping.micro_batch) / f64::from(self.mapping.context);
        sequences * f64::from(self.model.attention.heads()) / self.tensor()
    }

    pub(super) fn element_seconds(&self, is_expert: bool) -> f64 {
        let table = self.compute.operators.as_ref();
        let relative = table.map_or(1.0, |table| table.elementwise);
        relative * self.memory_seconds(self.element_bytes(is_expert))
    }

    pub(super) fn element_bytes(&self, is_expert: bool) -> f64 {
        self.element_bytes_of(self.model.shares(), is_expert)
    }

    pub(super) fn residual_bytes(&self, parts: f64) -> f64 {
        let split = if self.calibration.software.sequence_parallel { self.tensor() } else { 1.0 };
        2.0 * self.tokens() * parts * 10.0 * f64::from(self.model.hidden) / split
    }

    pub(super) fn element_bytes_of(&self, shares: LayerShares, is_expert: bool) -> f64 {
        let tokens = self.tokens();
        let h = f64::from(self.model.hidden);
        let split = if self.calibration.software.sequence_parallel { self.tensor() } else { 1.0 };
        // A layer has two norms (read, write) and two residual additions (read twice, write).
        let residual = shares.parts() * 10.0 * h / split;
        let mamba = self.model.state_space.as_ref().map_or(0.0, StateSpace::moved_bytes);
        let per_width = match self.model.feed_forward.activation {
            Activation::Gelu | Activation::SquaredRelu => 2.0,
            Activation::Swiglu => 3.0,
            // Biases, two clamps, sigmoid and products are separate kernels.
            Activation::SwigluClamped => 24.0,
        };
        let features = self.calibration.software.features;
        let (width, inputs, routed) = match (&self.model.feed_forward.experts, is_expert) {
            (Some(experts), true) => {
                let (top_k, shared) = (f64::from(experts.top_k), f64::from(experts.shared_width));
                // A plain all-to-all permutes tokens on both sides, before and after the experts.
                let is_once = features.has_any(&[Feature::DeepEp, Feature::HybridEp]);
                let times = if is_once || self.mapping.expert == 1 { 4.0 } else { 8.0 };
                let inputs = top_k + f64::from(u8::from(shared > 0.0));
                // Fused products write the input of the next product directly.
                let is_fused = features.has(Feature::FusedExperts);
                let moved = if is_fused { 0.0 } else { top_k * f64::from(experts.width) };
                (moved + shared, inputs * h, times * top_k * h / split)
            }
            _ => (f64::from(self.model.feed_forward.width), h, 0.0),
        };
        // With 8 bits, inputs of matrix products are read and written twice: plain and transposed.
        let cast = match self.precision {
            Precision::Bf16 => 0.0,
            _ => {
                2.0 * (2.0 * shares.attention * h + shares.feed_forward * (inputs + width))
                    / self.tensor()
            }
        };
        let per_part = routed + per_width * width / self.tensor();
        2.0 * tokens * (residual + cast + shares.feed_forward * per_part)
            + tokens * shares.state_space * mamba / self.tensor()
    }

    /// Adds the gradients of a micro-batch to those of the step.
    pub(super) fn accumulation_seconds(&self, is_expert: bool) -> f64 {
        let bytes = 2.0 * self.calibration.software.gradient_bytes;
        self.memory_seconds(bytes * self.layer_weights(is_expert))
    }

    /// Projection of a prediction depth from the last layer and the next token.
    pub(super) fn prediction_gemm(&self) -> f64 {
        let h = f64::from(self.model.hidden);
        self.gemm(self.tokens(), 2.0 * h, h / self.tensor(), self.precision)
    }

    fn layer_weights(&self, is_expert: bool) -> f64 {
        let feed_forward = match (&self.model.feed_forward.experts, is_expert) {
            (Some(experts), true) => {
                let held = f64::from(experts.count) / f64::from(self.mapping.expert);
                let cut = self.expert_layout().cut(&self.mapping);
                held * self.model.expert_parameters() / cut * self.tensor()
                    + self.model.shared_parameters()
            }
            _ => self.model.dense_parameters(),
        };
        (self.model.attention_parameters() + feed_forward) / self.tensor()
    }
}
