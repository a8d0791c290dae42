// SPDX-License-Identifier: Apache-2.0
//! Small networks of one kind of part: a domain of GPUs under switches, and hosts with a fibre for
//! every step of a binary exchange.

use crate::engine::{LinkId, LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// GPUs that each have one cable to each of some switches, as in an NVLink domain (NVL72: 72 GPUs and 18
/// switch chips).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchedDomain {
    /// GPUs.
    pub gpus: u32,
    /// Switches.
    pub switches: u32,
    /// Every cable.
    pub link: LinkSpec,
}

impl SwitchedDomain {
    /// Adds the network to `builder`. Returns the GPUs.
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

/// `2^steps` hosts; in step `k` each is joined to the one whose number differs in bit `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeFibres {
    /// Steps: fibres on each host.
    pub steps: u32,
    /// Every fibre.
    pub link: LinkSpec,
}

impl ExchangeFibres {
    /// Adds the network to `builder`. Returns the hosts and, by step, the fibres: that of a pair stands at
    /// the place of its lower host among all lower hosts of the step.
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> (Vec<VertexId>, Vec<Vec<LinkId>>) {
        let hosts: Vec<_> =
            (0..1usize << self.steps).map(|_| builder.add(VertexRole::Host)).collect();
        let step = |step: u32| {
            let bit = 1 << step;
            let lower = (0..hosts.len()).filter(|host| host & bit == 0);
            lower.map(|host| builder.connect(hosts[host], hosts[host | bit], self.link)).collect()
        };
        let fibres = (0..self.steps).map(step).collect();
        (hosts, fibres)
    }
}
