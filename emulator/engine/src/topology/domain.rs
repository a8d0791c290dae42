// SPDX-License-Identifier: Apache-2.0
//! GPUs under one tier of switches.

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// Each GPU has a cable to each switch (NVL72: 72 GPUs, 18 switch chips).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchedDomain {
    pub gpus: u32,
    pub switches: u32,
    pub link: LinkSpec,
}

impl SwitchedDomain {
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let gpus: Vec<_> = (0..self.gpus).map(|_| builder.add(VertexRole::Host)).collect();
        for _ in 0..self.switches {
            let switch = builder.add(VertexRole::Switch);
            for &gpu in &gpus {
                builder.connect(gpu, switch, self.link);
            }
        }
        gpus
    }
}
