// SPDX-License-Identifier: Apache-2.0
//! Compares the list of operators of `lightloom mfu --why` with the step.

use lightloom_training::cards;
use lightloom_training::features::Feature;
use lightloom_training::mapping::{Batch, Mapping, Recompute};
use lightloom_training::step::{Job, step_time};

/// On one GPU whose kernels start from a graph, a step is the sum of its operators.
#[test]
fn operators_add_up_to_a_step_without_exchanges() {
    let card = cards::accelerator("h200").expect("a shipped accelerator");
    let (compute, network, mut calibration) = (card.compute(), card.network(), card.calibration());
    let software = &mut calibration.software;
    software.features = software.features.with(Feature::Graphs).with(Feature::GroupedExperts);
    for name in ["llama-3.1-8b", "mixtral-8x7b", "nemotron-h-56b", "nemotron-3-nano", "deepseek-v3"]
    {
        let model = cards::model(name).expect("a shipped model");
        for (recompute, is_fused) in [
            (Recompute::None, true),
            (Recompute::Selective, true),
            (Recompute::Selective, false),
            (Recompute::Full, true),
        ] {
            calibration.software.flash_attention = is_fused;
            let job = Job {
                model: &model,
                network: &network,
                compute: &compute,
                calibration: &calibration,
                precision: Default::default(),
                expert_imbalance: 0.0,
                mapping: Mapping { recompute, ..Mapping::ONE_GPU },
                batch: Batch { sequences: 4, tokens: 4096 },
            };
            let sum: f64 = job.operators().iter().map(|operator| operator.seconds).sum();
            let step = step_time(&job).step_seconds;
            let off = sum / step - 1.0;
            assert!(off.abs() < 1e-9, "{name} {recompute:?} {is_fused}: {sum} s of {step} s");
        }
    }
}
