// SPDX-License-Identifier: Apache-2.0
//! The leaves of a reconfigurable fat-tree, with their hosts, the packet core and all planned circuits.
//!
//! A single host with the total rate of the leaf's GPUs sends all traffic of the leaf. The core is
//! a single switch with links at the total rate of a leaf's uplinks. The planner uses the same
//! model, so results can differ only because of packet effects.

use std::collections::BTreeMap;

use lightloom_engine::{LinkId, LinkSpec, NetworkBuilder, Plane, VertexId, VertexRole};
use lightloom_fabric::fat_tree::{CrossConnect, ReconfigurableFatTree};
use lightloom_units::id::LeafId;
use lightloom_units::{BitsPerSecond, Picoseconds};

use super::{DCN, OPTICAL, PacketSwitches, both_ways};

const HOST_DELAY: Picoseconds = Picoseconds::from_nanos(500);
/// Assumes 100 m of fibre and the latency of a switch.
const FIBRE_DELAY: Picoseconds = Picoseconds::from_micros(1);

/// Placeholder for leaves without uplinks, in bit/s. No plan uses it.
const NO_RATE: f64 = 1.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneHop {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) lane: Lane,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Circuit(CrossConnect),
    Core,
    Cable(LinkId),
}

/// Leaves with their circuits and other links.
#[derive(Clone, Debug)]
pub struct OpticalCircuits {
    network: ReconfigurableFatTree,
    hosts: Vec<VertexId>,
    leaves: Vec<VertexId>,
    core: Option<VertexId>,
    interfaces: Vec<LinkId>,
    uplinks: Vec<LinkId>,
    circuits: BTreeMap<CrossConnect, LinkId>,
    by_cable: BTreeMap<LinkId, CrossConnect>,
}

fn cable(rate: f64, delay: Picoseconds, plane: Plane, switches: &PacketSwitches) -> LinkSpec {
    switches.on(LinkSpec::new(BitsPerSecond(rate as u64), delay)).in_plane(plane)
}

impl OpticalCircuits {
    pub(super) fn lay(
        network: &ReconfigurableFatTree,
        switches: &PacketSwitches,
        builder: &mut NetworkBuilder,
    ) -> Self {
        let interface = cable(network.host_rate(), HOST_DELAY, DCN, switches);
        let (mut hosts, mut leaves, mut interfaces) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..network.leaves() {
            let (host, leaf) = (builder.add(VertexRole::Host), builder.add(VertexRole::Switch));
            interfaces.push(builder.connect(host, leaf, interface));
            hosts.push(host);
            leaves.push(leaf);
        }
        let core = (network.electrical_rate() > 0.0).then(|| builder.add(VertexRole::Switch));
        let below =
            core.iter().flat_map(|core| leaves.iter().enumerate().map(move |leaf| (leaf, *core)));
        let uplinks = below.map(|((at, leaf), core)| {
            let rate = network.electrical_rate_of(LeafId::from_index(at)).max(NO_RATE);
            builder.connect(*leaf, core, cable(rate, FIBRE_DELAY, DCN, switches))
        });
        let uplinks = uplinks.collect();
        Self {
            network: network.clone(),
            hosts,
            leaves,
            core,
            interfaces,
            uplinks,
            circuits: BTreeMap::new(),
            by_cable: BTreeMap::new(),
        }
    }

    pub(super) fn add_circuits(
        &mut self,
        switches: &PacketSwitches,
        circuits: &[CrossConnect],
        builder: &mut NetworkBuilder,
    ) {
        for circuit in circuits {
            let rate = self.network.circuit_rate_of(circuit.ocs).0 as f64;
            let spec = cable(rate, FIBRE_DELAY, OPTICAL, switches);
            let leaves = &self.leaves;
            let (a, b) = (leaves[circuit.a.index()], leaves[circuit.b.index()]);
            self.circuits.entry(*circuit).or_insert_with(|| builder.connect(a, b, spec));
        }
        self.by_cable = self.circuits.iter().map(|(circuit, link)| (*link, *circuit)).collect();
    }

    /// Returns the fat-tree.
    pub fn network(&self) -> &ReconfigurableFatTree {
        &self.network
    }

    pub(super) fn hosts(&self) -> &[VertexId] {
        &self.hosts
    }

    pub(super) fn leaves(&self) -> &[VertexId] {
        &self.leaves
    }

    /// Returns the single host that represents a leaf.
    pub fn host(&self, leaf: usize) -> VertexId {
        self.hosts[leaf]
    }

    pub(crate) fn interface(&self, leaf: LeafId) -> [LinkId; 2] {
        both_ways(self.interfaces[leaf.index()])
    }

    pub(crate) fn has_core(&self) -> bool {
        !self.uplinks.is_empty()
    }

    pub(crate) fn links(&self, circuit: &CrossConnect) -> [LinkId; 2] {
        both_ways(self.circuits[circuit])
    }

    pub(crate) fn circuits(&self) -> impl Iterator<Item = &CrossConnect> {
        self.circuits.keys()
    }

    pub(super) fn circuit_of(&self, link: LinkId) -> Option<&CrossConnect> {
        self.by_cable.get(&LinkId(link.0 & !1))
    }

    pub(super) fn name(&self, vertex: VertexId) -> Option<String> {
        let host = self.hosts.binary_search(&vertex).ok();
        let host = host.map(|at| format!("{}/gpus", LeafId::from_index(at)));
        let leaf = self.leaves.binary_search(&vertex).ok();
        let leaf = leaf.map(|at| LeafId::from_index(at).to_string());
        host.or(leaf).or_else(|| (self.core == Some(vertex)).then(|| "core".to_owned()))
    }

    pub(crate) fn links_of(&self, hop: &LaneHop) -> Vec<LinkId> {
        match hop.lane {
            Lane::Core => vec![self.uplinks[hop.from], self.uplinks[hop.to].reverse()],
            Lane::Cable(_) => Vec::new(),
            Lane::Circuit(circuit) => {
                let [there, back] = self.links(&circuit);
                vec![if circuit.a.index() == hop.from { there } else { back }]
            }
        }
    }
}
