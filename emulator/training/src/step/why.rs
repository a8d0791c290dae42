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

pub(super) fn operators(job: &Job<'_>) -> Vec<StepOperator> {
    let again = f64::from(u8::from(job.mapping.recompute == Recompute::Full));
    let is_selective = job.mapping.recompute == Recompute::Selective;
    // Selective recomputation repeats the core, or the norms and activations if the core is fused.
    let [again_core, again_elements] = [false, true].map(|is_fused| {
        let repeats = is_selective && job.calibration.software.flash_attention == is_fused;
        again + f64::from(u8::from(repeats))
    });
    let micro_batches = job.mapping.micro_batches(job.batch) as f64;
    let per_stage = micro_batches / f64::from(job.mapping.pipeline);
    let shares = job.model.shares();
    // A prediction depth has a layer of the last kind.
    let depths = f64::from(job.model.prediction_depths);
    let mut layers = [job.model.dense_layers(), job.model.expert_layers()].map(f64::from);
    layers[usize::from(layers[1] > 0.0)] += depths;
    let [dense, expert] = layers.map(|layers| layers * per_stage);
    let passes = 3.0 + again;
    let mut all = Vec::new();
    let mixing = (dense + expert) * passes;
    all.extend(pair_products(job, &job.attention_products(), mixing * shares.attention));
    if let Some(pair) = job.state_space_products() {
        all.extend(pair_products(job, &pair, mixing * shares.state_space));
    }
    for (layers, is_expert) in [(dense, false), (expert, true)] {
        let (products, shared) = job.feed_forward_pairs(is_expert);
        for pair in [Some(products), shared].iter().flatten() {
            all.extend(pair_products(job, pair, layers * (shares.feed_forward * passes)));
        }
    }
    all.extend(cores(job, (dense + expert) * (1.0 + again_core), dense + expert));
    let elements = dense * job.element_seconds(false) + expert * job.element_seconds(true);
    let accumulation =
        dense * job.accumulation_seconds(false) + expert * job.accumulation_seconds(true);
    let output = job.output();
    let outputs = per_stage * (1.0 + depths);
    let predictions = per_stage * depths * 3.0;
    for (name, seconds) in [
        ("norms and activations", elements * (3.0 + again_elements)),
        ("gradient accumulation", accumulation),
        ("output layer", outputs * (output.forward.total() + output.backward.total())),
        ("prediction projections", predictions * job.prediction_gemm()),
        ("optimizer", job.optimizer()),
    ] {
        all.push(StepOperator { name, size: String::new(), seconds, nearest: None });
    }
    all.retain(|one| one.seconds > 0.0);
    all.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    all
}

/// Both products of a pair, computed `times` per step.
fn pair_products(job: &Job<'_>, pair: &ProductPair, times: f64) -> [StepOperator; 2] {
    let times = times * pair.calls / pair.efficiency;
    [0, 1].map(|at| {
        let size = pair.sizes[at];
        let seconds = if times > 0.0 && size[1] * size[2] > 0.0 {
            times * job.gemms(pair.grouped, size, job.precision)
        } else {
            0.0
        };
        let nearest = job.compute.operators.as_ref().and_then(|table| {
            let whole = Size::of_product(pair.grouped, size, job.precision.format());
            let Estimate { nearest: [rows, inner, columns], factor, .. } =
                table.product(whole, job.precision)?;
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
fn cores(job: &Job<'_>, forward: f64, backward: f64) -> [StepOperator; 2] {
    let (once, back) = job.attention_core();
    let size = format!("{:.0}×{}", job.rank_heads(), job.batch.tokens);
    let estimates = job.attention_estimates();
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
