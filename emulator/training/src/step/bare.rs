// SPDX-License-Identifier: Apache-2.0
//! A step without hidden communication, as the packet emulation runs it, and its closed form for
//! comparison.

use super::{Compute, Job, StepTime, step_time};
use crate::calibration::{Calibration, Precision};
use crate::features::Features;
use crate::mapping::{Batch, Mapping};
use crate::model::Model;
use crate::network::{Network, Shape};

/// A step without hidden communication. Both its tasks and its closed form are derived from it.
#[derive(Clone, Debug)]
pub struct BareStep {
    pub model: Model,
    pub mapping: Mapping,
    pub batch: Batch,
    /// The network as the task graph uses it.
    pub network: Network,
    /// The constants without effects that packets do not reproduce.
    pub calibration: Calibration,
    compute: Compute,
    precision: Precision,
    expert_imbalance: f64,
}

impl BareStep {
    #[must_use]
    pub fn of(job: &Job<'_>) -> Self {
        let Job { mapping, batch, precision, expert_imbalance, .. } = *job;
        let (network, calibration) = (bare_network(job), bare_calibration(job));
        let (model, compute) = (job.model.clone(), *job.compute);
        Self { model, mapping, batch, network, calibration, compute, precision, expert_imbalance }
    }

    /// Returns the step as input of the closed forms.
    #[must_use]
    pub fn job(&self) -> Job<'_> {
        let Self { model, mapping, batch, network, calibration, compute, .. } = self;
        let (precision, expert_imbalance) = (self.precision, self.expert_imbalance);
        let (mapping, batch) = (*mapping, *batch);
        Job { model, mapping, batch, compute, network, calibration, precision, expert_imbalance }
    }

    #[must_use]
    pub fn card_rate(&self) -> f64 {
        self.network.scale_out_rate * self.calibration.network.scale_out
    }

    /// Returns the closed form. With several chunks per stage, the first micro-batch passes forward
    /// through all chunks, and the last one backward, while there is no other work to overlap their
    /// transfers with.
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

/// Returns the constants without effects that packets do not reproduce: overlap with computing,
/// stragglers, kernel launches.
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
    // The graph exchanges all gradients together, shards experts by TP, and dispatches with 16
    // bits.
    bare.software.layer_buckets = false;
    bare.software.folded_experts = false;
    bare.software.dispatch_bytes = 2.0;
    bare.software.features = Features::default();
    bare
}

/// Returns the network as the graph uses it: rings and tori carry only TP, and no domain spans
/// several stages.
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
