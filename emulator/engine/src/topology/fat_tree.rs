// SPDX-License-Identifier: Apache-2.0
//! Fat-trees with three tiers (Al-Fares, Loukissas, Vahdat: "A scalable, commodity data center
//! network architecture", SIGCOMM 2008, section 3.1) and with two tiers (leaf and spine).

use crate::engine::{LinkSpec, NetworkBuilder, VertexId, VertexRole};

/// A three-tier fat-tree of switches with `radix` ports: `radix` pods of `radix`/2 edge and
/// `radix`/2 aggregation switches each, under (`radix`/2)² core switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// Ports of an aggregation or core switch. Must be even.
    pub radix: u32,
    /// A value of `radix`/2 means full bisection bandwidth, and `radix` means 2:1 oversubscription.
    pub hosts_per_edge: u32,
    pub host_link: LinkSpec,
    pub switch_link: LinkSpec,
}

impl FatTree {
    /// A fat-tree with full bisection bandwidth, `radix`³/4 hosts and identical cables.
    pub const fn full(radix: u32, link: LinkSpec) -> Self {
        Self { radix, hosts_per_edge: radix / 2, host_link: link, switch_link: link }
    }

    /// Adds the network pod by pod, which keeps neighbours close in memory. Returns the hosts by pod and edge switch.
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let half = self.radix / 2;
        let pods: Vec<Pod> = (0..self.radix).map(|_| self.pod(builder)).collect();
        for group in 0..half {
            for _ in 0..half {
                let core = builder.add(VertexRole::Switch);
                for pod in &pods {
                    let aggregation = pod.aggregations[group as usize];
                    builder.connect(aggregation, core, self.switch_link);
                }
            }
        }
        pods.into_iter().flat_map(|pod| pod.hosts).collect()
    }

    fn pod(&self, builder: &mut NetworkBuilder) -> Pod {
        let half = self.radix / 2;
        let mut pod = Pod { hosts: Vec::new(), aggregations: Vec::new() };
        let mut edges = Vec::new();
        for _ in 0..half {
            let hosts: Vec<_> =
                (0..self.hosts_per_edge).map(|_| builder.add(VertexRole::Host)).collect();
            let edge = builder.add(VertexRole::Switch);
            for &host in &hosts {
                builder.connect(host, edge, self.host_link);
            }
            pod.hosts.extend(hosts);
            edges.push(edge);
        }
        for _ in 0..half {
            let aggregation = builder.add(VertexRole::Switch);
            for &edge in &edges {
                builder.connect(edge, aggregation, self.switch_link);
            }
            pod.aggregations.push(aggregation);
        }
        pod
    }
}

struct Pod {
    hosts: Vec<VertexId>,
    aggregations: Vec<VertexId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    pub leaves: u32,
    pub spines: u32,
    /// At equal rates, more hosts than `spines` mean oversubscription.
    pub hosts_per_leaf: u32,
    pub host_link: LinkSpec,
    pub spine_link: LinkSpec,
}

impl LeafSpine {
    pub fn build_into(&self, builder: &mut NetworkBuilder) -> Vec<VertexId> {
        let hosts: Vec<_> =
            (0..self.leaves * self.hosts_per_leaf).map(|_| builder.add(VertexRole::Host)).collect();
        self.build_over(builder, &hosts);
        hosts
    }

    /// Connects existing hosts in order, `hosts_per_leaf` to each leaf. Panics if there are too many hosts.
    pub fn build_over(&self, builder: &mut NetworkBuilder, hosts: &[VertexId]) {
        let places = self.leaves as usize * self.hosts_per_leaf as usize;
        assert!(hosts.len() <= places, "{} hosts do not fit in {places} places", hosts.len());
        let leaves: Vec<_> = (0..self.leaves).map(|_| builder.add(VertexRole::Switch)).collect();
        for (place, &host) in hosts.iter().enumerate() {
            let leaf = leaves[place / self.hosts_per_leaf as usize];
            builder.connect(host, leaf, self.host_link);
        }
        for _ in 0..self.spines {
            let spine = builder.add(VertexRole::Switch);
            for &leaf in &leaves {
                builder.connect(leaf, spine, self.spine_link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Picoseconds};

    use super::*;

    fn link() -> LinkSpec {
        LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
    }

    #[test]
    fn full_fat_tree_has_the_published_size() {
        for (radix, hosts, switches) in [(4, 16, 20), (8, 128, 80), (16, 1_024, 320)] {
            let mut builder = NetworkBuilder::new();
            assert_eq!(FatTree::full(radix, link()).build_into(&mut builder).len(), hosts);
            let network = builder.build().unwrap();
            assert_eq!(network.vertex_count(), hosts + switches);
            assert_eq!(
                network.links().len(),
                6 * hosts,
                "three cables per host, in both directions"
            );
        }
    }

    #[test]
    fn leaves_and_spines_are_fully_meshed() {
        let shape = LeafSpine {
            leaves: 4,
            spines: 3,
            hosts_per_leaf: 6,
            host_link: link(),
            spine_link: link(),
        };
        let mut builder = NetworkBuilder::new();
        assert_eq!(shape.build_into(&mut builder).len(), 24);
        assert_eq!(builder.build().unwrap().links().len(), 2 * (24 + 12));
    }
}
