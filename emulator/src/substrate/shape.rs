// SPDX-License-Identifier: Apache-2.0

use lightloom_engine::topology::{
    CubeTorus, FatTree, Grid, LeafSpine, RailLinks, RailOnly, RailOptimised, Ring, RingShape,
    SwitchedDomain, Torus,
};
use lightloom_engine::{
    LinkId, LinkSpec, Network, NetworkBuilder, NetworkError, Plane, VertexId, VertexRole,
};
use lightloom_units::Picoseconds;

use super::{PacketSwitches, Substrate};

/// Shape of a network, with its cables.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Three tiers of switches.
    FatTree(FatTree),
    /// Two tiers of switches, with this number of planes over the same hosts.
    LeafSpine(LeafSpine, u8),
    /// Rails connected by spines.
    RailOptimised(RailOptimised, RailLinks),
    /// Rails without spines.
    RailOnly(RailOnly, RailLinks),
    /// A grid.
    Torus(Torus, LinkSpec),
    /// Cubes of TPUs.
    Cubes(CubeTorus, LinkSpec),
    /// GPUs below switches.
    Domain(SwitchedDomain, LinkSpec),
    /// Hosts in a row.
    Row(RingShape, u32, LinkSpec),
    /// An arbitrary graph.
    Graph(CableGraph),
}

/// An arbitrary graph.
#[derive(Clone, Debug, PartialEq)]
pub struct CableGraph {
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Names of switches.
    pub switches: Vec<String>,
    /// Cables with the indices of both ends, which count the hosts first and then the switches.
    pub cables: Vec<(usize, usize, LinkSpec)>,
    /// Indices of the cables through each optical switch.
    pub circuits: Vec<Vec<usize>>,
}

#[derive(Default)]
struct LaidShape {
    hosts: Vec<VertexId>,
    circuits: Vec<Vec<LinkId>>,
    grid: Option<Grid>,
    names: Vec<String>,
}

impl LaidShape {
    fn of(hosts: Vec<VertexId>) -> Self {
        Self { hosts, ..Self::default() }
    }
}

/// Builds a shape with the queues of `switches`. `nic_delay` is added for each host end.
pub fn of_shape(
    shape: &Shape,
    switches: &PacketSwitches,
    nic_delay: Picoseconds,
) -> Result<Substrate, NetworkError> {
    let mut builder = NetworkBuilder::new();
    let laid = lay_out(shape, &mut builder);
    let network = equipped(&builder.build()?, switches, nic_delay)?;
    let LaidShape { hosts, circuits: patched, grid, names } = laid;
    let mut plain = Substrate::plain(network, hosts);
    if !names.is_empty() {
        plain.names = names;
    }
    Ok(Substrate { hosts_per_server: hosts_per_server(shape), patched, grid, ..plain })
}

const CLASSES: [&str; 4] = ["host-host", "host-switch", "switch-host", "switch-switch"];

pub(super) fn classes_by_role(network: &Network) -> (Vec<u8>, &'static [&'static str]) {
    let classes = network.links().iter().map(|link| {
        let [from, to] = [link.from, link.to].map(|at| network.role(at) == VertexRole::Switch);
        u8::from(from) * 2 + u8::from(to)
    });
    (classes.collect(), &CLASSES)
}

const fn hosts_per_server(shape: &Shape) -> usize {
    match shape {
        Shape::RailOptimised(rails, _) => rails.gpus_per_server as usize,
        Shape::RailOnly(rails, _) => rails.gpus_per_domain as usize,
        _ => 1,
    }
}

pub(super) fn numbered(places: &[Option<u32>]) -> Vec<String> {
    let mut switches = 0..;
    let names = places.iter().map(|place| match place {
        Some(place) => format!("h{place}"),
        None => format!("s{}", switches.next().unwrap_or(0)),
    });
    names.collect()
}

fn equipped(
    bare: &Network,
    switches: &PacketSwitches,
    nic_delay: Picoseconds,
) -> Result<Network, NetworkError> {
    let mut builder = NetworkBuilder::new();
    for vertex in 0..bare.vertex_count() {
        builder.add(bare.role(VertexId::from_index(vertex)));
    }
    for cable in bare.links().iter().step_by(2) {
        let ends = [cable.from, cable.to];
        let hosts = ends.iter().filter(|end| bare.role(**end).is_host()).count() as u64;
        let mut spec = switches.on(cable.spec);
        spec.delay += nic_delay * hosts;
        builder.connect(cable.from, cable.to, spec);
    }
    builder.build()
}

fn lay_out(shape: &Shape, builder: &mut NetworkBuilder) -> LaidShape {
    match shape {
        Shape::FatTree(tree) => LaidShape::of(tree.build_into(builder)),
        Shape::LeafSpine(shape, planes) => {
            let hosts: Vec<VertexId> = (0..shape.leaves * shape.hosts_per_leaf)
                .map(|_| builder.add(VertexRole::Host))
                .collect();
            for plane in 0..*planes {
                let host_link = shape.host_link.in_plane(Plane(plane));
                let spine_link = shape.spine_link.in_plane(Plane(plane));
                LeafSpine { host_link, spine_link, ..*shape }.build_over(builder, &hosts);
            }
            LaidShape::of(hosts)
        }
        Shape::RailOptimised(rails, links) => LaidShape::of(rails.build_into(builder, *links)),
        Shape::RailOnly(rails, links) => LaidShape::of(rails.build_into(builder, *links)),
        Shape::Torus(torus, link) => {
            let grid = torus.build_into(builder, *link);
            LaidShape { grid: Some(grid.clone()), ..LaidShape::of(grid.hosts) }
        }
        Shape::Cubes(cubes, link) => {
            let (grid, circuits) = cubes.build_into(builder, *link);
            LaidShape { grid: Some(grid.clone()), circuits, ..LaidShape::of(grid.hosts) }
        }
        Shape::Domain(domain, link) => LaidShape::of(domain.build_into(builder, *link)),
        Shape::Row(shape, hosts, link) => {
            let hosts: Vec<VertexId> =
                (0..*hosts).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
            Ring::build_into(builder, &hosts, *shape, |_| *link);
            LaidShape::of(hosts)
        }
        Shape::Graph(graph) => lay_out_graph(graph, builder),
    }
}

fn lay_out_graph(graph: &CableGraph, builder: &mut NetworkBuilder) -> LaidShape {
    let hosts: Vec<VertexId> = graph.hosts.iter().map(|_| builder.add(VertexRole::Host)).collect();
    let switches = graph.switches.iter().map(|_| builder.add(VertexRole::Switch));
    let all: Vec<VertexId> = hosts.iter().copied().chain(switches).collect();
    let cables = graph.cables.iter();
    let links: Vec<LinkId> =
        cables.map(|(from, to, spec)| builder.connect(all[*from], all[*to], *spec)).collect();
    let circuits = graph.circuits.iter();
    let circuits =
        circuits.map(|places| places.iter().map(|place| links[*place]).collect()).collect();
    let names = graph.hosts.iter().chain(&graph.switches).cloned().collect();
    LaidShape { names, circuits, ..LaidShape::of(hosts) }
}
