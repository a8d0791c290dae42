//! The data-centre network beside the HBD: nodes under leaves, and what joins the leaves.
//!
//! A leaf is a ToR or a rail switch. One type answers for every design, so that nothing outside this room
//! asks which one it is.

use crate::fat_tree::ReconfigurableFatTree;
use crate::fault::FaultSet;
use lightloom_units::id::{GpuId, LeafId, NodeId, TorId};
use lightloom_units::{BitsPerSecond, Picoseconds};

/// A data-centre network of any design.
#[derive(Clone, Debug, PartialEq)]
pub enum Dcn {
    /// ToRs in aggregation domains, switched by packets.
    FatTree(FatTree),
    /// Leaves joined by a thin packet core and by banks of optical switches.
    Reconfigurable {
        /// The leaves and what joins them.
        network: Box<ReconfigurableFatTree>,
        /// Nodes under one leaf.
        nodes_per_leaf: u32,
    },
}

impl Dcn {
    /// What the design is called, for people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::FatTree(tree) if tree.oversubscription > 1 => {
                format!("fat-tree, {}:1", tree.oversubscription)
            }
            Self::FatTree(_) => "fat-tree".to_owned(),
            Self::Reconfigurable { network, .. } => format!(
                "reconfigurable fat-tree: {} leaves, {} optical ports each on {} switches, {} a circuit",
                network.leaves(),
                network.optical_ports(),
                network.switches(),
                network.spec().circuit_rate,
            ),
        }
    }

    /// p: nodes under one leaf, at least 1.
    #[must_use]
    pub fn nodes_per_tor(&self) -> u32 {
        match self {
            Self::FatTree(tree) => tree.nodes_per_tor,
            Self::Reconfigurable { nodes_per_leaf, .. } => *nodes_per_leaf,
        }
    }

    /// Leaves of one aggregation domain, at least 1.
    #[must_use]
    pub fn tors_per_domain(&self) -> u32 {
        match self {
            Self::FatTree(tree) => tree.tors_per_domain,
            Self::Reconfigurable { network, .. } => network.spec().leaves,
        }
    }

    /// The rack of `node`: racks are filled in order.
    #[must_use]
    pub fn tor_of(&self, node: NodeId) -> TorId {
        TorId(node.0 / self.nodes_per_tor())
    }

    /// The leaf that a GPU's network card is plugged into.
    #[must_use]
    pub fn leaf_of(&self, gpu: GpuId) -> LeafId {
        LeafId(self.tor_of(gpu.node).0)
    }

    /// The aggregation domain of `tor`.
    #[must_use]
    pub fn domain_of(&self, tor: TorId) -> u32 {
        tor.0 / self.tors_per_domain()
    }

    /// Racks needed for `nodes` nodes; the last may be partly filled.
    #[must_use]
    pub fn tors(&self, nodes: u32) -> u32 {
        nodes.div_ceil(self.nodes_per_tor())
    }

    /// Leaves there are for `nodes` nodes.
    #[must_use]
    pub fn leaves(&self, nodes: u32) -> u32 {
        match self {
            Self::FatTree(_) => self.tors(nodes),
            Self::Reconfigurable { network, .. } => network.spec().leaves,
        }
    }

    /// Downlink over uplink bandwidth of a leaf's packet uplinks: 1 is non-blocking.
    #[must_use]
    pub fn oversubscription(&self) -> u32 {
        match self {
            Self::FatTree(tree) => tree.oversubscription,
            Self::Reconfigurable { network, .. } => {
                let spec = network.spec();
                let down = f64::from(spec.gpus_per_leaf) * spec.gpu_rate.0 as f64;
                (down / network.electrical_rate().max(1.0)).ceil() as u32
            }
        }
    }

    /// Rate of a GPU's network interface.
    #[must_use]
    pub fn link_rate(&self) -> BitsPerSecond {
        match self {
            Self::FatTree(tree) => tree.link_rate,
            Self::Reconfigurable { network, .. } => network.spec().gpu_rate,
        }
    }

    /// Propagation delay of one cable.
    #[must_use]
    pub fn link_latency(&self) -> Picoseconds {
        match self {
            Self::FatTree(tree) => tree.link_latency,
            Self::Reconfigurable { .. } => FatTree::default().link_latency,
        }
    }

    /// The packet switches as a tree, where packets alone join the leaves.
    #[must_use]
    pub fn packet_tree(&self) -> Option<&FatTree> {
        match self {
            Self::FatTree(tree) => Some(tree),
            Self::Reconfigurable { .. } => None,
        }
    }

    /// The optical switches between leaves, where there are any.
    #[must_use]
    pub fn circuits(&self) -> Option<&ReconfigurableFatTree> {
        match self {
            Self::FatTree(_) => None,
            Self::Reconfigurable { network, .. } => Some(network),
        }
    }

    /// Uplinks of one leaf towards packet switches; 0 where there are none.
    #[must_use]
    pub fn uplinks_of_leaf(&self, gpus_per_node: u8) -> u32 {
        match self {
            Self::FatTree(tree) => {
                let down = tree.nodes_per_tor.saturating_mul(u32::from(gpus_per_node));
                down.div_ceil(tree.oversubscription.max(1))
            }
            Self::Reconfigurable { network, .. } => network.uplinks_of_leaf(),
        }
    }

    /// As [`packet_rate_of_leaf`](Self::packet_rate_of_leaf), with the uplinks that `faults` leave to `leaf`.
    #[must_use]
    pub fn packet_rate_left(&self, leaf: LeafId, gpus_per_node: u8, faults: &FaultSet) -> f64 {
        let uplinks = self.uplinks_of_leaf(gpus_per_node).max(1);
        let left = uplinks.saturating_sub(faults.uplinks_of(leaf));
        self.packet_rate_of_leaf(gpus_per_node) * f64::from(left) / f64::from(uplinks)
    }

    /// What one leaf can send to others, and receive, through packet switches alone, in bit/s.
    #[must_use]
    pub fn packet_rate_of_leaf(&self, gpus_per_node: u8) -> f64 {
        match self {
            Self::FatTree(tree) => {
                let down = f64::from(tree.nodes_per_tor) * f64::from(gpus_per_node);
                let up = (down / f64::from(tree.oversubscription)).ceil();
                up * tree.link_rate.0 as f64
            }
            Self::Reconfigurable { network, .. } => network.electrical_rate(),
        }
    }
}

impl From<FatTree> for Dcn {
    fn from(tree: FatTree) -> Self {
        Self::FatTree(tree)
    }
}

impl Default for Dcn {
    fn default() -> Self {
        Self::FatTree(FatTree::default())
    }
}

/// A fat-tree of two tiers (one aggregation domain) or three.
#[derive(Clone, Debug, PartialEq)]
pub struct FatTree {
    /// p: nodes under one ToR, at least 1.
    pub nodes_per_tor: u32,
    /// ToRs of one aggregation domain, at least 1.
    pub tors_per_domain: u32,
    /// Downlink over uplink bandwidth of a ToR: 1 is non-blocking, 3 is 3:1.
    pub oversubscription: u32,
    /// Rate of a GPU's network interface and of every switch port.
    pub link_rate: BitsPerSecond,
    /// Propagation delay of one cable.
    pub link_latency: Picoseconds,
}

/// How the HBD line runs through the racks.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Slot 0 of every ToR, then slot 1 of every ToR, and so on: neighbours in the line stand under
    /// different ToRs, and the same place of different sub-lines under the same ToR.
    #[default]
    SubLines,
    /// Rack by rack: neighbours in the line stand under the same ToR.
    Sequential,
}

impl Order {
    /// The line order (position → node) of `nodes` nodes with `nodes_per_tor` under a ToR.
    #[must_use]
    pub fn line(self, nodes: u32, nodes_per_tor: u32) -> Vec<NodeId> {
        match self {
            Self::Sequential => (0..nodes).map(NodeId).collect(),
            Self::SubLines => (0..nodes_per_tor)
                .flat_map(|slot| (slot..nodes).step_by(nodes_per_tor as usize))
                .map(NodeId)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_lines_take_one_slot_of_every_tor_in_turn() {
        let line = Order::SubLines.line(7, 3);
        assert_eq!(line.iter().map(|n| n.0).collect::<Vec<_>>(), [0, 3, 6, 1, 4, 2, 5]);
    }
}
