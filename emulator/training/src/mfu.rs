// SPDX-License-Identifier: Apache-2.0
//! Model FLOPs utilisation in four common conventions, which differ by up to a third.

use serde::Serialize;

use super::flops::{self, Mask};
use super::mapping::{Batch, Recompute};
use super::model::Model;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    MfuFull,
    MfuCausal,
    /// Hardware utilisation, which includes recomputed operations and attention over the full mask.
    HfuFull,
    HfuCausal,
}

impl Convention {
    pub const ALL: [Self; 4] = [Self::MfuFull, Self::MfuCausal, Self::HfuFull, Self::HfuCausal];

    pub fn label(self) -> &'static str {
        match self {
            Self::MfuFull => "MFU, full attention",
            Self::MfuCausal => "MFU, causal attention",
            Self::HfuFull => "HFU, full attention",
            Self::HfuCausal => "HFU, causal attention",
        }
    }

    pub fn step_flops(self, model: &Model, batch: Batch, recompute: Recompute) -> f64 {
        let mask = match self {
            Self::MfuFull | Self::HfuFull => Mask::Full,
            Self::MfuCausal | Self::HfuCausal => Mask::Causal,
        };
        let forward = flops::forward_per_token(model, batch.tokens, mask);
        let again = match (self, recompute) {
            (Self::MfuFull | Self::MfuCausal, _) | (_, Recompute::None) => 0.0,
            (_, Recompute::Selective) => {
                f64::from(model.layers) * flops::attention_core(model, batch.tokens, mask)
            }
            (_, Recompute::Full) => forward - flops::outside_layers(model),
        };
        (3.0 * forward + again) * batch.total_tokens()
    }

    pub fn utilisation(
        self,
        model: &Model,
        batch: Batch,
        recompute: Recompute,
        gpus: u64,
        peak_flops: f64,
        step_seconds: f64,
    ) -> f64 {
        self.step_flops(model, batch, recompute) / (step_seconds * gpus as f64 * peak_flops)
    }
}
