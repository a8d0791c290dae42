//! Where everything of a network lies: which shard, and which place in it.

use std::ops::Range;

use super::network::{LinkId, Network, VertexId};
use super::port::Port;
use super::probe::Probe;
use super::run::Settings;
use super::shard::{Shard, Vertex, Wire};
use super::switch::Switch;

/// A place in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shard: u32,
    pub(crate) index: u32,
}

/// The places of vertices, ports and wires.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) vertices: Vec<Place>,
    /// By link: its output port.
    pub(crate) ports: Vec<Place>,
    /// By link: its wire, in the shard of its far end.
    pub(crate) wires: Vec<Place>,
    /// By shard and port: the link.
    pub(crate) links: Vec<Vec<LinkId>>,
}

impl Layout {
    /// Cuts the network into parts for `Settings::threads`.
    pub(crate) fn new<P: Probe>(
        network: &Network,
        settings: &Settings,
        probe: &P,
    ) -> (Self, Vec<Shard<P>>) {
        let parts = cut(network, settings.threads.max(1));
        let mut layout = Self {
            vertices: vec![Place::default(); network.vertex_count()],
            ports: vec![Place::default(); network.links().len()],
            wires: vec![Place::default(); network.links().len()],
            links: vec![Vec::new(); parts.len()],
        };
        let mut shards = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let mut shard = Shard::new(index as u32, parts.len(), probe.clone());
            for vertex in part.clone().map(VertexId::from_index) {
                layout.place(network, settings, vertex, &mut shard);
            }
            shard.settle();
            shards.push(shard);
        }
        layout.join(network, &mut shards);
        (layout, shards)
    }

    fn place<P: Probe>(
        &mut self,
        network: &Network,
        settings: &Settings,
        vertex: VertexId,
        shard: &mut Shard<P>,
    ) {
        let local = shard.vertices.len() as u32;
        self.vertices[vertex.index()] = Place { shard: shard.index, index: local };
        let (first_port, first_wire) = (shard.ports.len() as u32, shard.wires.len() as u32);
        let role = network.role(vertex);
        for &out in network.outgoing(vertex) {
            let index = shard.ports.len() as u32;
            self.ports[out.index()] = Place { shard: shard.index, index };
            self.links[shard.index as usize].push(out);
            shard.port_links.push(out);
            shard.ports.push(Port::new(out, network.link(out), role, settings));
            // In order of link: ties between arrivals are broken by it.
            let link = out.reverse();
            let index = shard.wires.len() as u32;
            self.wires[link.index()] = Place { shard: shard.index, index };
            shard.wires.push(Wire { link, vertex: local, ..Wire::default() });
            shard.wire_rates.push(network.link(link).spec.rate);
        }
        let queued = settings.queueing.filter(|_| !role.is_host());
        let links = network.outgoing(vertex).iter().map(|out| (*out, &network.link(*out).spec));
        let marking = (settings.marking, settings.seed);
        let switch = queued.map(|queueing| Box::new(Switch::new(queueing, marking, links)));
        shard.switches.push(switch);
        shard.vertices.push(Vertex {
            first_wire,
            end_wire: shard.wires.len() as u32,
            first_port,
            end_port: shard.ports.len() as u32,
            is_host: role.is_host(),
        });
    }

    /// Tells every port where its wire ends.
    fn join<P>(&self, network: &Network, shards: &mut [Shard<P>]) {
        for (index, link) in network.links().iter().enumerate() {
            let (port, wire) = (self.ports[index], self.wires[index]);
            let port = &mut shards[port.shard as usize].ports[port.index as usize];
            port.shard = wire.shard;
            port.wire = wire.index;
            port.vertex = self.vertices[link.to.index()].index;
            port.back = self.ports[LinkId::from_index(index).reverse().index()].index;
        }
    }
}

/// Stretches of vertices with about equally much work. A host does with each packet about twice what a
/// switch does.
fn cut(network: &Network, count: usize) -> Vec<Range<usize>> {
    let work = |vertex: usize| {
        let vertex = VertexId::from_index(vertex);
        network.outgoing(vertex).len() * if network.role(vertex).is_host() { 2 } else { 1 }
    };
    let vertices = network.vertex_count();
    let total: usize = (0..vertices).map(work).sum();
    let mut parts = Vec::new();
    let (mut first, mut done) = (0, 0);
    for vertex in 0..vertices {
        done += work(vertex);
        let last = vertex + 1 == vertices;
        if last || done * count >= total * (parts.len() + 1) {
            parts.push(first..vertex + 1);
            first = vertex + 1;
        }
    }
    parts
}
