// SPDX-License-Identifier: Apache-2.0
//! MFU of rings relative to DGX, as in the InfiniteHBD study (arXiv 2502.03885, SIGCOMM 2025).
//!
//! Only the abstract's "MFU up to 3.37 times that of DGX with 8 GPUs per node" was available, not the table behind it.

use super::architecture::architecture;
use super::calibration::{Calibration, Precision};
use super::cards;
use super::mapping::Batch;
use super::search::{Found, Limits, Search};

/// The study's simulator was not available, so both extremes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hiding {
    /// As in the fitted constants of NeMo, in groups of up to eight GPUs.
    Fitted,
    Nothing,
}

impl Hiding {
    fn constants(self, mut fitted: Calibration) -> Calibration {
        if self == Self::Nothing {
            (fitted.tensor_exposed[0], fitted.expert_exposed[0]) = (1.0, 1.0);
        }
        fitted
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub ring: Found,
    pub dgx: Found,
    /// MFU of the ring ÷ that of DGX.
    pub gain: f64,
}

const GPUS: [u64; 8] = [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072];
/// The recalled batch of the study: 2,048 sequences of 8,192 tokens for any number of GPUs.
pub const BATCH: Batch = Batch { sequences: 2048, tokens: 8192 };

const TENSOR_OF_DGX: [u32; 4] = [1, 2, 4, 8];

fn best(
    arch: &str,
    gpus: u64,
    batch: Batch,
    limits: Limits,
    hiding: Hiding,
) -> Option<(Found, f64)> {
    let model = cards::model("llama-3.1-405b").expect("the model is shipped");
    let card = cards::accelerator("h100").expect("h100 is shipped");
    let network = architecture(arch).expect("the architecture exists");
    let search = Search {
        model: &model,
        batch,
        gpus,
        compute: &card.compute(),
        network: &network,
        calibration: &hiding.constants(card.calibration()),
        precision: Precision::Bf16,
        expert_imbalance: 0.0,
        limits,
    };
    let found = search.run().found.first().copied()?;
    Some((found, search.mfu(&found, card.compute().peak_flops)))
}

/// Compares Llama-3.1-405B on the ring with DGX at TP ≤ 8. `context`: CP sizes (empty: all).
pub fn sweep(batch: Batch, context: &[u32], hiding: Hiding) -> Vec<Point> {
    GPUS.into_iter()
        .filter_map(|gpus| {
            let open = Limits { context: context.to_vec(), ..Limits::default() };
            let node = Limits { tensor: TENSOR_OF_DGX.to_vec(), ..open.clone() };
            let (ring, ring_mfu) = best("khop:3", gpus, batch, open, hiding)?;
            let (dgx, dgx_mfu) = best("dgx", gpus, batch, node, hiding)?;
            Some(Point { ring, dgx, gain: ring_mfu / dgx_mfu })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_reproduces_the_shape_of_the_study() {
        let points = sweep(BATCH, &[1], Hiding::Fitted);
        assert_eq!(points.len(), GPUS.len());
        assert!(points[0].gain < 1.1, "{}", points[0].gain);
        let last = points[points.len() - 1];
        assert!(last.gain > 3.0, "{}", last.gain);
        assert_eq!(last.ring.mapping.tensor, 64);
        for point in &points {
            assert!(point.dgx.mapping.tensor <= 8);
            assert!(point.gain > 1.0);
        }
    }
}
