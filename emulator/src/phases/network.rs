//! The engine's network for a reconfigurable fat-tree: every circuit that a plan ever makes, lit or not.
//!
//! ```text
//!   hosts of leaf i ══ leaf i ── circuits, one link each ── leaf j ══ hosts of leaf j
//!                         └────── electrical core ──────────┘
//! ```
//!
//! The GPUs below a leaf are one host with their joint rate, and the core is one switch with what a leaf
//! may send and receive: the model of the planner, so that what differs between the two is what
//! packets do. A circuit is a link of the circuit's own rate from leaf to leaf, not the electrical
//! path with a delay.

use std::collections::BTreeMap;

use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, Bytes, Picoseconds};

use lightloom_engine::{
    LinkId, LinkSpec, Network, NetworkBuilder, NetworkError, Plane, Role, VertexId,
};

/// The packet network that is always there.
const ELECTRICAL: Plane = Plane(0);
/// The circuits.
const OPTICAL: Plane = Plane(1);

/// From a host's interface to its leaf, the leaf's own latency included. An assumption.
const HOST_DELAY: Picoseconds = Picoseconds::from_nanos(500);
/// From leaf to leaf through an optical switch, and from leaf to core: 100 m of fibre and a switch's
/// latency. An assumption.
const FIBRE_DELAY: Picoseconds = Picoseconds::from_micros(1);

/// The way of a flow between two leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Over one circuit.
    Circuit(CrossConnect),
    /// Over the electrical core.
    Core,
}

/// A network with the meaning of its links.
#[derive(Debug)]
pub(super) struct Installed {
    /// By leaf: its hosts.
    hosts: Vec<VertexId>,
    /// By leaf: from its hosts up.
    interfaces: Vec<LinkId>,
    /// By leaf: into the core; none where there is no core.
    uplinks: Vec<LinkId>,
    /// By circuit: from leaf `a` to leaf `b`.
    circuits: BTreeMap<CrossConnect, LinkId>,
}

impl Installed {
    /// Builds the network for every circuit that some phase has.
    ///
    /// # Errors
    /// If a rate of the fabric cannot be emulated.
    pub(super) fn build<'c>(
        fabric: &ReconfigurableFatTree,
        mark_from: Bytes,
        circuits: impl Iterator<Item = &'c CrossConnect>,
    ) -> Result<(Network, Self), NetworkError> {
        let mut builder = NetworkBuilder::new();
        let link = |rate: f64, delay, plane| {
            LinkSpec {
                mark_from: Some(mark_from),
                ..LinkSpec::new(BitsPerSecond(rate as u64), delay)
            }
            .in_plane(plane)
        };
        let interface = link(fabric.host_rate(), HOST_DELAY, ELECTRICAL);
        let (mut hosts, mut leaves, mut interfaces) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..fabric.leaves() {
            let (host, leaf) = (builder.add(Role::Host), builder.add(Role::Switch));
            interfaces.push(builder.connect(host, leaf, interface));
            hosts.push(host);
            leaves.push(leaf);
        }
        let mut uplinks = Vec::new();
        if fabric.electrical_rate() > 0.0 {
            let core = builder.add(Role::Switch);
            let uplink = link(fabric.electrical_rate(), FIBRE_DELAY, ELECTRICAL);
            uplinks = leaves.iter().map(|leaf| builder.connect(*leaf, core, uplink)).collect();
        }
        let circuit = link(fabric.spec().circuit_rate.0 as f64, FIBRE_DELAY, OPTICAL);
        let mut links = BTreeMap::new();
        for cross in circuits {
            links.entry(*cross).or_insert_with(|| {
                builder.connect(leaves[cross.a.index()], leaves[cross.b.index()], circuit)
            });
        }
        let installed = Self { hosts, interfaces, uplinks, circuits: links };
        Ok((builder.build()?, installed))
    }

    /// The hosts of a leaf.
    pub(super) fn host(&self, leaf: usize) -> VertexId {
        self.hosts[leaf]
    }

    /// Both directions between a leaf and its hosts.
    pub(super) fn interface(&self, leaf: LeafId) -> [LinkId; 2] {
        let up = self.interfaces[leaf.index()];
        [up, up.reverse()]
    }

    /// Whether there is an electrical core.
    pub(super) fn has_core(&self) -> bool {
        !self.uplinks.is_empty()
    }

    /// Both directions of a circuit.
    pub(super) fn links(&self, circuit: &CrossConnect) -> [LinkId; 2] {
        let link = self.circuits[circuit];
        [link, link.reverse()]
    }

    /// Every circuit with a link, whether it is lit or not.
    pub(super) fn circuits(&self) -> impl Iterator<Item = &CrossConnect> {
        self.circuits.keys()
    }

    /// Every link with its name, both directions: `leaf3>core`, `leaf3>leaf7 ocs2:14-15`.
    pub(super) fn named_links(&self) -> impl Iterator<Item = (String, LinkId)> {
        let both = |from: String, to: String, way: String, link: LinkId| {
            [(format!("{from}>{to}{way}"), link), (format!("{to}>{from}{way}"), link.reverse())]
        };
        let leaf = |at| LeafId::from_index(at).to_string();
        let below = self.interfaces.iter().enumerate();
        let below =
            below.flat_map(move |(at, up)| both("gpus".into(), leaf(at), String::new(), *up));
        let above = self.uplinks.iter().enumerate();
        let above =
            above.flat_map(move |(at, up)| both(leaf(at), "core".into(), String::new(), *up));
        let circuits = self.circuits.iter().flat_map(move |(cross, link)| {
            let way = format!(" {}:{}-{}", cross.ocs, cross.a_port, cross.b_port);
            both(cross.a.to_string(), cross.b.to_string(), way, *link)
        });
        below.chain(above).chain(circuits)
    }

    /// The links from the hosts of one leaf to those of another.
    pub(super) fn path(&self, from: usize, to: usize, lane: Lane) -> Vec<LinkId> {
        let (up, down) = (self.interfaces[from], self.interfaces[to].reverse());
        match lane {
            Lane::Core => vec![up, self.uplinks[from], self.uplinks[to].reverse(), down],
            Lane::Circuit(circuit) => {
                let [there, back] = self.links(&circuit);
                vec![up, if circuit.a.index() == from { there } else { back }, down]
            }
        }
    }
}
