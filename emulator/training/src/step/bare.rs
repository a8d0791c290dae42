// SPDX-License-Identifier: Apache-2.0
//! A step with nothing hidden: what packets show, and the closed form that they are held against.

use super::Job;
use crate::calibration::Calibration;
use crate::network::{Network, Shape};

impl Job<'_> {
    /// The constants without what packets do not show: exchange that hides behind computing, stragglers, kernel launches.
    #[must_use]
    pub fn bare_calibration(&self) -> Calibration {
        let mut bare = Calibration {
            tensor_exposed: 1.0,
            tensor_exposed_across: 1.0,
            expert_exposed: 1.0,
            expert_exposed_across: 1.0,
            pipeline_exposed: 0.0,
            jitter_per_doubling: 0.0,
            launch_seconds: 0.0,
            expert_launch_seconds: 0.0,
            ..*self.calibration
        };
        bare.software.data_overlap = false;
        // The graph exchanges gradients at once, cuts experts by TP and sends them what comes back.
        bare.software.layer_buckets = false;
        bare.software.folded_experts = false;
        bare.software.dispatch_bytes = 2.0;
        bare
    }

    /// The network as the graph runs it: rings and tori carry TP alone.
    #[must_use]
    pub fn bare_network(&self) -> Network {
        let mut network = self.network.clone();
        if network.shape == Shape::Torus {
            network.shape = Shape::Ring;
        }
        if network.shape == Shape::Ring && self.mapping.tensor == 1 {
            network.domain_gpus = 1;
        }
        network
    }
}
