// SPDX-License-Identifier: Apache-2.0
//! GPU servers whose GPUs of one number share a switch, their rail: with spines above the rails, or
//! with nothing above them.

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// Rail-optimised: GPU `i` of every server is on rail switch `i`, and every rail switch has a cable to
/// every spine (NVIDIA: "DGX SuperPOD reference architecture", compute fabric). Inside a server GPUs are
/// joined by one switch. A path between rails leads over a spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailOptimised {
    /// Servers.
    pub servers: u32,
    /// GPUs in each, which is the number of rails.
    pub gpus_per_server: u32,
    /// Spine switches.
    pub spines: u32,
    /// The cable from a GPU to the switch inside its server.
    pub inside: LinkSpec,
    /// All other cables.
    pub rail: LinkSpec,
}

impl RailOptimised {
    /// Adds the network to `builder`. Returns the GPUs, server by server.
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let shape = (self.servers, self.gpus_per_server);
        let (gpus, rails) = rails(builder, VertexRole::Host, shape, self.inside, self.rail);
        for _ in 0..self.spines {
            let spine = builder.add(VertexRole::Switch);
            for &rail in &rails {
                builder.connect(rail, spine, self.rail);
            }
        }
        gpus
    }
}

/// Rail-only: high-bandwidth domains whose GPUs of one number share a rail switch, and nothing above
/// (Wang et al.: "Rail-only: a low-cost high-performance network for training LLMs with trillion
/// parameters", HOTI 2024). A path between rails leads through a GPU that passes it on inside its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailOnly {
    /// High-bandwidth domains.
    pub domains: u32,
    /// GPUs in each, which is the number of rails.
    pub gpus_per_domain: u32,
    /// The cable from a GPU to the switch of its domain.
    pub inside: LinkSpec,
    /// The cable from a GPU to its rail.
    pub rail: LinkSpec,
}

impl RailOnly {
    /// Adds the network to `builder`. Returns the GPUs, domain by domain.
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let shape = (self.domains, self.gpus_per_domain);
        rails(builder, VertexRole::ForwardingHost, shape, self.inside, self.rail).0
    }
}

/// GPUs with a switch for each server and one for each rail. Returns the GPUs and the rail switches.
fn rails(
    builder: &mut NetworkBuilder,
    role: VertexRole,
    (servers, gpus_per_server): (u32, u32),
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
