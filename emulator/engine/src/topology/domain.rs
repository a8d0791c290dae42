// SPDX-License-Identifier: Apache-2.0
//! GPUs under one tier of switches (NVL72: 72 GPUs, 18 switch chips).

use schemars::JsonSchema;
use serde::Deserialize;

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// GPUs below switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DomainFile")]
pub struct SwitchedDomain {
    /// Number of GPUs.
    #[schemars(range(min = 2, max = 4096))]
    pub gpus: u32,
    /// Number of switches; every GPU has a cable to each switch.
    #[schemars(range(min = 1, max = 256))]
    pub switches: u32,
}

impl SwitchedDomain {
    pub fn build_into(&self, builder: &mut NetworkBuilder, link: LinkSpec) -> Vec<VertexId> {
        let gpus: Vec<_> = (0..self.gpus).map(|_| builder.add(VertexRole::Host)).collect();
        for _ in 0..self.switches {
            let switch = builder.add(VertexRole::Switch);
            for &gpu in &gpus {
                builder.connect(gpu, switch, link);
            }
        }
        gpus
    }
}
