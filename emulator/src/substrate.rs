// SPDX-License-Identifier: Apache-2.0
//! Network of a run: vertices, links, and each part's links, which faults look up by name, in any kind of fabric.

mod circuits;
mod machine;
mod members;
mod part;
mod rings;
mod shape;
mod switches;

use std::ops::Range;

use lightloom_engine::topology::Grid;
use lightloom_engine::{LinkId, Network, Plane, Route, VertexId};

pub use circuits::OpticalCircuits;
pub(crate) use circuits::{Lane, LaneHop};
pub use machine::{Domains, of_machine};
pub(crate) use members::Members;
pub use part::{AnyPart, NetworkPart, NoSuchPart, OpticalPort};
pub use rings::{Carrier, RingCables, of_fabric};
pub use shape::{CableGraph, Shape, of_shape};
pub use switches::PacketSwitches;

/// The plane of the GPU rings.
pub const HBD: Plane = Plane(0);
/// The plane of the data-centre network.
pub const DCN: Plane = Plane(1);
/// The plane of circuits between leaves.
pub const OPTICAL: Plane = Plane(2);

/// A network whose parts can be looked up by name.
#[derive(Clone, Debug)]
pub struct Substrate {
    /// The graph.
    pub network: Network,
    /// Hosts of workloads, in rank order.
    pub hosts: Vec<VertexId>,
    /// Number of consecutive hosts per server; 1 without servers.
    pub hosts_per_server: usize,
    /// Route of workload flows.
    pub route: Route,
    /// Cables through each static optical switch.
    pub patched: Vec<Vec<LinkId>>,
    /// Grid of the hosts, if any.
    pub grid: Option<Grid>,
    /// Domains of a machine that runs a single step.
    pub domains: Option<Domains>,
    /// Cables of GPU rings.
    pub rings: Option<RingCables>,
    /// Circuits between leaves that a plan can set up.
    pub circuits: Option<OpticalCircuits>,
    names: Vec<String>,
    places: Vec<Option<u32>>,
    classes: Vec<u8>,
    class_names: &'static [&'static str],
}

impl Substrate {
    fn plain(network: Network, hosts: Vec<VertexId>) -> Self {
        let mut places = vec![None; network.vertex_count()];
        for (place, host) in (0..).zip(&hosts) {
            places[host.index()] = Some(place);
        }
        let names = shape::numbered(&places);
        let (classes, class_names) = shape::classes_by_role(&network);
        Self {
            route: Route::Shortest,
            hosts_per_server: 1,
            patched: Vec::new(),
            domains: None,
            rings: None,
            circuits: None,
            grid: None,
            network,
            hosts,
            names,
            places,
            classes,
            class_names,
        }
    }

    /// Returns the name of a vertex, such as `h3`, `n4/g2` or `t7`.
    pub fn name(&self, vertex: VertexId) -> &str {
        &self.names[vertex.index()]
    }

    /// Returns the link from a host to its leaf, if any.
    pub fn link_to_leaf(&self, host: VertexId) -> Option<LinkId> {
        let mut links = self.network.outgoing(host).iter().copied();
        links.find(|link| self.network.link(*link).spec.plane == DCN)
    }

    /// Returns the switched domain of a host, if any.
    pub fn domain_of(&self, host: VertexId) -> Option<u32> {
        match (&self.domains, &self.rings) {
            (Some(domains), _) => domains.domain(self.place_of(host)?),
            (None, Some(rings)) => rings.island_of(host),
            (None, None) => None,
        }
    }

    /// Looks up a vertex by name.
    pub fn vertex(&self, name: &str) -> Option<VertexId> {
        self.names.iter().position(|known| known == name).map(VertexId::from_index)
    }

    /// Returns the host indices for the name of a host or of a whole node: `h3`, `n4/g2` or `n4`.
    pub fn stretch(&self, name: &str) -> Option<Range<usize>> {
        let first = format!("{name}/g0");
        let [host, first] =
            [name, &first].map(|name| Some(self.place_of(self.vertex(name)?)? as usize));
        let node = first.map(|first| first..first + self.hosts_per_server);
        host.map(|place| place..place + 1).or(node)
    }

    /// Returns whether the network has switches.
    pub fn has_switches(&self) -> bool {
        self.places.iter().any(Option::is_none)
    }

    /// Returns the host index of a vertex, or `None` for a switch.
    pub fn place_of(&self, vertex: VertexId) -> Option<u32> {
        self.places[vertex.index()]
    }

    /// Returns the name of a link, such as `h3→s0` or `leaf3→leaf7 ocs2:14-15`.
    pub fn link_name(&self, link: LinkId) -> String {
        let ends = self.network.link(link);
        let name = format!("{}→{}", self.name(ends.from), self.name(ends.to));
        match self.circuits.as_ref().and_then(|circuits| circuits.circuit_of(link)) {
            Some(circuit) => {
                format!("{name} {}:{}-{}", circuit.ocs, circuit.a_port, circuit.b_port)
            }
            None => name,
        }
    }

    /// Returns the class of each link, as an index into [`class_names`](Self::class_names).
    pub fn classes(&self) -> &[u8] {
        &self.classes
    }

    /// Returns the names of the link classes.
    pub fn class_names(&self) -> &'static [&'static str] {
        self.class_names
    }
}

pub(crate) fn both_ways(link: LinkId) -> [LinkId; 2] {
    [link, link.reverse()]
}
