// SPDX-License-Identifier: Apache-2.0
//! Lists the operators of a step on one GPU, with the measurements they were interpolated from.

use serde::Serialize;

use super::Job;
use super::layer::ProductPair;
use crate::mapping::Recompute;
use crate::operators::{Estimate, Size};

/// An operator of a step, summed over its calls on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepOperator {
    pub name: &'static str,
    /// Rows×inner×columns of a product, or heads×tokens of an attention core.
    pub size: String,
    pub seconds: f64,
    /// `None` without measured operators.
    pub nearest: Option<NearestPoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NearestPoint {
    pub size: String,
    /// Largest factor between the two in operations or bytes.
    pub factor: f64,
}

impl Job<'_> {
    /// Returns the computing operators of a mean pipeline stage, slowest first.
    pub fn operators(&self) -> Vec<StepOperator> {
        let again = f64::from(u8::from(self.mapping.recompute == Recompute::Full));
        let is_selective = self.mapping.recompute == Recompute::Selective;
        // Selective recomputation repeats the core, or the norms and activations if the core is fused.
        let [again_core, again_elements] = [false, true].map(|is_fused| {
            let repeats = is_selective && self.calibration.software.flash_attention == is_fused;
            again + f64::from(u8::from(repeats))
        });
        let micro_batches = self.mapping.micro_batches(self.batch) as f64;
        let per_stage = micro_batches / f64::from(self.mapping.pipeline);
        let shares = self.model.shares();
        // A prediction depth has a layer of the last kind.
        let depths = f64::from(self.model.prediction_depths);
        let mut layers = [self.model.dense_layers(), self.model.expert_layers()].map(f64::from);
        layers[usize::from(layers[1] > 0.0)] += depths;
        let [dense, expert] = layers.map(|layers| layers * per_stage);
        let passes = 3.0 + again;
        let mut all = Vec::new();
        let mixing = (dense + expert) * passes;
        all.extend(self.products(&self.attention_products(), mixing * shares.attention));
        if let Some(pair) = self.state_space_products() {
            all.extend(self.products(&pair, mixing * shares.state_space));
        }
        for (layers, is_expert) in [(dense, false), (expert, true)] {
            let (products, shared) = self.feed_forward_pairs(is_expert);
            for pair in [Some(products), shared].iter().flatten() {
                all.extend(self.products(pair, layers * (shares.feed_forward * passes)));
            }
        }
        all.extend(self.cores((dense + expert) * (1.0 + again_core), dense + expert));
        let elements = dense * self.element_seconds(false) + expert * self.element_seconds(true);
        let accumulation =
            dense * self.accumulation_seconds(false) + expert * self.accumulation_seconds(true);
        let output = self.output();
        let outputs = per_stage * (1.0 + depths);
        let predictions = per_stage * depths * 3.0;
        for (name, seconds) in [
            ("norms and activations", elements * (3.0 + again_elements)),
            ("gradient accumulation", accumulation),
            ("output layer", outputs * (output.forward.total() + output.backward.total())),
            ("prediction projections", predictions * self.prediction_gemm()),
            ("optimizer", self.optimizer()),
        ] {
            all.push(StepOperator { name, size: String::new(), seconds, nearest: None });
        }
        all.retain(|one| one.seconds > 0.0);
        all.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        all
    }

    /// Both products of a pair, computed `times` per step.
    fn products(&self, pair: &ProductPair, times: f64) -> [StepOperator; 2] {
        let times = times * pair.calls / pair.efficiency;
        [0, 1].map(|at| {
            let size = pair.sizes[at];
            let seconds = if times > 0.0 && size[1] * size[2] > 0.0 {
                times * self.gemms(pair.grouped, size, self.precision)
            } else {
                0.0
            };
            let nearest = self.compute.operators.as_ref().and_then(|table| {
                let whole = Size::of_product(pair.grouped, size, self.precision.format());
                let Estimate { nearest: [rows, inner, columns], factor, .. } =
                    table.product(whole, self.precision)?;
                Some(NearestPoint { size: format!("{rows}×{inner}×{columns}"), factor })
            });
            let [rows, inner, columns] = size.map(|side| side.round());
            let of =
                if pair.grouped > 1.0 { format!("{:.0} × ", pair.grouped) } else { String::new() };
            let size = format!("{of}{rows}×{inner}×{columns}");
            StepOperator { name: pair.names[at], size, seconds, nearest }
        })
    }

    /// Forward and backward pass of the attention core.
    fn cores(&self, forward: f64, backward: f64) -> [StepOperator; 2] {
        let (once, back) = self.attention_core();
        let size = format!("{:.0}×{}", self.rank_heads(), self.batch.tokens);
        let estimates = self.attention_estimates();
        [
            ("attention core, forward", forward * once, 0),
            ("attention core, backward", backward * back, 1),
        ]
        .map(|(name, seconds, pass)| {
            let nearest = estimates.map(|estimates| {
                let Estimate { nearest: [heads, tokens, _], factor, .. } = estimates[pass];
                NearestPoint { size: format!("{heads}×{tokens}"), factor }
            });
            StepOperator { name, size: size.clone(), seconds, nearest }
        })
    }
}
