// SPDX-License-Identifier: Apache-2.0
//! Single-tier networks: GPUs under switches, and hosts with one fibre per step of a binary exchange.

use crate::engine::{LinkId, LinkSpec, NetworkBuilder, VertexId, VertexRole};

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

/// A hypercube of `2^steps` hosts. In step `k`, hosts whose numbers differ in bit `k` exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeFibres {
    pub steps: u32,
    pub link: LinkSpec,
}

impl ExchangeFibres {
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> (Vec<VertexId>, Vec<Vec<LinkId>>) {
        let hosts: Vec<_> =
            (0..1usize << self.steps).map(|_| builder.add(VertexRole::Host)).collect();
        let fibres = (0..self.steps).map(|step| {
            let bit = 1 << step;
            let lower = (0..hosts.len()).filter(|host| host & bit == 0);
            lower.map(|host| builder.connect(hosts[host], hosts[host | bit], self.link)).collect()
        });
        let fibres = fibres.collect();
        (hosts, fibres)
    }
}
