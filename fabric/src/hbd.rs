// SPDX-License-Identifier: Apache-2.0
//! The high-bandwidth domain (HBD) connects GPUs alongside the data-centre network.
//!
//! [`Hbd`] hides the differences between designs from callers. A design without transceivers also
//! lacks bundles (K = 0) and fibres. A design without a line orders its nodes by number.

use crate::khop::{Fibre, Hop, KhopRing, Port, Position, Shape};
use lightloom_units::id::{GpuId, NodeId};

/// A high-bandwidth domain.
#[derive(Clone, Debug, PartialEq)]
pub enum Hbd {
    /// A line of nodes, each cabled to neighbours up to K places away. Groups are rings.
    Khop(KhopRing),
    /// Islands of nodes, with all-to-all connectivity between the GPUs of an island.
    Islands(Islands),
}

/// Islands of equal size, such as switch domains, torus cubes, or single nodes without a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Islands {
    /// Design name in text output.
    pub name: &'static str,
    /// Number of nodes.
    pub nodes: u32,
    /// GPUs per node.
    pub gpus_per_node: u8,
    /// Nodes per island (the last may be smaller); 0 if GPUs have only their network cards.
    pub nodes_per_island: u32,
}

/// Constraint on the placement of a GPU group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// The group must be on consecutive parts of the line, within fibre reach.
    Line,
    /// The group must be within one island.
    Island {
        /// Nodes per island.
        nodes: u32,
    },
    /// The group can be anywhere, because it communicates over the network.
    Anywhere,
}

impl Hbd {
    /// Returns the design name for text output.
    pub fn name(&self) -> String {
        match self {
            Self::Khop(ring) => {
                let shape = match ring.shape() {
                    Shape::Ring => "ring",
                    Shape::Line => "line",
                };
                format!("k-hop {shape}, k = {}", ring.k())
            }
            Self::Islands(islands) if islands.nodes_per_island == 0 => islands.name.to_owned(),
            Self::Islands(islands) => {
                let gpus = islands.nodes_per_island * u32::from(islands.gpus_per_node);
                format!("{} of {gpus} GPUs", islands.name)
            }
        }
    }

    /// Returns the placement constraint for groups.
    pub fn grouping(&self) -> Grouping {
        match self {
            Self::Khop(_) => Grouping::Line,
            Self::Islands(Islands { nodes_per_island: 0, .. }) => Grouping::Anywhere,
            Self::Islands(islands) => Grouping::Island { nodes: islands.nodes_per_island },
        }
    }

    /// Returns the ring or island of `gpu`, a member of `group`, or `None` if the design has no
    /// domain. Traffic between GPUs with the same value does not use the data-centre network.
    pub fn island_of(&self, gpu: GpuId, group: u32) -> Option<u32> {
        match self {
            Self::Khop(_) => Some(group),
            Self::Islands(Islands { nodes_per_island: 0, .. }) => None,
            Self::Islands(islands) => Some(gpu.node.0 / islands.nodes_per_island),
        }
    }

    /// Returns the number of GPUs in the largest possible group.
    pub fn largest_group(&self) -> u64 {
        match self {
            Self::Islands(Islands { nodes_per_island, gpus_per_node, .. })
                if *nodes_per_island > 0 =>
            {
                u64::from(*nodes_per_island) * u64::from(*gpus_per_node)
            }
            _ => self.gpus(),
        }
    }

    /// Returns the cabling of a k-hop design, or `None` for islands.
    pub fn ring(&self) -> Option<&KhopRing> {
        match self {
            Self::Khop(ring) => Some(ring),
            Self::Islands(_) => None,
        }
    }

    /// Returns the number of nodes (N).
    pub fn nodes(&self) -> u32 {
        match self {
            Self::Khop(ring) => ring.nodes(),
            Self::Islands(islands) => islands.nodes,
        }
    }
    /// Returns the GPUs per node (R).
    pub fn gpus_per_node(&self) -> u8 {
        match self {
            Self::Khop(ring) => ring.gpus_per_node(),
            Self::Islands(islands) => islands.gpus_per_node,
        }
    }
    /// Returns the number of GPUs.
    pub fn gpus(&self) -> u64 {
        u64::from(self.nodes()) * u64::from(self.gpus_per_node())
    }
    /// Returns the number of transceiver bundles per node (K), or 0 for designs without transceivers.
    pub fn k(&self) -> u8 {
        self.ring().map_or(0, KhopRing::k)
    }
    /// Returns the shape of the line, or `Line` for islands.
    pub fn shape(&self) -> Shape {
        self.ring().map_or(Shape::Line, KhopRing::shape)
    }
    /// Returns whether every fibre of the design is installed.
    pub fn is_fully_cabled(&self) -> bool {
        self.ring().is_none_or(KhopRing::is_fully_cabled)
    }
    /// Returns the node at `position` on the line.
    pub fn node_at(&self, position: Position) -> NodeId {
        self.ring().map_or(NodeId(position.0), |ring| ring.node_at(position))
    }
    /// Returns the position of `node` on the line.
    pub fn position_of(&self, node: NodeId) -> Position {
        self.ring().map_or(Position(node.0), |ring| ring.position_of(node))
    }
    /// Returns the position `hop` places away, or `None` beyond the end of the line.
    pub fn neighbour(&self, position: Position, hop: Hop) -> Option<Position> {
        self.ring()?.neighbour(position, hop)
    }
    /// Returns the installed fibre that leaves `position` over `hop`.
    pub fn fibre(&self, position: Position, hop: Hop) -> Option<Fibre> {
        self.ring()?.fibre(position, hop)
    }
    /// Returns the port at the far end of the fibre in `port`, or `None` if no fibre is installed.
    pub fn peer(&self, port: Port) -> Option<Port> {
        self.ring()?.peer(port)
    }
    /// Returns the port of `node` that carries `hop`. Panics if the design has no fibres.
    pub fn port(&self, node: NodeId, hop: Hop) -> Port {
        self.ring().expect("a hop is over a fibre").port(node, hop)
    }
    /// Returns the two ports of a fibre, lower end first. Panics on an unknown fibre.
    pub fn ports(&self, fibre: Fibre) -> (Port, Port) {
        self.ring().expect("the fibre is part of this domain").ports(fibre)
    }
    /// Returns all installed fibres, ordered by lower end and then by length.
    pub fn fibres(&self) -> impl Iterator<Item = Fibre> + '_ {
        self.ring().into_iter().flat_map(KhopRing::fibres)
    }
    /// Returns the edge that `bundle` implements in the node's GPU ring.
    pub fn ring_edge(&self, bundle: u8) -> u8 {
        self.ring().map_or(bundle, |ring| ring.ring_edge(bundle))
    }
    /// Returns the bundle on edge `edge` of the node's GPU ring, or `None` if the edge is copper.
    pub fn bundle_on_edge(&self, edge: u8) -> Option<u8> {
        self.ring()?.bundle_on_edge(edge)
    }
}

impl From<KhopRing> for Hbd {
    fn from(ring: KhopRing) -> Self {
        Self::Khop(ring)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_without_transceivers_has_no_bundles_or_fibres() {
        let islands =
            Islands { name: "switch domain", nodes: 8, gpus_per_node: 4, nodes_per_island: 2 };
        let hbd = Hbd::Islands(islands);
        assert_eq!((hbd.k(), hbd.gpus(), hbd.fibres().count()), (0, 32, 0));
        let island = |node| hbd.island_of(GpuId { node: NodeId(node), gpu: 0 }, 9);
        assert!(island(2) == island(3) && island(1) != island(2));
        assert_eq!(hbd.name(), "switch domain of 8 GPUs");
    }
}
