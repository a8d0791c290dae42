// SPDX-License-Identifier: Apache-2.0
//! The analytic step: how long one training step takes, and where the time goes.
//!
//! Here are the durations of kernels and the sizes of exchanges; what follows what and what covers what is `lightloom-step`.
//! Compute and memory time add up (Calculon's `no_overlap`): kernels run one after the other.

mod attention_ffn;
mod exchange;
mod inference;
mod layer;
mod owned;

use serde::Serialize;

use super::calibration::{Calibration, Precision, ZeroStage};
use super::features::Feature;
use super::mapping::{Batch, Mapping};
use super::memory::{ExpertLayout, weights_per_gpu};
use super::model::Model;
use super::network::Network;
use lightloom_step::work::{LayerWork, StepWork};

pub use attention_ffn::{AttentionFfn, Instances, LayerStages, Stages};
pub use inference::{Formats, Replica, Server};
pub use lightloom_step::work::StepTime;
pub use owned::OwnedJob;

/// What a GPU can do, as far as the step needs it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compute {
    /// Peak operations per second in sixteen bits.
    pub peak_flops: f64,
    /// Peak operations per second in eight bits.
    pub peak_flops_fp8: f64,
    /// Peak operations per second in four bits.
    pub peak_flops_fp4: f64,
    /// Bytes per second of its memory.
    pub memory_rate: f64,
    /// Bytes of its memory.
    pub memory_bytes: f64,
}

/// Everything that a step depends on.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// What is trained.
    pub model: &'a Model,
    /// How it is cut.
    pub mapping: Mapping,
    /// The work of a step.
    pub batch: Batch,
    /// The GPU.
    pub compute: &'a Compute,
    /// What joins the GPUs.
    pub network: &'a Network,
    /// Constants of accelerator and software.
    pub calibration: &'a Calibration,
    /// Number format.
    pub precision: Precision,
    /// How much more than its share the fullest expert rank gets: 0.2 is 20 %.
    pub expert_imbalance: f64,
}

/// How long one step of `job` takes on idle links.
#[must_use]
pub fn step_time(job: &Job<'_>) -> StepTime {
    job.work().time()
}

impl Job<'_> {
    /// Durations and sizes of the step.
    #[must_use]
    pub fn work(&self) -> StepWork {
        let (model, software) = (self.model, &self.calibration.software);
        let is_expert = model.expert_layers() > 0;
        let experts = if is_expert { self.layer(true) } else { LayerWork::default() };
        let dense = if model.dense_layers() > 0 { self.layer(false) } else { LayerWork::default() };
        let doublings = (self.mapping.gpus() as f64 / 8.0).log2().max(0.0);
        let [gather, reduce] = self.data_buckets();
        let is_sharded = software.sharding == ZeroStage::Everything;
        StepWork {
            mapping: self.mapping,
            micro_batches: self.mapping.micro_batches(self.batch),
            layers: [model.dense_layers(), model.expert_layers()],
            has_balanced_ends: software.balanced_ends,
            output: self.last_stage_extra(if is_expert { &experts } else { &dense }),
            layer: [dense, experts],
            transfer: self.transfer(),
            transfer_shown: self.calibration.pipeline_exposed,
            gather,
            reduce,
            is_sharded,
            data_shown: match (software.data_overlap, is_sharded) {
                (false, _) => 1.0,
                (true, true) => self.calibration.gather_exposed,
                (true, false) => self.calibration.data_exposed,
            },
            optimizer_seconds: self.optimizer(),
            jitter: self.calibration.jitter_per_doubling * doublings,
            is_dual_pipe: software.features.has(Feature::DualPipe),
        }
    }

    /// Seconds of the optimizer: it reads gradient, master weight and moments, and writes them and the weight.
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

    /// Tokens that one rank of a micro-batch works on (before TP).
    fn tokens(&self) -> f64 {
        f64::from(self.mapping.micro_batch) * self.batch.tokens as f64
            / f64::from(self.mapping.context)
    }

    /// How experts lie on the ranks of a stage.
    #[must_use]
    pub fn expert_layout(&self) -> ExpertLayout {
        ExpertLayout::of(&self.mapping, &self.calibration.software)
    }

    fn tensor(&self) -> f64 {
        f64::from(self.mapping.tensor)
    }
}
