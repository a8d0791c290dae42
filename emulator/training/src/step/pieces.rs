// SPDX-License-Identifier: Apache-2.0
//! The pieces of a step: what a task graph of it is made of.

use super::Job;
use crate::mapping::Recompute;
use crate::memory::weights_per_gpu;

/// Seconds of computing in the two directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardBackward {
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
    pub attention: ForwardBackward,
    /// The attention core.
    pub core: ForwardBackward,
    /// The feed-forward part or the experts.
    pub feed_forward: ForwardBackward,
    /// The weight gradients of the layer, part of the backward passes above.
    pub weight_gradient: f64,
    /// Whether it has experts.
    pub is_expert: bool,
}

/// What a rank does in a step: what a task graph is made of. Seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPieces {
    /// A dense layer and one with experts.
    layers: [LayerParts; 2],
    /// Whether whole layers are computed again.
    pub is_recomputed: bool,
    /// What the last stage does beside its layers.
    pub output: ForwardBackward,
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

impl StepPieces {
    /// The parts of a layer by its place in the model: dense layers come first.
    #[must_use]
    pub fn layer(&self, job: &Job<'_>, layer: u32) -> LayerParts {
        self.layers[usize::from(layer >= job.model.dense_layers())]
    }
}

impl Job<'_> {
    /// The pieces of a step.
    #[must_use]
    pub fn pieces(&self) -> StepPieces {
        let output = self.last_stage_extra();
        StepPieces {
            layers: [self.layer_parts(false), self.layer_parts(true)],
            is_recomputed: self.mapping.recompute == Recompute::Full,
            output: ForwardBackward {
                forward: output.forward.total(),
                backward: output.backward.total(),
                weight_gradient: output.weight_gradient,
            },
            exchange_bytes: self.activation_bytes(),
            context_block_bytes: self.context_block(),
            context_turn_bytes: self.context_turns(),
            expert_bytes: self.dispatch_bytes(),
            transfer_bytes: self.transfer_bytes(),
            weights: weights_per_gpu(self.model, &self.mapping, &self.calibration.software),
            optimizer_seconds: self.optimizer(),
        }
    }

    fn layer_parts(&self, is_expert: bool) -> LayerParts {
        let (projections, products) = (self.projection_gemms(), self.feed_forward_gemms(is_expert));
        let (core, core_backward) = self.attention_core();
        let elements = self.memory_seconds(self.element_bytes(is_expert));
        let passes = self.layer(is_expert);
        let accumulate = passes.weight_gradient - projections - products;
        let half = |gemms: f64| ForwardBackward {
            forward: gemms + elements / 2.0,
            backward: 2.0 * gemms + elements + accumulate / 2.0,
            weight_gradient: 0.0,
        };
        let mut parts = LayerParts {
            attention: half(projections),
            core: ForwardBackward { forward: core, backward: core_backward, weight_gradient: 0.0 },
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
    fn sum(&self, of: impl Fn(&ForwardBackward) -> f64) -> f64 {
        [self.attention, self.core, self.feed_forward].iter().map(of).sum()
    }
}
