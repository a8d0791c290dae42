// SPDX-License-Identifier: Apache-2.0
//! Lists the operators of a step on one GPU, with the measurements they were interpolated from.

use serde::Serialize;

use super::Job;
use crate::mapping::Recompute;
use crate::operators::{MeasuredProduct, Size};

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
        let micro_batches = self.mapping.micro_batches(self.batch) as f64;
        let per_stage = micro_batches / f64::from(self.mapping.pipeline);
        let shares = self.model.shares();
        let [dense, expert] = [self.model.dense_layers(), self.model.expert_layers()]
            .map(|layers| f64::from(layers) * per_stage);
        let passes = 3.0 + again;
        let [into, out] = self.attention_projections();
        let attention = (dense + expert) * shares.attention;
        let mut all = vec![
            self.products("input projections", attention * passes, 1.0, into),
            self.products("output projection", attention * passes, 1.0, out),
        ];
        if let Some(mamba) = &self.model.state_space {
            let [into, out] = self.projections(mamba.projected(), mamba.inner());
            let times = (dense + expert) * shares.state_space * passes;
            all.push(self.products("state-space input", times, 1.0, into));
            all.push(self.products("state-space output", times, 1.0, out));
        }
        let width = f64::from(self.model.feed_forward.width) / self.tensor();
        let feed_forward = shares.feed_forward * passes;
        let [up, down] = self.feed_forward_sizes(self.tokens(), width);
        all.push(self.products("feed-forward up", dense * feed_forward, 1.0, up));
        all.push(self.products("feed-forward down", dense * feed_forward, 1.0, down));
        if let Some(experts) = &self.model.feed_forward.experts {
            let routed = self.routed_experts(experts);
            let [up, down] = routed.sizes;
            for (name, size) in [("experts up", up), ("experts down", down)] {
                let [calls, count] =
                    if routed.is_grouped { [1.0, routed.local] } else { [routed.local, 1.0] };
                let times = expert * feed_forward * calls / routed.efficiency;
                all.push(self.products(name, times, count, size));
            }
            let width = f64::from(experts.shared_width) / self.tensor();
            let [up, down] = self.feed_forward_sizes(self.tokens(), width);
            all.push(self.products("shared experts up", expert * feed_forward, 1.0, up));
            all.push(self.products("shared experts down", expert * feed_forward, 1.0, down));
        }
        all.extend(self.cores((dense + expert) * (1.0 + again), dense + expert));
        let elements = dense * self.element_seconds(false) + expert * self.element_seconds(true);
        let output = self.output();
        for (name, seconds) in [
            ("norms and activations", elements * passes),
            ("output layer", per_stage * (output.forward.total() + output.backward.total())),
            ("optimizer", self.optimizer()),
        ] {
            all.push(StepOperator { name, size: String::new(), seconds, nearest: None });
        }
        all.retain(|one| one.seconds > 0.0);
        all.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        all
    }

    /// `count` grouped products of this size, `times` per step.
    fn products(&self, name: &'static str, times: f64, count: f64, size: [f64; 3]) -> StepOperator {
        let seconds = if times > 0.0 && size[1] * size[2] > 0.0 {
            times * self.gemms(count, size, self.precision)
        } else {
            0.0
        };
        let nearest = self.compute.operators.as_ref().and_then(|table| {
            let whole = Size::of_product(count, size, self.precision);
            let estimate = table.product(whole, self.precision)?;
            let MeasuredProduct { rows, inner, columns, .. } =
                table.source.products[estimate.nearest];
            Some(NearestPoint {
                size: format!("{rows}×{inner}×{columns}"),
                factor: estimate.factor,
            })
        });
        let [rows, inner, columns] = size.map(|side| side.round());
        let of = if count > 1.0 { format!("{count:.0} × ") } else { String::new() };
        StepOperator { name, size: format!("{of}{rows}×{inner}×{columns}"), seconds, nearest }
    }

    /// Forward and backward pass of the attention core.
    fn cores(&self, forward: f64, backward: f64) -> [StepOperator; 2] {
        let (once, back) = self.attention_core();
        let sequences = f64::from(self.mapping.micro_batch) / f64::from(self.mapping.context);
        let heads = sequences * f64::from(self.model.attention.heads()) / self.tensor();
        let size = format!("{heads:.0}×{}", self.batch.tokens);
        let nearest = |pass: usize| {
            let estimate = self.attention_estimates()?[pass];
            let table = self.compute.operators.as_ref()?;
            let point = table.source.attention[estimate.nearest];
            Some(NearestPoint {
                size: format!("{}×{}", point.heads, point.tokens),
                factor: estimate.factor,
            })
        };
        [
            ("attention core, forward", forward * once, 0),
            ("attention core, backward", backward * back, 1),
        ]
        .map(|(name, seconds, pass)| StepOperator {
            name,
            size: size.clone(),
            seconds,
            nearest: nearest(pass),
        })
    }
}
