// SPDX-License-Identifier: Apache-2.0
//! Floating-point operations per token of a forward pass; a multiply-add counts as two.
//!
//! Follows Megatron-LM's `num_floating_point_operations`: counts projections, attention core,
//! feed-forward part and output layer, but not router, norms and other element-wise work. A
//! training step counts as three forward passes (forward, gradients of inputs and of weights).

use super::model::{Model, StateSpace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mask {
    /// The full mask, the convention of most papers until 2024.
    Full,
    /// The half below the diagonal, which causal kernels compute.
    Causal,
}

impl Mask {
    pub fn share(self) -> f64 {
        match self {
            Self::Full => 1.0,
            Self::Causal => 0.5,
        }
    }
}

/// Returns the operations per token in a sequence of `sequence` tokens, including the scan of hybrid models.
pub fn attention_core(model: &Model, sequence: u64, mask: Mask) -> f64 {
    let scan = model.state_space.as_ref().map_or(0.0, StateSpace::scan_operations);
    let shares = model.shares();
    shares.attention * 2.0 * model.attended(sequence) * model.attention.core_width() * mask.share()
        + shares.state_space * scan
}

pub fn attention_projections(model: &Model) -> f64 {
    let mamba = model
        .state_space
        .as_ref()
        .map_or(0.0, |mamba| f64::from(model.hidden) * (mamba.projected() + mamba.inner()));
    let shares = model.shares();
    2.0 * (shares.attention * model.attention.parameters(model.hidden) + shares.state_space * mamba)
}

pub fn dense_feed_forward(model: &Model) -> f64 {
    2.0 * model.dense_parameters()
}

fn expert_feed_forward(model: &Model) -> f64 {
    model.feed_forward.experts.as_ref().map_or(0.0, |experts| {
        2.0 * model.shares().feed_forward
            * model.feed_forward.activation.matrices()
            * f64::from(model.hidden)
            * (f64::from(experts.top_k) * f64::from(experts.width)
                + f64::from(experts.shared_width))
    })
}

pub fn output_layer(model: &Model) -> f64 {
    2.0 * model.embedding_parameters()
}

/// Counts output layers, and the projections before the multi-token prediction depths.
pub fn outside_layers(model: &Model) -> f64 {
    let (depths, h) = (f64::from(model.prediction_depths), f64::from(model.hidden));
    (1.0 + depths) * output_layer(model) + depths * 4.0 * h.powi(2)
}

pub fn forward_per_token(model: &Model, sequence: u64, mask: Mask) -> f64 {
    let attention = attention_projections(model) + attention_core(model, sequence, mask);
    let last_kind = if model.expert_layers() > 0 {
        expert_feed_forward(model)
    } else {
        dense_feed_forward(model)
    };
    let prediction = f64::from(model.prediction_depths)
        * (attention + last_kind + 4.0 * f64::from(model.hidden).powi(2) + output_layer(model));
    f64::from(model.layers) * attention
        + f64::from(model.dense_layers()) * dense_feed_forward(model)
        + f64::from(model.expert_layers()) * expert_feed_forward(model)
        + output_layer(model)
        + prediction
}

pub fn step_per_token(model: &Model, sequence: u64, mask: Mask) -> f64 {
    3.0 * forward_per_token(model, sequence, mask)
}

#[cfg(test)]
mod tests {
    use super::super::cards;
    use super::super::mapping::{Batch, Recompute};
    use super::super::mfu::Convention;
    use super::*;

    fn close(ours: f64, published: f64, tolerance: f64) {
        assert!((ours / published - 1.0).abs() < tolerance, "{ours:e} against {published:e}");
    }

    #[test]
    fn deepseek_v3_has_the_published_operations_per_token() {
        // arXiv 2505.09343, table 4: 385 and 432 TFLOP/s at 1,541.9 tokens/s per GPU.
        let model = cards::model("deepseek-v3").unwrap();
        close(step_per_token(&model, 4096, Mask::Causal), 385e12 / 1541.9, 0.002);
        close(step_per_token(&model, 4096, Mask::Full), 432e12 / 1541.9, 0.002);
    }

    #[test]
    fn deepseek_v3_with_one_prediction_depth_has_the_published_operations() {
        // Megatron-Bridge, GB300 table: 1635 TFLOP/s at 6288 tokens/s per GPU.
        let mut model = cards::model("deepseek-v3").unwrap();
        model.prediction_depths = 1;
        close(step_per_token(&model, 4096, Mask::Causal), 1635e12 / 6288.0, 0.002);
    }

    #[test]
    fn hybrid_has_the_published_operations_except_its_gate() {
        // Megatron-Bridge, GB300 table: 839 TFLOP/s at 37,664 tokens/s, with Mamba-2's gate twice.
        let model = cards::model("nemotron-3-nano").unwrap();
        let gates = 3.0 * 23.0 * 2.0 * 2688.0 * 4096.0;
        close(step_per_token(&model, 8192, Mask::Causal) + gates, 839e12 / 37664.0, 0.005);
    }

    #[test]
    fn llama_405b_matches_the_recipe_with_the_heads_of_its_note() {
        let mut model = cards::model("llama-3.1-405b").unwrap();
        close(step_per_token(&model, 8192, Mask::Full) * 8192.0, 2.151e16, 0.0005);
        // NVIDIA's recipe counts 16 query groups, but the model has 8.
        let super::super::model::Attention::Grouped { key_value_heads, .. } = &mut model.attention
        else {
            unreachable!("llama has grouped-query attention")
        };
        *key_value_heads = 16;
        close(step_per_token(&model, 8192, Mask::Full) * 8192.0, 2.17e16, 0.002);
    }

    #[test]
    fn gpt_3_has_the_operations_of_the_recipe() {
        let model = cards::model("gpt-3-175b").unwrap();
        // The recipe gives three significant digits, so half a unit in the last place is 0.23 %.
        close(step_per_token(&model, 2048, Mask::Full) * 2048.0, 2.20e15, 0.0023);
    }

    #[test]
    fn recomputed_layers_do_not_repeat_the_output_layer() {
        let model = cards::model("llama-3.1-8b").unwrap();
        let batch = Batch { sequences: 1, tokens: 8192 };
        let of = |recompute| Convention::HfuFull.step_flops(&model, batch, recompute) / 8192.0;
        let again = of(Recompute::Full) - of(Recompute::None);
        close(again, forward_per_token(&model, 8192, Mask::Full) - output_layer(&model), 1e-9);
    }

    #[test]
    fn gpt_3_in_13_75_seconds_on_64_a100_is_51_4_percent() {
        let model = cards::model("gpt-3-175b").unwrap();
        let batch = Batch { sequences: 64, tokens: 2048 };
        let convention = Convention::MfuFull;
        let mfu = convention.utilisation(&model, batch, Recompute::Selective, 64, 312e12, 13.75);
        close(mfu, 0.514, 0.002);
    }
}
