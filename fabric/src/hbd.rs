// SPDX-License-Identifier: Apache-2.0
//! The high-bandwidth domain: which GPUs are joined by more than the data-centre network.
//!
//! One type answers for every design, so that nothing outside this room asks which one it is. A design
//! without transceivers simply has no bundles (K = 0) and no fibres; one without a line of nodes has its
//! nodes in the order of their numbers.

use crate::khop::{Fibre, Hop, KhopRing, Port, Position, Shape};
use lightloom_units::id::{GpuId, NodeId};

/// A high-bandwidth domain of any design.
#[derive(Clone, Debug, PartialEq)]
pub enum Hbd {
    /// Nodes in a line, cabled to their neighbours up to K places away, whose groups are rings.
    Khop(KhopRing),
    /// Islands of nodes; every GPU of an island reaches every other at once.
    Islands(Islands),
}

/// Equal islands of nodes: a switch domain, a torus cube, or a single node where there is nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Islands {
    /// What the design is called, for people.
    pub name: &'static str,
    /// Nodes installed.
    pub nodes: u32,
    /// GPUs of a node.
    pub gpus_per_node: u8,
    /// Nodes of one island; the last may be smaller. 0: no island, GPUs have only their network cards.
    pub nodes_per_island: u32,
}

/// Where a group of GPUs may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Along the line of nodes, as far as fibres reach.
    Line,
    /// Within one island of so many nodes.
    Island {
        /// Nodes of an island.
        nodes: u32,
    },
    /// Anywhere: the network carries what its GPUs exchange.
    Anywhere,
}

impl Hbd {
    /// What the design is called, for people.
    #[must_use]
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

    /// Where its groups may be.
    #[must_use]
    pub fn grouping(&self) -> Grouping {
        match self {
            Self::Khop(_) => Grouping::Line,
            Self::Islands(Islands { nodes_per_island: 0, .. }) => Grouping::Anywhere,
            Self::Islands(islands) => Grouping::Island { nodes: islands.nodes_per_island },
        }
    }

    /// The ring or island of `gpu` in group `group`: what two GPUs of one exchange never reaches the
    /// data-centre network. `None` where there is no domain.
    #[must_use]
    pub fn island_of(&self, gpu: GpuId, group: u32) -> Option<u32> {
        match self {
            Self::Khop(_) => Some(group),
            Self::Islands(Islands { nodes_per_island: 0, .. }) => None,
            Self::Islands(islands) => Some(gpu.node.0 / islands.nodes_per_island),
        }
    }

    /// GPUs of the largest group that it can hold.
    #[must_use]
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

    /// The cabling, where nodes are joined by transceivers with a switch inside.
    #[must_use]
    pub fn ring(&self) -> Option<&KhopRing> {
        match self {
            Self::Khop(ring) => Some(ring),
            Self::Islands(_) => None,
        }
    }

    /// N: nodes installed.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        match self {
            Self::Khop(ring) => ring.nodes(),
            Self::Islands(islands) => islands.nodes,
        }
    }
    /// R: GPUs in a node.
    #[must_use]
    pub fn gpus_per_node(&self) -> u8 {
        match self {
            Self::Khop(ring) => ring.gpus_per_node(),
            Self::Islands(islands) => islands.gpus_per_node,
        }
    }
    /// All GPUs.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        u64::from(self.nodes()) * u64::from(self.gpus_per_node())
    }
    /// K: transceiver bundles of a node; 0 where there are none.
    #[must_use]
    pub fn k(&self) -> u8 {
        self.ring().map_or(0, KhopRing::k)
    }
    /// Ring or line.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.ring().map_or(Shape::Line, KhopRing::shape)
    }
    /// Whether every fibre that the design has was installed.
    #[must_use]
    pub fn is_fully_cabled(&self) -> bool {
        self.ring().is_none_or(KhopRing::is_fully_cabled)
    }
    /// The node at `position` of the line.
    #[must_use]
    pub fn node_at(&self, position: Position) -> NodeId {
        self.ring().map_or(NodeId(position.0), |ring| ring.node_at(position))
    }
    /// Where `node` is in the line.
    #[must_use]
    pub fn position_of(&self, node: NodeId) -> Position {
        self.ring().map_or(Position(node.0), |ring| ring.position_of(node))
    }
    /// The position `hop` places away, where the line reaches that far.
    #[must_use]
    pub fn neighbour(&self, position: Position, hop: Hop) -> Option<Position> {
        self.ring()?.neighbour(position, hop)
    }
    /// The fibre that leaves `position` over `hop`, where one is installed.
    #[must_use]
    pub fn fibre(&self, position: Position, hop: Hop) -> Option<Fibre> {
        self.ring()?.fibre(position, hop)
    }
    /// The port at the far end of the fibre plugged into `port`, if there is one.
    #[must_use]
    pub fn peer(&self, port: Port) -> Option<Port> {
        self.ring()?.peer(port)
    }
    /// The port of `node` that carries `hop`.
    ///
    /// # Panics
    /// If the design has no fibres; then it has no hops either.
    #[must_use]
    pub fn port(&self, node: NodeId, hop: Hop) -> Port {
        self.ring().expect("a hop is over a fibre").port(node, hop)
    }
    /// The two ports a fibre joins: the lower end first.
    ///
    /// # Panics
    /// If the fibre is not of this domain.
    #[must_use]
    pub fn ports(&self, fibre: Fibre) -> (Port, Port) {
        self.ring().expect("the fibre is part of this domain").ports(fibre)
    }
    /// Every installed fibre, by lower end, then length.
    pub fn fibres(&self) -> impl Iterator<Item = Fibre> + '_ {
        self.ring().into_iter().flat_map(KhopRing::fibres)
    }
    /// The edge of the node's GPU ring that `bundle` is.
    #[must_use]
    pub fn ring_edge(&self, bundle: u8) -> u8 {
        self.ring().map_or(bundle, |ring| ring.ring_edge(bundle))
    }
    /// The bundle on edge `edge` of the node's GPU ring, or nothing where the edge is copper.
    #[must_use]
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
    fn a_domain_without_transceivers_has_no_bundles_and_no_fibres() {
        let islands =
            Islands { name: "switch domain", nodes: 8, gpus_per_node: 4, nodes_per_island: 2 };
        let hbd = Hbd::Islands(islands);
        assert_eq!((hbd.k(), hbd.gpus(), hbd.fibres().count()), (0, 32, 0));
        let island = |node| hbd.island_of(GpuId { node: NodeId(node), gpu: 0 }, 9);
        assert!(island(2) == island(3) && island(1) != island(2));
        assert_eq!(hbd.name(), "switch domain of 8 GPUs");
    }
}
