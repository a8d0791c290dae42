// SPDX-License-Identifier: Apache-2.0
//! Rail networks of GPU servers. GPUs with the same index share a switch, their rail.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RailLinks {
    /// Between a GPU and the switch of its server or domain.
    pub inside: LinkSpec,
    pub rail: LinkSpec,
}

/// Rails with spines.
// Every rail switch connects to every spine (NVIDIA: "DGX SuperPOD reference architecture", compute fabric). Within a
// server, a switch connects the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RailOptimisedFile")]
pub struct RailOptimised {
    /// Number of servers.
    #[schemars(range(min = 2, max = 4096))]
    pub servers: u32,
    /// GPUs per server, which is also the number of rails.
    #[schemars(range(min = 1, max = 1024))]
    pub gpus_per_server: u32,
    /// Number of spine switches.
    #[schemars(range(min = 1, max = 4096))]
    pub spines: u32,
}

impl RailOptimised {
    pub fn build_into(&self, builder: &mut NetworkBuilder, links: RailLinks) -> Vec<VertexId> {
        let (gpus, rails) =
            rails(builder, VertexRole::Host, self.servers, self.gpus_per_server, links);
        for _ in 0..self.spines {
            let spine = builder.add(VertexRole::Switch);
            for &rail in &rails {
                builder.connect(rail, spine, links.rail);
            }
        }
        gpus
    }
}

/// Rails without spines.
// Paths between rails lead through a GPU that forwards inside its domain (Wang et al.: "Rail-only: a low-cost
// high-performance network for training LLMs with trillion parameters", HOTI 2024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RailOnlyFile")]
pub struct RailOnly {
    /// Number of high-bandwidth domains.
    #[schemars(range(min = 2, max = 4096))]
    pub domains: u32,
    /// GPUs per domain, which is also the number of rails.
    #[schemars(range(min = 1, max = 1024))]
    pub gpus_per_domain: u32,
}

impl RailOnly {
    pub fn build_into(&self, builder: &mut NetworkBuilder, links: RailLinks) -> Vec<VertexId> {
        rails(builder, VertexRole::ForwardingHost, self.domains, self.gpus_per_domain, links).0
    }
}

fn rails(
    builder: &mut NetworkBuilder,
    role: VertexRole,
    servers: u32,
    gpus_per_server: u32,
    links: RailLinks,
) -> (Vec<VertexId>, Vec<VertexId>) {
    let mut gpus = Vec::new();
    for _ in 0..servers {
        let own: Vec<_> = (0..gpus_per_server).map(|_| builder.add(role)).collect();
        let switch = builder.add(VertexRole::Switch);
        for &gpu in &own {
            builder.connect(gpu, switch, links.inside);
        }
        gpus.extend(own);
    }
    let rails: Vec<_> = (0..gpus_per_server).map(|_| builder.add(VertexRole::Switch)).collect();
    for (place, &gpu) in gpus.iter().enumerate() {
        builder.connect(gpu, rails[place % gpus_per_server as usize], links.rail);
    }
    (gpus, rails)
}
