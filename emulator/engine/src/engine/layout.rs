// SPDX-License-Identifier: Apache-2.0
//! Maps vertices, ports and wires to shards and to indices within shards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::network::{LinkId, LinkSpec, Network, VertexId, VertexRole};
use super::port::{Line, Port, WireEnd};
use super::probe::Probe;
use super::settings::EngineSettings;
use super::shard::{LinkWire, Pods, Shard, Vertex};
use super::switch::SwitchQueues;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shard: u32,
    pub(crate) index: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) vertices: Vec<Place>,
    pub(crate) ports: Vec<Place>,
    pub(crate) places: Vec<u16>,
    pub(crate) wires: Vec<Place>,
}

impl Layout {
    pub(crate) fn new<P: Probe>(
        network: &Network,
        settings: &EngineSettings,
        probe: &P,
    ) -> (Self, Vec<Shard<P>>) {
        let (parts, pods) = cut(network, settings.threads.max(1));
        let mut layout = Self {
            vertices: vec![Place::default(); network.vertex_count()],
            ports: vec![Place::default(); network.links().len()],
            places: vec![0; network.links().len()],
            wires: vec![Place::default(); network.links().len()],
        };
        let mut lines = LineTable::default();
        let mut shards = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let mut shard = Shard::new(index as u32, parts.len(), probe.clone());
            let ports = part.iter().map(|vertex| network.outgoing(*vertex).len()).sum();
            shard.ports.reserve_exact(ports);
            shard.port_links.reserve_exact(ports);
            shard.wires.reserve_exact(ports);
            shard.wire_rates.reserve_exact(ports);
            for &vertex in part {
                layout.place(network, settings, vertex, &mut shard, &mut lines);
            }
            shard.settle();
            shards.push(shard);
        }
        if let [whole] = &mut shards[..] {
            whole.pods = pods;
        }
        layout.join(network, &mut shards);
        (layout, shards)
    }

    fn place<P: Probe>(
        &mut self,
        network: &Network,
        settings: &EngineSettings,
        vertex: VertexId,
        shard: &mut Shard<P>,
        lines: &mut LineTable,
    ) {
        let local = shard.vertices.len() as u32;
        self.vertices[vertex.index()] = Place { shard: shard.index, index: local };
        let (first_port, first_wire) = (shard.ports.len() as u32, shard.wires.len() as u32);
        let role = network.role(vertex);
        for &out in network.outgoing(vertex) {
            let index = shard.ports.len() as u32;
            self.ports[out.index()] = Place { shard: shard.index, index };
            self.places[out.index()] = (index - first_port) as u16;
            shard.port_links.push(out);
            let link = network.link(out);
            let line = lines.of(link.spec, role, settings);
            shard.ports.push(Port::new(out, link, role, line, settings));
            // Ties between arrivals are broken by link id.
            let link = out.reverse();
            let index = shard.wires.len() as u32;
            self.wires[link.index()] = Place { shard: shard.index, index };
            shard.wires.push(LinkWire { link, vertex: local, ..LinkWire::default() });
            shard.wire_rates.push(network.link(link).spec.rate);
        }
        let queued = settings.queues().filter(|_| !role.is_host());
        let links = network.outgoing(vertex).iter().map(|out| (*out, &network.link(*out).spec));
        let (marking, seed) = (settings.marking, settings.seed);
        let switch =
            queued.map(|queueing| Box::new(SwitchQueues::new(queueing, marking, seed, links)));
        shard.switches.push(switch);
        shard.vertices.push(Vertex {
            first_wire,
            end_wire: shard.wires.len() as u32,
            first_port,
            end_port: shard.ports.len() as u32,
            is_host: role.is_host(),
        });
    }

    fn join<P>(&self, network: &Network, shards: &mut [Shard<P>]) {
        for (index, link) in network.links().iter().enumerate() {
            let (port, wire) = (self.ports[index], self.wires[index]);
            let port = &mut shards[port.shard as usize].ports[port.index as usize];
            port.far = WireEnd {
                wire: wire.index,
                vertex: self.vertices[link.to.index()].index,
                shard: u16::try_from(wire.shard).expect("there are at most 65,536 shards"),
            };
            port.back = self.ports[LinkId::from_index(index).reverse().index()].index;
        }
    }
}

#[derive(Default)]
struct LineTable(FxHashMap<(LinkSpec, bool), Arc<Line>>);

impl LineTable {
    fn of(&mut self, spec: LinkSpec, role: VertexRole, settings: &EngineSettings) -> Arc<Line> {
        let line = self.0.entry((spec, role.is_host()));
        Arc::clone(line.or_insert_with(|| Arc::new(Line::new(spec, role, settings))))
    }
}

/// Partitions the network into `count` parts with about equal work (hosts count twice) and few links in between.
fn cut(network: &Network, count: usize) -> (Vec<Vec<VertexId>>, Pods) {
    let work = |vertex: VertexId| {
        network.outgoing(vertex).len() * if network.role(vertex).is_host() { 2 } else { 1 }
    };
    if count <= 1 {
        let (order, pods) = Pods::of(network);
        return (vec![order], pods);
    }
    let vertices = network.vertex_count();
    let total: usize = (0..vertices).map(VertexId::from_index).map(work).sum();
    let mut parts = vec![Vec::new()];
    let mut done = 0;
    for vertex in by_ties(network) {
        if done * count >= total * parts.len() {
            parts.push(Vec::new());
        }
        done += work(vertex);
        parts.last_mut().expect("there is at least one part").push(vertex);
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    (parts, Pods::default())
}

/// The next vertex is always the one with the largest share of links to vertices that have already been placed.
fn by_ties(network: &Network) -> Vec<VertexId> {
    let vertices = network.vertex_count();
    let mut tied = vec![0u64; vertices];
    let mut taken = vec![false; vertices];
    let mut order = Vec::with_capacity(vertices);
    let mut next = BinaryHeap::new();
    for first in (0..vertices).map(VertexId::from_index) {
        next.push((0, Reverse(first)));
        while let Some((_, Reverse(vertex))) = next.pop() {
            if std::mem::replace(&mut taken[vertex.index()], true) {
                continue;
            }
            order.push(vertex);
            for far in network.outgoing(vertex).iter().map(|link| network.link(*link).to) {
                if !taken[far.index()] {
                    tied[far.index()] += 1;
                    let links = network.outgoing(far).len() as u64;
                    next.push(((tied[far.index()] << 32) / links, Reverse(far)));
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use lightloom_units::{BitsPerSecond, Picoseconds};

    use super::*;
    use crate::topology::FatTree;

    #[test]
    fn parts_have_equal_work_and_few_links_between_them() {
        let mut builder = super::super::network::NetworkBuilder::new();
        let link = LinkSpec::new(BitsPerSecond::from_gbps(400), Picoseconds::from_micros(1));
        FatTree::full(8, link).build_into(&mut builder);
        let network = builder.build().expect("a fat-tree can be emulated");
        let (parts, _) = cut(&network, 2);
        let mut all: Vec<_> = parts.concat();
        all.sort_unstable();
        assert_eq!(all.len(), network.vertex_count());
        all.dedup();
        assert_eq!(all.len(), network.vertex_count(), "each vertex belongs to exactly one part");
        let first = |vertex: VertexId| parts[0].contains(&vertex);
        let between = network.links().iter().filter(|link| first(link.from) != first(link.to));
        // Each part contains four of the eight pods. Half of the core links, in both directions, cross the cut.
        assert!(between.count() <= 128 + 16, "of {} links", network.links().len());
    }
}
