// SPDX-License-Identifier: Apache-2.0

use super::{Compute, Job};
use crate::calibration::{Calibration, Precision};
use crate::mapping::{Batch, Mapping};
use crate::model::Model;
use crate::network::Network;

#[derive(Clone, Debug)]
pub struct OwnedJob {
    pub model: Model,
    pub mapping: Mapping,
    pub batch: Batch,
    pub network: Network,
    pub calibration: Calibration,
    compute: Compute,
    precision: Precision,
    expert_imbalance: f64,
}

impl OwnedJob {
    pub fn of(job: &Job<'_>) -> Self {
        let Job { mapping, batch, precision, expert_imbalance, .. } = *job;
        let (network, calibration) = (job.network.clone(), *job.calibration);
        let (model, compute) = (job.model.clone(), job.compute.clone());
        Self { model, mapping, batch, network, calibration, compute, precision, expert_imbalance }
    }

    pub fn job(&self) -> Job<'_> {
        let Self { model, mapping, batch, network, calibration, compute, .. } = self;
        let (precision, expert_imbalance) = (self.precision, self.expert_imbalance);
        let (mapping, batch) = (*mapping, *batch);
        Job { model, mapping, batch, compute, network, calibration, precision, expert_imbalance }
    }

    pub fn card_rate(&self) -> f64 {
        self.network.card_rate(&self.calibration.network)
    }
}
