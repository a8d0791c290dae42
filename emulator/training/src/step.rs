// SPDX-License-Identifier: Apache-2.0
//! Durations of kernels and sizes of communication in a training step.
//!
//! `lightloom-step` defines order and overlap. Compute and memory time add up (Calculon's
//! `no_overlap`), and kernels run sequentially.

mod attention_ffn;
mod exchange;
mod inference;
mod layer;
mod owned;
mod why;

use std::sync::Arc;

use super::calibration::{Calibration, Precision, ZeroStage};
use super::features::Feature;
use super::mapping::{Batch, Mapping};
use super::memory::{ExpertLayout, weights_per_gpu};
use super::model::Model;
use super::network::Network;
use super::operators::OperatorTable;
use layer::PlainLayer;
use lightloom_step::program::Exchange;
use lightloom_step::work::{Bucket, StepWork};

pub use attention_ffn::{AttentionFfn, Instances, LayerStages, Stages};
pub use inference::{Formats, Replica, Server};
pub use lightloom_step::work::StepTime;
pub use owned::OwnedJob;
pub use why::{NearestPoint, StepOperator};

#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    /// With 16 bits.
    pub peak_flops: f64,
    pub peak_flops_fp8: f64,
    pub peak_flops_fp4: f64,
    pub memory_rate: f64,
    pub memory_bytes: f64,
    /// Measured operators, which replace shares of peak.
    pub operators: Option<Arc<OperatorTable>>,
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
    pub expert_imbalance: f64,
}

/// Results shared by mappings that differ only in recomputation and virtual stages.
#[derive(Clone, Debug)]
pub(crate) struct PlainStep {
    /// Without and with experts.
    layer: [PlainLayer; 2],
    gather: Bucket,
    reduce: Bucket,
    transfer: Option<Exchange>,
    optimizer_seconds: f64,
}

pub fn step_time(job: &Job<'_>) -> StepTime {
    job.work().time()
}

impl Job<'_> {
    /// Returns the computing operators of a mean pipeline stage, slowest first.
    pub fn operators(&self) -> Vec<StepOperator> {
        why::operators(self)
    }

    pub fn work(&self) -> StepWork {
        self.work_of(&self.plain_step())
    }

    pub(crate) fn plain_step(&self) -> PlainStep {
        let layer = |is_expert: bool, count: u32| {
            if count > 0 { self.plain_layer(is_expert) } else { PlainLayer::default() }
        };
        let [gather, reduce] = self.data_buckets();
        PlainStep {
            layer: [
                layer(false, self.model.dense_layers()),
                layer(true, self.model.expert_layers()),
            ],
            gather,
            reduce,
            transfer: self.transfer(),
            optimizer_seconds: self.optimizer(),
        }
    }

    pub(crate) fn work_of(&self, plain: &PlainStep) -> StepWork {
        let (model, software) = (self.model, &self.calibration.software);
        let [dense, experts] = plain.layer.each_ref().map(|one| one.with(self.mapping.recompute));
        let is_expert = model.expert_layers() > 0;
        let doublings = (self.mapping.gpus() as f64 / 8.0).log2().max(0.0);
        let is_sharded = software.sharding == ZeroStage::Everything;
        StepWork {
            mapping: self.mapping,
            micro_batches: self.mapping.micro_batches(self.batch),
            layers: [model.dense_layers(), model.expert_layers()],
            has_balanced_ends: software.balanced_ends,
            output: self.last_stage_extra(if is_expert { &experts } else { &dense }),
            layer: [dense, experts],
            transfer: plain.transfer,
            transfer_shown: self.calibration.pipeline_exposed,
            gather: plain.gather.clone(),
            reduce: plain.reduce.clone(),
            is_sharded,
            data_shown: match (software.data_overlap, is_sharded) {
                (false, _) => 1.0,
                (true, true) => self.calibration.gather_exposed,
                (true, false) => self.calibration.data_exposed,
            },
            optimizer_seconds: plain.optimizer_seconds,
            jitter: self.calibration.jitter_per_doubling * doublings,
            is_dual_pipe: software.features.has(Feature::DualPipe),
        }
    }

    /// Reads gradient, master weight and moments, and writes them and the weight. The host launches this by layer.
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
        let is_launched = !self.calibration.software.features.has(Feature::Graphs);
        let layers = f64::from(self.model.layers.div_ceil(self.mapping.pipeline));
        let launch =
            if is_launched { layers * self.calibration.optimizer_launch_seconds } else { 0.0 };
        let bytes = 30.0 * (dense / shared + experts / expert_shared);
        match &self.compute.operators {
            Some(table) => bytes / (self.compute.memory_rate * table.optimizer_share),
            None => self.memory_seconds(bytes) + launch,
        }
    }

    fn memory_seconds(&self, bytes: f64) -> f64 {
        let measured = self.compute.operators.as_ref().map(|table| table.copy_share);
        let share = measured.unwrap_or(self.calibration.memory_efficiency);
        bytes / (self.compute.memory_rate * share)
    }

    /// Returns the tokens per micro-batch and rank, before TP.
    fn tokens(&self) -> f64 {
        f64::from(self.mapping.micro_batch) * self.batch.tokens as f64
            / f64::from(self.mapping.context)
    }

    pub fn expert_layout(&self) -> ExpertLayout {
        ExpertLayout::of(&self.mapping, &self.calibration.software)
    }

    fn tensor(&self) -> f64 {
        f64::from(self.mapping.tensor)
    }
}
