// SPDX-License-Identifier: Apache-2.0
//! The analytic model of a training step: its duration and the breakdown.
//!
//! ```text
//! layer  = matrix products + attention core + element-wise work + exposed TP, CP, EP exchange
//! stage  = layers of a stage (+ output layer on the last)
//! step   = pipeline(stages, micro-batches) + exposed pipeline transfers + exposed DP exchange + optimizer
//! ```
//! Compute and memory time add up (Calculon's `no_overlap`), because kernels run one after the
//! other.

mod attention_ffn;
mod bare;
mod exchange;
mod inference;
mod layer;
mod passes;
mod pieces;

use serde::Serialize;

use super::calibration::{Calibration, Precision, ZeroStage};
use super::features::Feature;
use super::mapping::{Batch, Mapping};
use super::memory::{ExpertLayout, weights_per_gpu};
use super::model::Model;
use super::network::Network;
use super::schedule::{PipelineTime, dual_pipe_bubble, pipeline_time};

pub use attention_ffn::{AttentionFfn, Instances, LayerStages, Stages};
pub use bare::BareStep;
pub use inference::{Formats, Replica, Server};
pub use pieces::{ForwardBackward, LayerParts, StepPieces};

use passes::Passes;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compute {
    /// Peak operations per second with 16 bits.
    pub peak_flops: f64,
    /// Peak operations per second with 8 bits.
    pub peak_flops_fp8: f64,
    /// Peak operations per second with 4 bits.
    pub peak_flops_fp4: f64,
    pub memory_rate: f64,
    pub memory_bytes: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub model: &'a Model,
    pub mapping: Mapping,
    pub batch: Batch,
    pub compute: &'a Compute,
    pub network: &'a Network,
    pub calibration: &'a Calibration,
    pub precision: Precision,
    /// Additional tokens of the fullest expert rank, relative to an equal share; 0.2 means 20 %.
    pub expert_imbalance: f64,
}

/// Duration of a step and its parts, which add up to `step_seconds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepTime {
    pub step_seconds: f64,
    pub compute_seconds: f64,
    pub tensor_seconds: f64,
    pub context_seconds: f64,
    pub expert_seconds: f64,
    pub bubble_seconds: f64,
    pub transfer_seconds: f64,
    pub data_seconds: f64,
    pub optimizer_seconds: f64,
    /// Stragglers and congestion, which grow with the job.
    pub jitter_seconds: f64,
}

#[must_use]
pub fn step_time(job: &Job<'_>) -> StepTime {
    let mapping = &job.mapping;
    let (mean, slowest) = job.stages();
    let micro_batches = mapping.micro_batches(job.batch);
    let (m, p, v) =
        (micro_batches as f64, f64::from(mapping.pipeline), f64::from(mapping.virtual_stages));
    // Mean of all stages except the slowest, chosen so that the pipeline takes exactly the sum of
    // all stages.
    let others = if mapping.pipeline > 1 {
        mean.times(p / (p - 1.0)).plus(&slowest.times(-1.0 / (p - 1.0)))
    } else {
        mean
    };
    let PipelineTime { mut bubble_seconds, .. } = pipeline_time(
        mapping.schedule,
        mapping.pipeline,
        mapping.virtual_stages,
        micro_batches,
        others.stage_time(),
        slowest.stage_time(),
    );
    if mapping.pipeline > 1 && job.calibration.software.features.has(Feature::DualPipe) {
        bubble_seconds = dual_pipe_bubble(mapping.pipeline, others.stage_time());
    }
    let transfer = job.transfer();
    let transfer_seconds = 2.0 * transfer * (m * v * job.calibration.pipeline_exposed + (p - 1.0));
    let data_seconds = job.exposed_data(&mean, job.data_exchange(m), m);
    let optimizer_seconds = job.optimizer();
    let busy = slowest.forward.plus(&slowest.backward);
    let before_jitter =
        m * busy.total() + bubble_seconds + transfer_seconds + data_seconds + optimizer_seconds;
    let doublings = (mapping.gpus() as f64 / 8.0).log2().max(0.0);
    let jitter_seconds = before_jitter * job.calibration.jitter_per_doubling * doublings;
    StepTime {
        step_seconds: before_jitter + jitter_seconds,
        compute_seconds: m * busy.compute,
        tensor_seconds: m * busy.tensor,
        context_seconds: m * busy.context,
        expert_seconds: m * busy.expert,
        bubble_seconds,
        transfer_seconds,
        data_seconds,
        optimizer_seconds,
        jitter_seconds,
    }
}

impl Job<'_> {
    fn stages(&self) -> (Passes, Passes) {
        let model = self.model;
        let layers = f64::from(model.layers);
        let mean_layer = self
            .layer(false)
            .times(f64::from(model.dense_layers()) / layers)
            .plus(&self.layer(true).times(f64::from(model.expert_layers()) / layers));
        let output = self.last_stage_extra();
        let p = self.mapping.pipeline;
        let mean = mean_layer.times(layers / f64::from(p)).plus(&output.times(1.0 / f64::from(p)));
        if p == 1 {
            return (mean, mean);
        }
        let layers_of_slowest = self.layers_of_slowest(output.total() / mean_layer.total());
        let inner = mean_layer.times(layers_of_slowest[0]);
        let last = mean_layer.times(layers_of_slowest[1]).plus(&output);
        (mean, if last.total() > inner.total() { last } else { inner })
    }

    /// Returns the layers of the fullest inner stage and of the last one, which has additional work
    /// equal to `extra` layers.
    fn layers_of_slowest(&self, extra: f64) -> [f64; 2] {
        let (layers, p) = (self.model.layers, self.mapping.pipeline);
        let ends = if self.calibration.software.balanced_ends { 2 } else { 0 };
        let inner = (layers + ends).div_ceil(p);
        if ends > 0 || layers.is_multiple_of(p) {
            return [f64::from(inner), f64::from(inner - u32::from(ends > 0))];
        }
        // Uneven stages are divided so that the last one, including its additional work, is not
        // longer than the others.
        let last = |inner: u32| (f64::from(inner) - extra).max(0.0).floor();
        let inner = (inner..=layers)
            .find(|&inner| f64::from(inner * (p - 1)) + last(inner) >= f64::from(layers))
            .unwrap_or(inner);
        [f64::from(inner), (f64::from(layers) - f64::from(inner * (p - 1))).max(0.0)]
    }

    /// Returns the duration of the optimizer step, which reads gradient, master weight and moments,
    /// and writes them and the weight.
    fn optimizer(&self) -> f64 {
        let (dense, experts) =
            weights_per_gpu(self.model, &self.mapping, &self.calibration.software);
        let replicas = f64::from(self.mapping.data) * f64::from(self.mapping.context);
        let shared = match self.calibration.software.sharding {
            ZeroStage::Replicated => 1.0,
            _ => replicas,
        };
        let expert_shared = match self.calibration.software.sharding {
            ZeroStage::Replicated => 1.0,
            _ => self.expert_layout().replicas as f64,
        };
        self.memory_seconds(30.0 * (dense / shared + experts / expert_shared))
            + self.calibration.step_seconds
    }

    fn memory_seconds(&self, bytes: f64) -> f64 {
        bytes / (self.compute.memory_rate * self.calibration.memory_efficiency)
    }

    /// Returns the tokens of a micro-batch on one rank, before TP.
    fn tokens(&self) -> f64 {
        f64::from(self.mapping.micro_batch) * self.batch.tokens as f64
            / f64::from(self.mapping.context)
    }

    /// Returns the distribution of a stage's experts over its ranks.
    #[must_use]
    pub fn expert_layout(&self) -> ExpertLayout {
        ExpertLayout::of(&self.mapping, &self.calibration.software)
    }

    fn tensor(&self) -> f64 {
        f64::from(self.mapping.tensor)
    }
}
