// SPDX-License-Identifier: Apache-2.0
//! A fabric with all its cables. All fibres exist from the start and are dark unless selected, so
//! switching a transceiver only takes links down and brings them up.

use std::sync::Arc;

use lightloom_engine::{
    LinkId, LinkSpec, NetworkBuilder, NetworkError, Route, VertexId, VertexRole,
};
use lightloom_fabric::dcn::{Dcn, FatTree};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::CrossConnect;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::{Fibre, Path, Port};
use lightloom_units::BitsPerSecond;
use lightloom_units::id::{BundleId, GpuId, LeafId, NodeId, TorId, UplinkId};

use super::circuits::OpticalCircuits;
use super::{DCN, HBD, PacketSwitches, Substrate, both_ways};

const CLASSES: [&str; 5] = ["gpu-gpu", "fibre", "gpu-tor", "tor-gpu", "switch-switch"];

/// Condition under which a healthy cable has light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Always lit: copper between GPUs, and the data-centre network.
    Always,
    /// Ring edge behind a bundle, lit while the bundle is in loopback.
    Loopback(BundleId),
    /// Fibre, lit while the bundles at both ends select it.
    Fibre(Port, Port),
}

/// GPUs of a fabric and their cables.
#[derive(Clone, Debug)]
pub struct RingCables {
    pub(super) fabric: Arc<Fabric>,
    carriers: Vec<Carrier>,
    pub(super) tors: Vec<VertexId>,
    pub(super) islands: Vec<VertexId>,
    pub(super) gpus: Vec<VertexId>,
    gpus_per_node: u8,
    ring_edges: Vec<LinkId>,
    /// Each fibre with one cable per half (lower and upper), directed from the lower end to the higher end.
    fibres: Vec<(Fibre, [LinkId; 2])>,
}

/// Builds all cables of `fabric` except permanently failed uplinks, and all possible circuits.
pub fn of_fabric(
    fabric: &Arc<Fabric>,
    switches: &PacketSwitches,
    circuits: &[CrossConnect],
    faults: &FaultSet,
) -> Result<Substrate, NetworkError> {
    let mut builder = NetworkBuilder::new();
    let has_gpus = fabric.circuits_alone().is_none();
    let mut rings = has_gpus.then(|| RingCables::new(fabric, &mut builder));
    if let Some(rings) = &mut rings {
        if fabric.hbd.ring().is_some() {
            rings.cable_nodes(&mut builder);
            rings.cable_fibres(&mut builder);
        }
        rings.cable_islands(&mut builder);
        rings.cable_packet_tree(switches, faults, &mut builder);
        rings.cable_leaves(switches, faults, &mut builder);
    }
    let optical = fabric.dcn.circuits().map(|network| {
        let uplinks = FaultSet { uplinks: faults.uplinks.clone(), ..FaultSet::none() };
        let mut optical = OpticalCircuits::lay(&network.without(&uplinks), switches, &mut builder);
        if let Some(rings) = &mut rings {
            rings.cable_interfaces(optical.leaves(), switches, &mut builder);
        }
        optical.add_circuits(switches, circuits, &mut builder);
        optical
    });
    let network = builder.build()?;
    let vertices = (0..network.vertex_count()).map(VertexId::from_index);
    let names = vertices.map(|at| name_of(rings.as_ref(), optical.as_ref(), at)).collect();
    let hosts: Vec<VertexId> = match (&rings, &optical) {
        (Some(rings), _) => rings.gpus.clone(),
        (None, Some(optical)) => optical.hosts().to_vec(),
        (None, None) => Vec::new(),
    };
    let mut places = vec![None; network.vertex_count()];
    for (place, host) in (0..).zip(&hosts) {
        places[host.index()] = Some(place);
    }
    let (classes, class_names) = match (&rings, &optical) {
        (Some(rings), _) => (rings.classes(&network), &CLASSES[..]),
        _ => super::shape::classes_by_role(&network),
    };
    Ok(Substrate {
        hosts_per_server: usize::from(fabric.hbd.gpus_per_node()).max(1),
        route: if rings.is_some() { Route::Within(DCN) } else { Route::Shortest },
        patched: Vec::new(),
        domains: None,
        grid: None,
        circuits: optical,
        network,
        hosts,
        rings,
        names,
        places,
        classes,
        class_names,
    })
}

fn name_of(
    rings: Option<&RingCables>,
    optical: Option<&OpticalCircuits>,
    vertex: VertexId,
) -> String {
    rings
        .and_then(|rings| rings.name(vertex))
        .or_else(|| optical.and_then(|optical| optical.name(vertex)))
        .unwrap_or_else(|| format!("switch {}", vertex.0))
}

impl RingCables {
    fn new(fabric: &Arc<Fabric>, builder: &mut NetworkBuilder) -> Self {
        let gpus: Vec<VertexId> =
            (0..fabric.hbd.gpus()).map(|_| builder.add(VertexRole::ForwardingHost)).collect();
        Self {
            fabric: fabric.clone(),
            carriers: Vec::new(),
            tors: Vec::new(),
            islands: Vec::new(),
            gpus,
            gpus_per_node: fabric.hbd.gpus_per_node(),
            ring_edges: Vec::new(),
            fibres: Vec::new(),
        }
    }

    /// Returns the original fabric.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    fn cable_nodes(&mut self, builder: &mut NetworkBuilder) {
        let fabric = self.fabric.clone();
        let links = &fabric.hbd_links;
        let inside = LinkSpec::new(links.edge_rate, links.inside_latency).in_plane(HBD);
        for node in (0..fabric.hbd.nodes()).map(NodeId) {
            let bundles = (0..fabric.hbd.k()).map(|bundle| BundleId { node, bundle });
            for gpu in 0..self.gpus_per_node {
                let mut bundles = bundles.clone();
                let bundle = bundles.find(|bundle| fabric.hbd.ring_edge(bundle.bundle) == gpu);
                self.carriers.push(bundle.map_or(Carrier::Always, Carrier::Loopback));
                let next = GpuId { node, gpu: (gpu + 1) % self.gpus_per_node };
                let edge =
                    builder.connect(self.vertex(GpuId { node, gpu }), self.vertex(next), inside);
                self.ring_edges.push(edge);
            }
        }
    }

    fn cable_fibres(&mut self, builder: &mut NetworkBuilder) {
        let fabric = self.fabric.clone();
        let links = &fabric.hbd_links;
        let fibre_spec = LinkSpec::new(links.edge_rate, links.fibre_latency).in_plane(HBD);
        for fibre in fabric.hbd.fibres() {
            let (a, b) = fabric.hbd.ports(fibre);
            self.carriers.extend([Carrier::Fibre(a, b); 2]);
            let cables = [0, 1].map(|half| {
                let [a, b] = [a, b].map(|port| self.vertex(self.half(port, half)));
                builder.connect(a, b, fibre_spec)
            });
            self.fibres.push((fibre, cables));
        }
    }

    /// Each GPU is connected at the rate of two edges, and the switch does not drop packets.
    fn cable_islands(&mut self, builder: &mut NetworkBuilder) {
        let fabric = self.fabric.clone();
        let Grouping::Island { nodes } = fabric.hbd.grouping() else { return };
        let links = &fabric.hbd_links;
        let rate = BitsPerSecond(2 * links.edge_rate.0);
        let edge = LinkSpec::new(rate, links.inside_latency).in_plane(HBD);
        let gpus = nodes as usize * usize::from(self.gpus_per_node);
        for island in self.gpus.chunks(gpus.max(1)) {
            let switch = builder.add(VertexRole::Switch);
            self.islands.push(switch);
            for gpu in island {
                self.carriers.push(Carrier::Always);
                builder.connect(*gpu, switch, edge);
            }
        }
    }

    pub(super) fn island_of(&self, gpu: VertexId) -> Option<u32> {
        let Grouping::Island { nodes } = self.fabric.hbd.grouping() else { return None };
        let node = self.gpu(gpu)?.node.index() as u32;
        Some(node / nodes.max(1))
    }

    pub(super) fn nodes_of_island(&self, switch: VertexId) -> Vec<NodeId> {
        let Grouping::Island { nodes } = self.fabric.hbd.grouping() else { return Vec::new() };
        let Ok(island) = self.islands.binary_search(&switch) else { return Vec::new() };
        let first = island as u32 * nodes;
        (first..(first + nodes).min(self.fabric.hbd.nodes())).map(NodeId).collect()
    }

    /// `half` is 0 (lower) or 1 (upper).
    fn half(&self, port: Port, half: u8) -> GpuId {
        let edge = self.fabric.hbd.ring_edge(port.bundle.bundle);
        GpuId { node: port.bundle.node, gpu: (edge + half) % self.gpus_per_node }
    }

    fn cable_interfaces(
        &mut self,
        leaves: &[VertexId],
        switches: &PacketSwitches,
        builder: &mut NetworkBuilder,
    ) {
        let dcn = &self.fabric.dcn;
        let link = switches.on(LinkSpec::new(dcn.link_rate(), dcn.link_latency())).in_plane(DCN);
        for (place, gpu) in self.gpus.iter().enumerate() {
            let per_node = usize::from(self.gpus_per_node);
            let node = NodeId::from_index(place / per_node);
            let leaf = dcn.leaf_of(GpuId { node, gpu: (place % per_node) as u8 });
            builder.connect(*gpu, leaves[leaf.index()], link);
        }
    }

    /// An aggregation domain has as many aggregation switches as a ToR has uplinks. With several
    /// domains, each of these switches has as many cores as a domain has ToRs.
    fn cable_packet_tree(
        &mut self,
        switches: &PacketSwitches,
        faults: &FaultSet,
        builder: &mut NetworkBuilder,
    ) {
        let fabric = self.fabric.clone();
        let dcn = &fabric.dcn;
        let leaves = dcn.leaves(fabric.hbd.nodes());
        // Each aggregation switch above rails connects the rails of all groups.
        let leaves_per_domain = match dcn {
            Dcn::FatTree(tree) => tree.tors_per_domain as usize,
            Dcn::Rails(_) => leaves as usize,
            Dcn::Direct(_) | Dcn::Reconfigurable { .. } => return,
        };
        let link = switches.on(LinkSpec::new(dcn.port_rate(), dcn.link_latency())).in_plane(DCN);
        self.tors = (0..leaves).map(|_| builder.add(VertexRole::Switch)).collect();
        let tor_vertices = self.tors.clone();
        self.cable_interfaces(&tor_vertices, switches, builder);
        let uplinks = dcn.uplinks_of_leaf(self.gpus_per_node);
        let aggregations: Vec<Vec<VertexId>> = tor_vertices
            .chunks(leaves_per_domain)
            .zip((0..).step_by(leaves_per_domain))
            .map(|(domain, first)| aggregate(builder, domain, first, uplinks, faults, link))
            .collect();
        if aggregations.len() < 2 {
            return;
        }
        for plane in 0..uplinks as usize {
            for _ in 0..dcn.packet_tree().map_or(0, FatTree::cores_of_plane) {
                let core = builder.add(VertexRole::Switch);
                for domain in &aggregations {
                    builder.connect(domain[plane], core, link);
                }
            }
        }
    }

    fn cable_leaves(
        &mut self,
        switches: &PacketSwitches,
        faults: &FaultSet,
        builder: &mut NetworkBuilder,
    ) {
        let fabric = self.fabric.clone();
        let Some(network) = fabric.dcn.direct() else { return };
        let link = LinkSpec::new(network.leaf.link_rate, network.leaf.link_latency);
        let link = switches.on(link).in_plane(DCN);
        self.tors = (0..network.leaves()).map(|_| builder.add(VertexRole::Switch)).collect();
        let leaves = self.tors.clone();
        self.cable_interfaces(&leaves, switches, builder);
        for cable in network.cables_left(faults) {
            builder.connect(leaves[cable.a.index()], leaves[cable.b.index()], link);
        }
    }

    /// Returns the vertex of a GPU.
    pub fn vertex(&self, gpu: GpuId) -> VertexId {
        self.gpus[self.place(gpu)]
    }
    fn place(&self, gpu: GpuId) -> usize {
        gpu.node.index() * usize::from(self.gpus_per_node) + usize::from(gpu.gpu)
    }

    /// Returns the links, in both directions, that `bundle` provides while it is set to `path`.
    pub fn links_of(&self, bundle: BundleId, path: Path) -> Vec<LinkId> {
        let hbd = &self.fabric.hbd;
        let port = match path {
            Path::Loopback => {
                let gpu = GpuId { node: bundle.node, gpu: hbd.ring_edge(bundle.bundle) };
                return both_ways(self.ring_edges[self.place(gpu)]).to_vec();
            }
            Path::External1 => Port { bundle, path: 1 },
            Path::External2 => Port { bundle, path: 2 },
        };
        let cables = hbd.peer(port).and_then(|_| self.cables_of(port));
        cables.into_iter().flatten().flat_map(both_ways).collect()
    }

    /// Returns the links, in both directions, that `bundle` can provide.
    pub fn all_links_of(&self, bundle: BundleId) -> Vec<LinkId> {
        let paths = [Path::External1, Path::External2, Path::Loopback];
        let mut links: Vec<LinkId> =
            paths.iter().flat_map(|path| self.links_of(bundle, *path)).collect();
        links.sort_unstable();
        links.dedup();
        links
    }

    fn cables_of(&self, port: Port) -> Option<[LinkId; 2]> {
        let hbd = &self.fabric.hbd;
        let position = hbd.position_of(port.bundle.node);
        let hop = lightloom_fabric::khop::hop_for_port(hbd.k(), port.bundle.bundle, port.path)?;
        let fibre = hbd.fibre(position, hop)?;
        let index = self.fibres.binary_search_by_key(&fibre, |(fibre, _)| *fibre).ok()?;
        Some(self.fibres[index].1)
    }

    /// Returns the leaf at a vertex, if any.
    pub fn leaf_at(&self, vertex: VertexId) -> Option<LeafId> {
        self.tors.binary_search(&vertex).ok().map(LeafId::from_index)
    }

    /// Returns the GPU at a vertex, or `None` for a switch.
    pub fn gpu(&self, vertex: VertexId) -> Option<GpuId> {
        let per_node = usize::from(self.gpus_per_node);
        let index = vertex.index();
        (index < self.gpus.len()).then(|| GpuId {
            node: NodeId::from_index(index / per_node),
            gpu: (index % per_node) as u8,
        })
    }

    fn name(&self, vertex: VertexId) -> Option<String> {
        let gpu = self.gpu(vertex).map(|gpu| gpu.to_string());
        let tor = self.tors.binary_search(&vertex).ok();
        let island = self.islands.binary_search(&vertex).ok();
        gpu.or_else(|| tor.map(|tor| TorId::from_index(tor).to_string()))
            .or_else(|| island.map(|island| format!("hbd{island}")))
    }

    /// Returns the condition under which a link has light.
    pub fn carrier(&self, link: LinkId) -> Carrier {
        self.carriers.get(link.index() / 2).copied().unwrap_or(Carrier::Always)
    }

    fn classes(&self, network: &lightloom_engine::Network) -> Vec<u8> {
        let classes = (0..network.links().len()).map(|index| {
            let link = LinkId::from_index(index);
            let ends = network.link(link);
            match (network.role(ends.from), network.role(ends.to)) {
                _ if ends.spec.plane == HBD && !self.islands.is_empty() => 0,
                (VertexRole::Switch, VertexRole::Switch) => 4,
                (VertexRole::Switch, _) => 3,
                (_, VertexRole::Switch) => 2,
                _ => u8::from(matches!(self.carrier(link), Carrier::Fibre(..))),
            }
        });
        classes.collect()
    }
}

fn aggregate(
    builder: &mut NetworkBuilder,
    tors: &[VertexId],
    first: u32,
    uplinks: u32,
    faults: &FaultSet,
    link: LinkSpec,
) -> Vec<VertexId> {
    let aggregations: Vec<VertexId> =
        (0..uplinks).map(|_| builder.add(VertexRole::Switch)).collect();
    for (leaf, tor) in (first..).map(LeafId).zip(tors) {
        for (uplink, aggregation) in (0..).zip(&aggregations) {
            if !faults.uplinks.contains(&UplinkId { leaf, uplink }) {
                builder.connect(*tor, *aggregation, link);
            }
        }
    }
    aggregations
}
