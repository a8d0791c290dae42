// SPDX-License-Identifier: Apache-2.0
//! Rail networks of GPU servers. GPUs with the same index share a switch, their rail.

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// Every rail switch connects to every spine (NVIDIA: "DGX SuperPOD reference architecture",
/// compute fabric). Within a server, a switch connects the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailOptimised {
    pub servers: u32,
    pub gpus_per_server: u32,
    pub spines: u32,
    pub inside: LinkSpec,
    pub rail: LinkSpec,
}

impl RailOptimised {
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let Self { servers, gpus_per_server, inside, rail, .. } = *self;
        let (gpus, rails) =
            rails(builder, VertexRole::Host, servers, gpus_per_server, inside, rail);
        for _ in 0..self.spines {
            let spine = builder.add(VertexRole::Switch);
            for &rail in &rails {
                builder.connect(rail, spine, self.rail);
            }
        }
        gpus
    }
}

/// A rail network without spines. Paths between rails lead through a GPU that forwards inside its domain (Wang et al.:
/// "Rail-only: a low-cost high-performance network for training LLMs with trillion parameters", HOTI 2024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailOnly {
    pub domains: u32,
    pub gpus_per_domain: u32,
    pub inside: LinkSpec,
    pub rail: LinkSpec,
}

impl RailOnly {
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let Self { domains, gpus_per_domain, inside, rail } = *self;
        rails(builder, VertexRole::ForwardingHost, domains, gpus_per_domain, inside, rail).0
    }
}

fn rails(
    builder: &mut NetworkBuilder,
    role: VertexRole,
    servers: u32,
    gpus_per_server: u32,
    inside: LinkSpec,
    rail: LinkSpec,
) -> (Vec<VertexId>, Vec<VertexId>) {
    let mut gpus = Vec::new();
    for _ in 0..servers {
        let own: Vec<_> = (0..gpus_per_server).map(|_| builder.add(role)).collect();
        let switch = builder.add(VertexRole::Switch);
        for &gpu in &own {
            builder.connect(gpu, switch, inside);
        }
        gpus.extend(own);
    }
    let rails: Vec<_> = (0..gpus_per_server).map(|_| builder.add(VertexRole::Switch)).collect();
    for (place, &gpu) in gpus.iter().enumerate() {
        builder.connect(gpu, rails[place % gpus_per_server as usize], rail);
    }
    (gpus, rails)
}
