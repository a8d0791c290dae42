// SPDX-License-Identifier: Apache-2.0
//! Dragonflies (Kim, Dally, Scott, Abts, ISCA 2008, section 3.1): one cable between any two groups of routers.

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// A dragonfly of maximum size: `a·h + 1` groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dragonfly {
    pub hosts_per_router: u32,
    pub routers_per_group: u32,
    pub global_per_router: u32,
    pub local: LinkSpec,
    pub global: LinkSpec,
}

impl Dragonfly {
    #[must_use]
    pub const fn groups(&self) -> u32 {
        self.routers_per_group * self.global_per_router + 1
    }

    /// Valid only if [`build_into`](Self::build_into) started with an empty builder.
    #[must_use]
    pub const fn group_of(&self, vertex: VertexId) -> u32 {
        vertex.0 / (self.routers_per_group * (self.hosts_per_router + 1))
    }

    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let mut hosts = Vec::new();
        let groups: Vec<Vec<VertexId>> =
            (0..self.groups()).map(|_| self.group(builder, &mut hosts)).collect();
        for (i, here) in groups.iter().enumerate() {
            for (j, there) in groups.iter().enumerate().skip(i + 1) {
                // Cable k of group i leads to group i + 1 + k, modulo the number of groups.
                let [from, back] = [j - i - 1, groups.len() - (j - i) - 1]
                    .map(|cable| cable / self.global_per_router as usize);
                builder.connect(here[from], there[back], self.global);
            }
        }
        hosts
    }

    fn group(&self, builder: &mut NetworkBuilder, hosts: &mut Vec<VertexId>) -> Vec<VertexId> {
        let mut routers = Vec::new();
        for _ in 0..self.routers_per_group {
            let own: Vec<_> =
                (0..self.hosts_per_router).map(|_| builder.add(VertexRole::Host)).collect();
            let router = builder.add(VertexRole::Switch);
            for &host in &own {
                builder.connect(host, router, self.local);
            }
            hosts.extend(own);
            routers.push(router);
        }
        for (place, &router) in routers.iter().enumerate() {
            for &other in &routers[place + 1..] {
                builder.connect(router, other, self.local);
            }
        }
        routers
    }
}
