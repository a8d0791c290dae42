// SPDX-License-Identifier: Apache-2.0
//! A step with all that it depends on: what runs of it are made from.

use super::{Compute, Job};
use crate::calibration::{Calibration, Precision};
use crate::mapping::{Batch, Mapping};
use crate::model::Model;
use crate::network::Network;

/// A step, from which both its tasks and its closed form are made.
#[derive(Clone, Debug)]
pub struct OwnedJob {
    /// What is trained.
    pub model: Model,
    /// How it is cut.
    pub mapping: Mapping,
    /// The work of a step.
    pub batch: Batch,
    /// What joins the GPUs.
    pub network: Network,
    /// Constants of accelerator and software.
    pub calibration: Calibration,
    compute: Compute,
    precision: Precision,
    expert_imbalance: f64,
}

impl OwnedJob {
    /// The step of `job`.
    #[must_use]
    pub fn of(job: &Job<'_>) -> Self {
        let Job { mapping, batch, precision, expert_imbalance, .. } = *job;
        let (network, calibration) = (job.network.clone(), *job.calibration);
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
}
