// SPDX-License-Identifier: Apache-2.0
//! Minimum-cost flow on small graphs with small integer costs.
//!
//! Each round of the primal-dual method computes shortest distances by label correction, then
//! augments along arcs on shortest paths. Few distinct costs mean few rounds. The method is
//! deterministic because it tries arcs in insertion order.

use std::collections::VecDeque;

/// Arcs have even indices; the reverse of an arc has the next odd index.
#[derive(Clone, Debug)]
struct Arc {
    to: usize,
    capacity: u32,
    cost: i64,
}

/// A directed network with capacities and costs. Cycles of negative cost are not allowed.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    arcs: Vec<Arc>,
    arcs_of: Vec<Vec<usize>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ArcId(usize);

const FAR: i64 = i64::MAX;

impl Network {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { arcs: Vec::new(), arcs_of: vec![Vec::new(); nodes] }
    }

    pub(crate) fn add(&mut self, from: usize, to: usize, capacity: u32, cost: i64) -> ArcId {
        let id = self.arcs.len();
        self.arcs.push(Arc { to, capacity, cost });
        self.arcs.push(Arc { to: from, capacity: 0, cost: -cost });
        self.arcs_of[from].push(id);
        self.arcs_of[to].push(id + 1);
        ArcId(id)
    }

    pub(crate) fn flow(&self, arc: ArcId) -> u32 {
        self.arcs[arc.0 + 1].capacity
    }

    pub(crate) fn send_while_free(&mut self, source: usize, sink: usize) {
        loop {
            let distance = self.distances(source);
            if distance[sink] > 0 {
                return;
            }
            let mut next_arc = vec![0; self.arcs_of.len()];
            let mut on_path = vec![false; self.arcs_of.len()];
            while self.augment(source, sink, u32::MAX, &distance, &mut next_arc, &mut on_path) > 0 {
            }
        }
    }

    fn distances(&self, source: usize) -> Vec<i64> {
        let mut distance = vec![FAR; self.arcs_of.len()];
        let mut queued = vec![false; self.arcs_of.len()];
        let mut queue = VecDeque::from([source]);
        distance[source] = 0;
        while let Some(node) = queue.pop_front() {
            queued[node] = false;
            for &id in &self.arcs_of[node] {
                let Arc { to, capacity, cost } = self.arcs[id];
                if capacity > 0 && distance[node] + cost < distance[to] {
                    distance[to] = distance[node] + cost;
                    if !queued[to] {
                        queued[to] = true;
                        queue.push_back(to);
                    }
                }
            }
        }
        distance
    }

    /// `on_path` prevents zero-cost cycles.
    fn augment(
        &mut self,
        node: usize,
        sink: usize,
        limit: u32,
        distance: &[i64],
        next_arc: &mut [usize],
        on_path: &mut [bool],
    ) -> u32 {
        if node == sink {
            return limit;
        }
        on_path[node] = true;
        while next_arc[node] < self.arcs_of[node].len() {
            let id = self.arcs_of[node][next_arc[node]];
            let Arc { to, capacity, cost } = self.arcs[id];
            if capacity > 0 && !on_path[to] && distance[node] + cost == distance[to] {
                let sent = self.augment(to, sink, limit.min(capacity), distance, next_arc, on_path);
                if sent > 0 {
                    self.arcs[id].capacity -= sent;
                    self.arcs[id ^ 1].capacity += sent;
                    on_path[node] = false;
                    return sent;
                }
            }
            next_arc[node] += 1;
        }
        on_path[node] = false;
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn best_by_enumeration(arcs: &[(usize, usize, i64)], left: &[u32], right: &[u32]) -> i64 {
        let Some((&(from, to, cost), rest)) = arcs.split_first() else { return 0 };
        let mut best = best_by_enumeration(rest, left, right);
        if left[from] > 0 && right[to] > 0 {
            let (mut left, mut right) = (left.to_vec(), right.to_vec());
            left[from] -= 1;
            right[to] -= 1;
            best = best.min(cost + best_by_enumeration(rest, &left, &right));
        }
        best
    }

    proptest! {
        #[test]
        fn finds_the_cheapest_matching(
            arcs in prop::collection::vec((0usize..3, 0usize..3, -4i64..4), 0..9),
            left in prop::collection::vec(0u32..3, 3),
            right in prop::collection::vec(0u32..3, 3),
        ) {
            let mut network = Network::new(8);
            for at in 0..3 {
                network.add(0, 2 + at, left[at], 0);
                network.add(5 + at, 1, right[at], 0);
            }
            let ids: Vec<ArcId> =
                arcs.iter().map(|&(from, to, cost)| network.add(2 + from, 5 + to, 1, cost)).collect();
            network.send_while_free(0, 1);
            let cost: i64 =
                ids.iter().zip(&arcs).map(|(id, arc)| i64::from(network.flow(*id)) * arc.2).sum();
            prop_assert_eq!(cost, best_by_enumeration(&arcs, &left, &right));
        }
    }
}
