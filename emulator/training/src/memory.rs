// SPDX-License-Identifier: Apache-2.0
//! Memory demand of the fullest GPU.
//!
//! States per weight and activations per layer follow Megatron-LM's `theoretical_memory_usage`. The
//! fullest rank is in the first stage, with an embedding and the most micro-batches in flight.

use super::calibration::Software;
use super::features::Feature;
use super::mapping::{Mapping, Recompute};
use super::model::{Activation, Model};
use super::step::Job;

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct GpuMemory {
    pub states_bytes: f64,
    pub activations_bytes: f64,
}

impl GpuMemory {
    pub fn total_bytes(&self) -> f64 {
        self.states_bytes + self.activations_bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertLayout {
    /// Whether TP shards each expert. Otherwise experts are whole, and EP may span TP groups.
    pub is_cut: bool,
    pub stride: u64,
    pub replicas: u64,
}

impl ExpertLayout {
    pub fn of(mapping: &Mapping, software: &Software) -> Self {
        let replicas = u64::from(mapping.data) * u64::from(mapping.context);
        let (tensor, expert) = (u64::from(mapping.tensor), u64::from(mapping.expert.max(1)));
        let is_cut = !software.folded_experts && replicas.is_multiple_of(expert);
        let (stride, ranks) = if is_cut { (tensor, replicas) } else { (1, replicas * tensor) };
        Self { is_cut, stride, replicas: (ranks / expert).max(1) }
    }

    pub fn cut(&self, mapping: &Mapping) -> f64 {
        if self.is_cut { f64::from(mapping.tensor) } else { 1.0 }
    }
}

/// Returns the weights on the fullest rank: weights that are replicated over DP, and experts.
/// Layers for multi-token prediction belong to the last stage and are added to the largest stage.
pub fn weights_per_gpu(model: &Model, mapping: &Mapping, software: &Software) -> (f64, f64) {
    let tensor = f64::from(mapping.tensor);
    let pipeline = f64::from(mapping.pipeline);
    let (layers, expert_layers) = (f64::from(model.layers), f64::from(model.expert_layers()));
    let depths = f64::from(model.prediction_depths);
    let is_expert = expert_layers > 0.0;
    let depth = model.attention_parameters()
        + if is_expert { model.shared_parameters() } else { model.dense_parameters() }
        + 2.0 * f64::from(model.hidden).powi(2);
    let dense = (layers * model.attention_parameters()
        + (layers - expert_layers) * model.dense_parameters()
        + expert_layers * model.shared_parameters())
        / pipeline
        + depths * depth
        + model.embedding_parameters() * if mapping.pipeline == 1 { 2.0 } else { 1.0 };
    let experts = model.feed_forward.experts.as_ref().map_or(0.0, |experts| {
        let own = expert_layers / pipeline + if is_expert { depths } else { 0.0 };
        own * f64::from(experts.count) / f64::from(mapping.expert) * model.expert_parameters()
    });
    (dense / tensor, experts / ExpertLayout::of(mapping, software).cut(mapping))
}

/// The most heavily loaded EP rank receives `expert_imbalance` more than its share of tokens.
fn activations_per_layer(job: &Job<'_>) -> f64 {
    let Job { model, mapping, batch, precision, expert_imbalance, .. } = job;
    let software = &job.calibration.software;
    let (h, t) = (f64::from(model.hidden), f64::from(mapping.tensor));
    let tokens = f64::from(mapping.micro_batch) * batch.tokens as f64 / f64::from(mapping.context);
    if mapping.recompute == Recompute::Full {
        return 2.0 * tokens * h / if software.sequence_parallel { t } else { 1.0 };
    }
    let fullest = if mapping.expert > 1 { 1.0 + expert_imbalance } else { 1.0 };
    let feed_forward = model.feed_forward.experts.as_ref().map_or(
        f64::from(model.feed_forward.width),
        |experts| {
            fullest * f64::from(experts.top_k) * f64::from(experts.width)
                + f64::from(experts.shared_width)
        },
    );
    let is_selective = mapping.recompute == Recompute::Selective;
    // Models with GELU usually have dropout, which stores two masks of one byte each. With a fused attention core,
    // selective recomputation drops the outputs of norms and activation instead of the scores.
    let (per_width, kept_width, masks) = match model.feed_forward.activation {
        Activation::Gelu => (4.0, 2.0, 2.0),
        Activation::SquaredRelu => (4.0, 2.0, 0.0),
        Activation::Swiglu | Activation::SwigluClamped => (6.0, 4.0, 0.0),
    };
    let drops_outputs = is_selective && software.flash_attention;
    let (norm_outputs, per_width) =
        if drops_outputs { (0.0, kept_width) } else { (4.0, per_width) };
    // Inputs of linear layers are stored in the precision of the multiplication.
    let saved = 2.0 - precision.operand_bytes();
    let norm_outputs = norm_outputs * (1.0 - saved / 2.0);
    let per_width = if drops_outputs { per_width } else { per_width - saved };
    let attention = model.attention.core_width() + model.attention.key_value_width();
    let core_output = saved * model.attention.core_width() / 2.0;
    // Mamba-2 stores the outputs of its projection and of its scan.
    let mamba = model.state_space.as_ref().map_or(0.0, |m| 2.0 * (m.projected() + m.inner()));
    let shares = model.shares();
    let mixing = shares.attention * (2.0 * attention - core_output) + shares.state_space * mamba;
    let split = tokens * (mixing + shares.feed_forward * per_width * feed_forward) / t;
    let whole = tokens * h * shares.parts() * (4.0 + norm_outputs + masks)
        / if software.sequence_parallel { t } else { 1.0 };
    let scores = if software.flash_attention || is_selective {
        0.0
    } else {
        shares.attention * 5.0 * f64::from(model.attention.heads()) * batch.tokens as f64 * tokens
            / t
    };
    split + whole + scores
}

pub(crate) fn memory(job: &Job<'_>) -> GpuMemory {
    let Job { model, mapping, batch, .. } = job;
    let software = &job.calibration.software;
    let (dense, experts) = weights_per_gpu(model, mapping, software);
    let replicas = f64::from(mapping.data) * f64::from(mapping.context);
    let expert_replicas = ExpertLayout::of(mapping, software).replicas as f64;
    let states_bytes =
        dense * software.state_bytes(replicas) + experts * software.state_bytes(expert_replicas);
    // Both ends of the pipeline hold a copy of the weights.
    let copies = if software.features.has(Feature::DualPipe) { 2.0 } else { 0.0 };
    let states_bytes = states_bytes + copies * (dense + experts);
    let (p, v) = (f64::from(mapping.pipeline), f64::from(mapping.virtual_stages));
    let m = mapping.micro_batches(*batch) as f64;
    let interleaving = if mapping.virtual_stages > 1 { 1.0 + (p - 1.0) / (p * v) } else { 1.0 };
    let layers = (f64::from(model.layers) / p).ceil();
    // If the end stages hold one layer fewer, the fullest stage is the first or the second.
    let pieces = mapping.pipeline * mapping.virtual_stages;
    let has_short_ends = mapping.pipeline > 1
        && !model.layers.is_multiple_of(pieces)
        && (model.layers + 2).is_multiple_of(pieces);
    let kept = if has_short_ends {
        let second = m.min(p - 1.0) * interleaving * layers;
        second.max(m.min(p) * interleaving * (layers - 1.0))
    } else {
        m.min(p) * interleaving * layers
    };
    let mut activations_bytes = activations_per_layer(job) * kept;
    if mapping.pipeline == 1 {
        let tokens =
            f64::from(mapping.micro_batch) * batch.tokens as f64 / f64::from(mapping.context);
        activations_bytes +=
            4.0 * tokens * f64::from(model.hidden + model.vocabulary) / f64::from(mapping.tensor);
    }
    GpuMemory { states_bytes, activations_bytes }
}

#[cfg(test)]
mod tests {
    use super::super::calibration::Precision;
    use super::super::cards;
    use super::super::mapping::Batch;
    use super::*;

    #[test]
    fn gpt_3_layer_keeps_34_bytes_per_value() {
        // Korthikanti et al. 2022, equation 5: 34·s·b·h/t.
        let model = cards::model("gpt-3-175b").unwrap();
        let mapping = Mapping {
            tensor: 8,
            pipeline: 8,
            virtual_stages: 3,
            recompute: Recompute::Selective,
            ..Mapping::ONE_GPU
        };
        let batch = Batch { sequences: 64, tokens: 2048 };
        let card = cards::accelerator("a100").unwrap();
        let (network, compute) = (card.network(), card.compute());
        let job = Job {
            model: &model,
            mapping,
            batch,
            compute: &compute,
            network: &network,
            calibration: &card.calibration(),
            precision: Precision::Bf16,
            expert_imbalance: 0.0,
        };
        let kept = activations_per_layer(&job);
        assert!((kept / (34.0 * 2048.0 * 12288.0 / 8.0) - 1.0).abs() < 1e-12);
        // Calculon computes 54.1 GiB in total.
        let total = memory(&job).total_bytes() / f64::from(1 << 30);
        assert!((total / 54.1 - 1.0).abs() < 0.1, "{total} GiB");
    }
}
