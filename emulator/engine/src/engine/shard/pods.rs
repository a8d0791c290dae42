// SPDX-License-Identifier: Apache-2.0
//! Processes two windows at a time, one pod after another, so that a pod stays in the fastest caches for both.
//!
//! ```text
//!   spine        ────▶ s+L                                  ────▶ s+2L
//!   pod 1                   ────▶ s+L ────▶ s+2L
//!   pod 2                                     ────▶ s+L ────▶ s+2L
//! ```
//! Pods are connected only through the spine, over links with a delay of at least L, so a packet sent by one pod at t
//! reaches another no earlier than t + 2L. Once the spine has been processed up to s + L, each pod therefore knows
//! every arrival before s + 2L, except for packets that it sends itself.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Probe, Shard, Shared, SimSpan};
use crate::engine::network::{Network, VertexId};

#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    /// Empty if the network has no pods or is partitioned differently.
    pods: Vec<Range<usize>>,
    spine: Range<usize>,
}

impl Pods {
    /// The spine comes last and consists of the vertices farthest from any host. Pods are the remaining components.
    pub(crate) fn of(network: &Network) -> (Vec<VertexId>, Self) {
        let all = (0..network.vertex_count()).map(VertexId::from_index);
        let far = distances(network);
        let top = far.iter().copied().max().unwrap_or(0);
        let pod = components(network, |vertex| far[vertex.index()] < top);
        let mut order: Vec<VertexId> = all.clone().collect();
        order.sort_by_key(|vertex| pod[vertex.index()]);
        let pods: Vec<Range<usize>> = (0..)
            .map_while(|number| {
                let begin = order.partition_point(|vertex| pod[vertex.index()] < number);
                let end = order.partition_point(|vertex| pod[vertex.index()] <= number);
                (end > begin).then_some(begin..end)
            })
            .collect();
        if pods.len() < 2 {
            return (all.collect(), Self::default());
        }
        let spine = pods[pods.len() - 1].end..order.len();
        (order, Self { pods, spine })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Advances the only shard. `span` consists of one window up to `middle` and at most one more.
    pub(crate) fn advance<P: Probe>(
        shard: &mut Shard<P>,
        shared: &Shared,
        span: SimSpan,
        middle: u64,
    ) {
        let windows = [SimSpan { end: middle, ..span }, SimSpan { start: middle, ..span }];
        let Self { pods, spine } = std::mem::take(&mut shard.pods);
        shard.advance_part(shared, spine.clone(), windows[0]);
        for pod in &pods {
            for window in windows {
                shard.advance_part(shared, pod.clone(), window);
            }
        }
        shard.advance_part(shared, spine.clone(), windows[1]);
        shard.pods = Self { pods, spine };
    }
}

/// Hops from each vertex to the nearest host; 0 if no host is reachable.
fn distances(network: &Network) -> Vec<u32> {
    let vertices = (0..network.vertex_count()).map(VertexId::from_index);
    let mut far = vec![u32::MAX; network.vertex_count()];
    let mut next: VecDeque<VertexId> =
        vertices.filter(|vertex| network.role(*vertex).is_host()).collect();
    next.iter().for_each(|host| far[host.index()] = 0);
    while let Some(vertex) = next.pop_front() {
        for link in network.outgoing(vertex) {
            let to = network.link(*link).to;
            if far[to.index()] == u32::MAX {
                far[to.index()] = far[vertex.index()] + 1;
                next.push_back(to);
            }
        }
    }
    far.iter().map(|far| if *far == u32::MAX { 0 } else { *far }).collect()
}

fn components(network: &Network, kept: impl Fn(VertexId) -> bool) -> Vec<u32> {
    let mut number = vec![u32::MAX; network.vertex_count()];
    let mut count = 0;
    for first in (0..network.vertex_count()).map(VertexId::from_index) {
        if number[first.index()] != u32::MAX || !kept(first) {
            continue;
        }
        number[first.index()] = count;
        let mut next = vec![first];
        while let Some(vertex) = next.pop() {
            for link in network.outgoing(vertex) {
                let to = network.link(*link).to;
                if number[to.index()] == u32::MAX && kept(to) {
                    number[to.index()] = count;
                    next.push(to);
                }
            }
        }
        count += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Picoseconds};

    use super::*;
    use crate::engine::network::{LinkSpec, NetworkBuilder};
    use crate::topology::FatTree;

    fn link() -> LinkSpec {
        LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1))
    }

    #[test]
    fn pods_of_a_fat_tree_meet_only_at_its_cores() {
        let mut builder = NetworkBuilder::new();
        FatTree::full(8, link()).build_into(&mut builder);
        let network = builder.build().expect("a fat-tree can be emulated");
        let (order, Pods { pods, spine }) = Pods::of(&network);
        assert_eq!(pods.len(), 8);
        assert!(pods.iter().all(|pod| pod.len() == 16 + 8), "hosts, edges, aggregations: {pods:?}");
        assert_eq!(spine.len(), 16);
        let mut place = vec![0; order.len()];
        (0..).zip(&order).for_each(|(at, vertex)| place[vertex.index()] = at);
        let pod =
            |vertex: VertexId| pods.iter().position(|pod| pod.contains(&place[vertex.index()]));
        for link in network.links() {
            let (from, to) = (pod(link.from), pod(link.to));
            assert!(from == to || from.is_none() || to.is_none(), "{link:?}");
        }
    }
}
