// SPDX-License-Identifier: Apache-2.0
//! The computing and communication of a step, as input for its task graph.

use super::Job;
use crate::mapping::Recompute;
use crate::memory::weights_per_gpu;

/// Seconds of computing in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ForwardBackward {
    pub forward: f64,
    pub backward: f64,
    /// Gradient of the weights, part of `backward`. Set only for the output layer.
    pub weight_gradient: f64,
}

/// Computing of a rank in one layer, without communication and without the recomputation of whole
/// layers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerParts {
    pub attention: ForwardBackward,
    pub core: ForwardBackward,
    pub feed_forward: ForwardBackward,
    /// Weight gradients of the layer, part of the backward passes above.
    pub weight_gradient: f64,
    pub is_expert: bool,
}

/// Computing and communication of a rank in a step, in seconds and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepPieces {
    /// A dense layer and one with experts.
    layers: [LayerParts; 2],
    pub is_recomputed: bool,
    pub output: ForwardBackward,
    /// Array size in bytes of one all-gather or reduce-scatter of TP.
    pub exchange_bytes: f64,
    /// Bytes of the keys and values of a rank's tokens.
    pub context_block_bytes: f64,
    /// Bytes that a rank contributes to Ulysses' all-to-alls before and after the attention core.
    pub context_turn_bytes: [f64; 2],
    /// Bytes that a rank contributes to one all-to-all of EP.
    pub expert_bytes: f64,
    /// Bytes that a rank sends to the next stage.
    pub transfer_bytes: f64,
    /// Weights on a rank: those replicated over DP, and experts.
    pub weights: (f64, f64),
    pub optimizer_seconds: f64,
}

impl StepPieces {
    /// Returns the parts of a layer. Dense layers come first in the model.
    #[must_use]
    pub fn layer(&self, job: &Job<'_>, layer: u32) -> LayerParts {
        self.layers[usize::from(layer >= job.model.dense_layers())]
    }
}

impl Job<'_> {
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
        // Kernel launches and selective recomputation count as attention.
        let again =
            if self.mapping.recompute == Recompute::Full { passes.forward.compute } else { 0.0 };
        let (forward, backward) = (passes.forward.compute, passes.backward.compute - again);
        parts.attention.forward += forward - parts.sum(|half| half.forward);
        parts.attention.backward += backward - parts.sum(|half| half.backward);
        parts
    }

    /// Returns the layers of chunk `place` of `places`. With balanced ends, the first and the last
    /// chunk hold one layer fewer; otherwise the first chunks hold the remainder.
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
