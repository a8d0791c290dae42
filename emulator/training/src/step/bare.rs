// SPDX-License-Identifier: Apache-2.0
//! A step with nothing hidden: what packets show, and the closed form that they are held against.

use super::{Compute, Job, StepTime, step_time};
use crate::calibration::{Calibration, Precision};
use crate::features::Features;
use crate::mapping::{Batch, Mapping};
use crate::model::Model;
use crate::network::{Network, Shape};

/// A step with nothing hidden, from which both its tasks and its closed form are made.
#[derive(Clone, Debug)]
pub struct BareStep {
    /// What is trained.
    pub model: Model,
    /// How it is cut.
    pub mapping: Mapping,
    /// The work of a step.
    pub batch: Batch,
    /// What joins the GPUs, as the graph runs it.
    pub network: Network,
    /// The constants without what packets do not show.
    pub calibration: Calibration,
    compute: Compute,
    precision: Precision,
    expert_imbalance: f64,
}

impl BareStep {
    /// The step of `job`.
    #[must_use]
    pub fn of(job: &Job<'_>) -> Self {
        let Job { mapping, batch, precision, expert_imbalance, .. } = *job;
        let (network, calibration) = (bare_network(job), bare_calibration(job));
        let (model, compute) = (job.model.clone(), *job.compute);
        Self { model, mapping, batch, network, calibration, compute, precision, expert_imbalance }
    }

    /// The step as the formulas take it.
    #[must_use]
    pub fn job(&self) -> Job<'_> {
        let Self { model, mapping, batch, network, calibration, compute, .. } = self;
        let (precision, expert_imbalance) = (self.precision, self.expert_imbalance);
        let (mapping, batch) = (*mapping, *batch);
        Job { model, mapping, batch, compute, network, calibration, precision, expert_imbalance }
    }

    /// Bytes per second that a GPU sends over the network between domains.
    #[must_use]
    pub fn card_rate(&self) -> f64 {
        self.network.scale_out_rate * self.calibration.network.scale_out
    }

    /// Its closed form. Where a stage has several pieces, the first micro-batch goes forward through all of them, and the last
    /// one back, before there is other work to hide the transfers behind.
    #[must_use]
    pub fn time(&self) -> StepTime {
        let job = self.job();
        let mut time = step_time(&job);
        let [stages, pieces] = [job.mapping.pipeline, job.mapping.virtual_stages].map(f64::from);
        let between_pieces = 2.0 * job.transfer() * stages * (pieces - 1.0);
        time.transfer_seconds += between_pieces;
        time.step_seconds += between_pieces;
        time
    }
}

/// The constants without what packets do not show: exchange that hides behind computing, stragglers, kernel launches.
fn bare_calibration(job: &Job<'_>) -> Calibration {
    let mut bare = Calibration {
        tensor_exposed: 1.0,
        tensor_exposed_across: 1.0,
        expert_exposed: 1.0,
        expert_exposed_across: 1.0,
        pipeline_exposed: 0.0,
        jitter_per_doubling: 0.0,
        launch_seconds: 0.0,
        expert_launch_seconds: [0.0; 3],
        ..*job.calibration
    };
    bare.network.library = None;
    bare.software.data_overlap = false;
    // The graph exchanges gradients at once, cuts experts by TP and sends them what comes back.
    bare.software.layer_buckets = false;
    bare.software.folded_experts = false;
    bare.software.dispatch_bytes = 2.0;
    bare.software.features = Features::default();
    bare
}

/// The network as the graph runs it: rings and tori carry TP alone, and no domain spans stages.
fn bare_network(job: &Job<'_>) -> Network {
    let mut network = job.network.clone();
    let Mapping { tensor, context, data, .. } = job.mapping;
    network.domain_gpus = network.domain_gpus.min(tensor * context * data);
    if network.shape == Shape::Torus {
        network.shape = Shape::Ring;
    }
    if network.shape == Shape::Ring && job.mapping.tensor == 1 {
        network.domain_gpus = 1;
    }
    network
}
