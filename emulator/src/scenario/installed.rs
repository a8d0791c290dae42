//! The engine's network for a fabric: every cable that is installed, lit or not.
//!
//! A GPU is one vertex with two ring edges in the high-bandwidth domain and one interface in the
//! data-centre network. All fibres are there from the beginning; those that no bundle selects are
//! down. Switching a transceiver is then nothing but links going down and up.

use lightloom_engine::{
    LinkId, LinkSpec, Network, NetworkBuilder, NetworkError, Plane, Role, VertexId,
};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::Part;
use lightloom_fabric::khop::{Fibre, Path, Port};
use lightloom_units::id::{BundleId, GpuId, NodeId, TorId};

use super::Switches;
use super::fault::{Target, nodes_under};

/// The GPU rings.
pub const HBD: Plane = Plane(0);
/// The data-centre network.
pub const DCN: Plane = Plane(1);

/// What decides whether a cable carries light, as long as nothing is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Nothing: copper between GPUs, the data-centre network.
    Always,
    /// The ring edge under a bundle: lit when the bundle holds loopback.
    Loopback(BundleId),
    /// A fibre: lit when the bundles at both ends select it.
    Fibre(Port, Port),
}

/// A network with the meaning of its links.
pub struct Installed {
    /// By cable.
    carriers: Vec<Carrier>,
    /// By ToR: its switch.
    tors: Vec<VertexId>,
    /// By GPU: node × R + GPU.
    gpus: Vec<VertexId>,
    gpus_per_node: u8,
    /// By GPU: the ring edge that starts there, from GPU g to GPU g + 1 of its node.
    ring_edges: Vec<LinkId>,
    /// Every fibre with its two cables: between the lower halves, and between the upper ones, each
    /// from the lower end up.
    fibres: Vec<(Fibre, [LinkId; 2])>,
}

impl Installed {
    /// Builds the network of `fabric` and the meaning of its links.
    ///
    /// # Errors
    /// If a delay or rate of the fabric cannot be emulated.
    pub fn build(fabric: &Fabric) -> Result<(Network, Self), NetworkError> {
        Self::build_with(fabric, &Switches::default())
    }

    /// The same with these switches in the data-centre network.
    ///
    /// # Errors
    /// If a delay or rate of the fabric cannot be emulated.
    pub fn build_with(
        fabric: &Fabric,
        switches: &Switches,
    ) -> Result<(Network, Self), NetworkError> {
        let mut builder = NetworkBuilder::new();
        let hbd = &fabric.hbd;
        let gpus: Vec<VertexId> =
            (0..hbd.gpus()).map(|_| builder.add(Role::ForwardingHost)).collect();
        let mut installed = Self {
            carriers: Vec::new(),
            tors: Vec::new(),
            gpus,
            gpus_per_node: hbd.gpus_per_node(),
            ring_edges: Vec::new(),
            fibres: Vec::new(),
        };
        installed.cable_nodes(fabric, &mut builder);
        installed.cable_fibres(fabric, &mut builder);
        installed.cable_data_centre(fabric, switches, &mut builder);
        Ok((builder.build()?, installed))
    }

    fn cable_nodes(&mut self, fabric: &Fabric, builder: &mut NetworkBuilder) {
        let inside = LinkSpec::new(fabric.hbd_links.edge_rate, fabric.hbd_links.inside_latency)
            .in_plane(HBD);
        for node in (0..fabric.hbd.nodes()).map(NodeId) {
            let bundles = (0..fabric.hbd.k()).map(|bundle| BundleId { node, bundle });
            for gpu in 0..self.gpus_per_node {
                let over = |bundle: &BundleId| fabric.hbd.ring_edge(bundle.bundle) == gpu;
                let bundle = bundles.clone().find(over);
                self.carriers.push(bundle.map_or(Carrier::Always, Carrier::Loopback));
                let next = GpuId { node, gpu: (gpu + 1) % self.gpus_per_node };
                let edge =
                    builder.connect(self.vertex(GpuId { node, gpu }), self.vertex(next), inside);
                self.ring_edges.push(edge);
            }
        }
    }

    fn cable_fibres(&mut self, fabric: &Fabric, builder: &mut NetworkBuilder) {
        let fibre_spec =
            LinkSpec::new(fabric.hbd_links.edge_rate, fabric.hbd_links.fibre_latency).in_plane(HBD);
        for fibre in fabric.hbd.fibres() {
            let (a, b) = fabric.hbd.ports(fibre);
            self.carriers.extend([Carrier::Fibre(a, b); 2]);
            let cables = [0, 1].map(|half| {
                let [a, b] = [a, b].map(|port| self.vertex(self.half(fabric, port, half)));
                builder.connect(a, b, fibre_spec)
            });
            self.fibres.push((fibre, cables));
        }
    }

    /// The GPU on the lower (0) or upper (1) half of a port's bundle.
    fn half(&self, fabric: &Fabric, port: Port, half: u8) -> GpuId {
        let edge = fabric.hbd.ring_edge(port.bundle.bundle);
        GpuId { node: port.bundle.node, gpu: (edge + half) % self.gpus_per_node }
    }

    /// ToRs over the GPUs; in each aggregation domain as many aggregation switches as a ToR has
    /// uplinks; over several domains, for each aggregation switch as many cores as a domain has ToRs.
    fn cable_data_centre(
        &mut self,
        fabric: &Fabric,
        switches: &Switches,
        builder: &mut NetworkBuilder,
    ) {
        let dcn = &fabric.dcn;
        let link = switches.on(LinkSpec::new(dcn.link_rate(), dcn.link_latency())).in_plane(DCN);
        let tors = dcn.tors(fabric.hbd.nodes());
        let tor_vertices: Vec<VertexId> = (0..tors).map(|_| builder.add(Role::Switch)).collect();
        self.tors.clone_from(&tor_vertices);
        for (place, gpu) in self.gpus.iter().enumerate() {
            let node = NodeId::from_index(place / usize::from(self.gpus_per_node));
            let tor = tor_vertices[dcn.tor_of(node).index()];
            builder.connect(*gpu, tor, link);
        }
        let uplinks =
            (dcn.nodes_per_tor() * u32::from(self.gpus_per_node)).div_ceil(dcn.oversubscription());
        let aggregations: Vec<Vec<VertexId>> = tor_vertices
            .chunks(dcn.tors_per_domain() as usize)
            .map(|domain| aggregate(builder, domain, uplinks, link))
            .collect();
        if aggregations.len() < 2 {
            return;
        }
        for plane in 0..uplinks as usize {
            for _ in 0..dcn.tors_per_domain() {
                let core = builder.add(Role::Switch);
                for domain in &aggregations {
                    builder.connect(domain[plane], core, link);
                }
            }
        }
    }

    /// The vertex of a GPU.
    #[must_use]
    pub fn vertex(&self, gpu: GpuId) -> VertexId {
        self.gpus[self.place(gpu)]
    }
    fn place(&self, gpu: GpuId) -> usize {
        gpu.node.index() * usize::from(self.gpus_per_node) + usize::from(gpu.gpu)
    }

    /// The links, both directions, that `bundle` is when it holds `path`.
    #[must_use]
    pub fn links_of(&self, fabric: &Fabric, bundle: BundleId, path: Path) -> Vec<LinkId> {
        let port = match path {
            Path::Loopback => {
                let gpu = GpuId { node: bundle.node, gpu: fabric.hbd.ring_edge(bundle.bundle) };
                return both_ways(self.ring_edges[self.place(gpu)]).to_vec();
            }
            Path::External1 => Port { bundle, path: 1 },
            Path::External2 => Port { bundle, path: 2 },
        };
        let cables = fabric.hbd.peer(port).and_then(|_| self.cables_of(fabric, port));
        cables.into_iter().flatten().flat_map(both_ways).collect()
    }

    fn cables_of(&self, fabric: &Fabric, port: Port) -> Option<[LinkId; 2]> {
        let position = fabric.hbd.position_of(port.bundle.node);
        let hop =
            lightloom_fabric::khop::hop_for_port(fabric.hbd.k(), port.bundle.bundle, port.path)?;
        let fibre = fabric.hbd.fibre(position, hop)?;
        let index = self.fibres.binary_search_by_key(&fibre, |(fibre, _)| *fibre).ok()?;
        Some(self.fibres[index].1)
    }

    /// The GPU at a vertex; nothing for a switch.
    #[must_use]
    pub fn gpu(&self, vertex: VertexId) -> Option<GpuId> {
        let per_node = usize::from(self.gpus_per_node);
        let index = vertex.index();
        (index < self.gpus.len()).then(|| GpuId {
            node: NodeId::from_index(index / per_node),
            gpu: (index % per_node) as u8,
        })
    }

    /// How a link is called: by the GPUs and ToRs at its ends, `n4/g3→t2`.
    #[must_use]
    pub fn link_name(&self, network: &Network, link: LinkId) -> String {
        let ends = network.link(link);
        format!("{}→{}", self.vertex_name(ends.from), self.vertex_name(ends.to))
    }

    /// How a vertex is called: `n4/g3`, `t2`.
    #[must_use]
    pub fn vertex_name(&self, vertex: VertexId) -> String {
        match self.gpu(vertex) {
            Some(gpu) => gpu.to_string(),
            None => match self.tors.binary_search(&vertex) {
                Ok(tor) => TorId::from_index(tor).to_string(),
                Err(_) => format!("switch {}", vertex.0),
            },
        }
    }

    /// What decides whether a link carries light.
    #[must_use]
    pub fn carrier(&self, link: LinkId) -> Carrier {
        self.carriers.get(link.index() / 2).copied().unwrap_or(Carrier::Always)
    }

    /// The links, both directions, that go dark when `target` does.
    #[must_use]
    pub fn links_of_target(
        &self,
        fabric: &Fabric,
        network: &Network,
        target: Target,
    ) -> Vec<LinkId> {
        let around =
            |vertex: VertexId| network.outgoing(vertex).iter().copied().flat_map(both_ways);
        let of_node = |node: NodeId| {
            (0..self.gpus_per_node).flat_map(move |gpu| around(self.vertex(GpuId { node, gpu })))
        };
        let paths = [Path::External1, Path::External2, Path::Loopback];
        match target {
            Target::Part(Part::Node(node)) => of_node(node).collect(),
            Target::Part(Part::Bundle(bundle)) => {
                paths.iter().flat_map(|path| self.links_of(fabric, bundle, *path)).collect()
            }
            Target::Part(Part::Fibre(port)) => self.links_of(fabric, port.bundle, port.selects()),
            Target::Gpu(gpu) => around(self.vertex(gpu)).collect(),
            Target::Nic(gpu) => around(self.vertex(gpu))
                .filter(|link| network.link(*link).spec.plane == DCN)
                .collect(),
            Target::Tor(tor) => around(self.tors[tor.index()]).collect(),
            Target::Rack(tor) => nodes_under(fabric, tor)
                .flat_map(of_node)
                .chain(around(self.tors[tor.index()]))
                .collect(),
            Target::Part(Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_))
            | Target::AnyNode
            | Target::Control => Vec::new(),
        }
    }
}

fn both_ways(link: LinkId) -> [LinkId; 2] {
    [link, link.reverse()]
}

fn aggregate(
    builder: &mut NetworkBuilder,
    tors: &[VertexId],
    uplinks: u32,
    link: LinkSpec,
) -> Vec<VertexId> {
    let aggregations: Vec<VertexId> = (0..uplinks).map(|_| builder.add(Role::Switch)).collect();
    for tor in tors {
        for aggregation in &aggregations {
            builder.connect(*tor, *aggregation, link);
        }
    }
    aggregations
}
