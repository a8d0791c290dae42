// SPDX-License-Identifier: Apache-2.0
//! Every topology has the cables, the diameter and the bisection of its formula. The bisection is a
//! maximum flow between two halves of the hosts, where every cable carries one in each direction.

use std::collections::VecDeque;

use lightloom_engine::topology::{
    CubeTorus, FatTree, LeafSpine, RailLinks, RailOnly, RailOptimised, SwitchedDomain, Torus,
};
use lightloom_engine::{LinkId, LinkSpec, Network, NetworkBuilder, VertexId};
use lightloom_units::{BitsPerSecond, Picoseconds};

fn link() -> LinkSpec {
    LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
}

fn built<T>(lay: impl FnOnce(&mut NetworkBuilder) -> T) -> (Network, T) {
    let mut builder = NetworkBuilder::new();
    let laid = lay(&mut builder);
    (builder.build().unwrap(), laid)
}

/// In hops over forwarding vertices. `None` if two hosts are not connected.
fn diameter(network: &Network, hosts: &[VertexId]) -> Option<u32> {
    let mut farthest = 0;
    for &host in hosts {
        let distances = distances(network, host);
        for &other in hosts {
            farthest = farthest.max(distances[other.index()]?);
        }
    }
    Some(farthest)
}

fn distances(network: &Network, from: VertexId) -> Vec<Option<u32>> {
    let mut distances = vec![None; network.vertex_count()];
    distances[from.index()] = Some(0);
    let mut frontier = VecDeque::from([(from, 0)]);
    while let Some((vertex, far)) = frontier.pop_front() {
        if vertex != from && !network.role(vertex).forwards() {
            continue;
        }
        for link in network.outgoing(vertex) {
            let to = network.link(*link).to;
            if distances[to.index()].is_none() {
                distances[to.index()] = Some(far + 1);
                frontier.push_back((to, far + 1));
            }
        }
    }
    distances
}

fn max_flow(network: &Network, from: &[VertexId], to: &[VertexId]) -> usize {
    let mut free = vec![1i32; network.links().len()];
    let mut flow = 0;
    loop {
        let mut came: Vec<Option<LinkId>> = vec![None; network.vertex_count()];
        let mut seen = vec![false; network.vertex_count()];
        let mut stack: Vec<VertexId> = from.to_vec();
        stack.iter().for_each(|vertex| seen[vertex.index()] = true);
        let reached = loop {
            let Some(vertex) = stack.pop() else { break None };
            if to.contains(&vertex) {
                break Some(vertex);
            }
            for &link in network.outgoing(vertex) {
                let next = network.link(link).to;
                if free[link.index()] > 0 && !seen[next.index()] {
                    seen[next.index()] = true;
                    came[next.index()] = Some(link);
                    stack.push(next);
                }
            }
        };
        let Some(mut at) = reached else { return flow };
        while let Some(link) = came[at.index()] {
            free[link.index()] -= 1;
            free[link.reverse().index()] += 1;
            at = network.link(link).from;
        }
        flow += 1;
    }
}

fn facts(network: &Network, hosts: &[VertexId]) -> (usize, u32, usize) {
    let (one, other) = hosts.split_at(hosts.len() / 2);
    let cables = network.links().len() / 2;
    (cables, diameter(network, hosts).unwrap(), max_flow(network, one, other))
}

#[test]
fn builds_three_tier_fat_trees() {
    for (radix, times) in [(4, 1), (4, 3), (8, 1), (8, 2)] {
        let tree = FatTree {
            radix,
            hosts_per_edge: radix / 2 * times,
            host_link: link(),
            switch_link: link(),
        };
        let (network, hosts) = built(|builder| tree.build_into(builder));
        let k = radix as usize;
        let full = k * k * k / 4;
        assert_eq!(hosts.len(), full * times as usize);
        // Two tiers of full/1 cables above the hosts'; half of the top tier crosses the middle.
        assert_eq!(facts(&network, &hosts), (hosts.len() + 2 * full, 6, full / 2));
    }
}

#[test]
fn builds_oversubscribed_leaf_spines() {
    for (leaves, spines, hosts_per_leaf) in [(4, 4, 4), (4, 2, 6), (6, 3, 3)] {
        let shape =
            LeafSpine { leaves, spines, hosts_per_leaf, host_link: link(), spine_link: link() };
        let (network, hosts) = built(|builder| shape.build_into(builder));
        let cables = (leaves * hosts_per_leaf + leaves * spines) as usize;
        let crossing = (leaves / 2 * spines.min(hosts_per_leaf)) as usize;
        assert_eq!(facts(&network, &hosts), (cables, 4, crossing));
    }
}

#[test]
fn builds_rails_with_and_without_spines() {
    let (servers, gpus_per_server, spines) = (6, 4, 3);
    let optimised = RailOptimised { servers, gpus_per_server, spines };
    let links = RailLinks { inside: link(), rail: link() };
    let (network, hosts) = built(|builder| optimised.build_into(builder, links));
    let gpus = (servers * gpus_per_server) as usize;
    assert_eq!(hosts.len(), gpus);
    let cables = 2 * gpus + (gpus_per_server * spines) as usize;
    // Halves of whole servers: every GPU crosses on its rail.
    assert_eq!(facts(&network, &hosts), (cables, 4, gpus / 2));

    let only = RailOnly { domains: servers, gpus_per_domain: gpus_per_server };
    let (network, hosts) = built(|builder| only.build_into(builder, links));
    assert_eq!(facts(&network, &hosts), (2 * gpus, 4, gpus / 2));
}

#[test]
fn builds_tori_and_tpu_cubes() {
    for sides in [vec![4, 4, 4], vec![3, 5], vec![8], vec![4, 2, 6], vec![2, 2, 2]] {
        let shape = Torus { sides: sides.clone() };
        let (network, grid) = built(|builder| shape.build_into(builder, link()));
        let hosts: u32 = sides.iter().product();
        let along = |side: &u32| if *side > 2 { hosts } else { hosts / 2 };
        let cables: u32 = sides.iter().map(along).sum();
        assert_eq!((network.links().len() as u32, grid.hosts.len() as u32), (2 * cables, hosts));
        assert_eq!(diameter(&network, &grid.hosts), Some(sides.iter().map(|side| side / 2).sum()));
        let last = *sides.last().unwrap();
        if last % 2 == 0 {
            // Halves of the last dimension: every ring along it is cut twice, or once if it is a pair.
            let (one, other) = grid.hosts.split_at(grid.hosts.len() / 2);
            let cut = hosts / last * if last > 2 { 2 } else { 1 };
            assert_eq!(max_flow(&network, one, other) as u32, cut);
        }
        for (dimension, side) in sides.iter().enumerate() {
            let rings = grid.rings(dimension);
            assert_eq!(rings.len() as u32, hosts / side);
            let mut all: Vec<usize> = rings.into_iter().flatten().collect();
            all.sort_unstable();
            assert_eq!(all, (0..grid.hosts.len()).collect::<Vec<_>>(), "every host once");
        }
    }
    let shape = CubeTorus { cubes: [2, 1, 3] };
    let (network, (grid, switches)) = built(|builder| shape.build_into(builder, link()));
    assert_eq!(grid.hosts.len(), 64 * 6);
    assert_eq!(network.links().len(), 2 * 3 * 64 * 6, "three cables a chip");
    assert_eq!(switches.len(), 48, "as published");
    assert!(switches.iter().all(|cables| cables.len() == 6), "one cable for each cube");
    let mut all: Vec<LinkId> = switches.into_iter().flatten().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 48 * 6, "no cable through two switches");
}

#[test]
fn builds_switched_domains() {
    let shape = SwitchedDomain { gpus: 72, switches: 18 };
    let (network, gpus) = built(|builder| shape.build_into(builder, link()));
    assert_eq!(facts(&network, &gpus), (72 * 18, 2, 36 * 18));
}
