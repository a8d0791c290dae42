// SPDX-License-Identifier: Apache-2.0

use std::collections::VecDeque;

use crate::engine::{Network, VertexId};

/// Returns the diameter in hops over forwarding vertices. `None` if two hosts are not connected.
pub fn diameter(network: &Network, hosts: &[VertexId]) -> Option<u32> {
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
