// SPDX-License-Identifier: Apache-2.0
//! The data-centre network (DCN) connects nodes to leaves, and leaves to each other.
//!
//! A leaf is a ToR or a rail switch. [`Dcn`] hides the differences between designs from callers.

use crate::direct::DirectNetwork;
use crate::fat_tree::ReconfigurableFatTree;
use crate::fault::FaultSet;
use lightloom_units::id::{GpuId, LeafId, NodeId, TorId};
use lightloom_units::{BitsPerSecond, Picoseconds, Text, as_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A data-centre network.
#[derive(Clone, Debug, PartialEq)]
pub enum Dcn {
    /// ToRs in aggregation domains, connected by packet switches.
    FatTree(FatTree),
    /// One leaf per GPU of a node, with packet switches above.
    Rails(Rails),
    /// Directly connected leaves, without switches above them.
    Direct(Box<DirectNetwork>),
    /// Leaves connected by a thin packet core and banks of optical switches.
    Reconfigurable {
        /// Leaves, packet core and optical switches.
        network: Box<ReconfigurableFatTree>,
        /// Nodes per leaf.
        nodes_per_leaf: u32,
    },
}

impl Dcn {
    /// Returns the design name for text output.
    pub fn name(&self) -> String {
        match self {
            Self::FatTree(tree) if tree.oversubscription > 1 => {
                format!("{}, {}:1", tree.design, tree.oversubscription)
            }
            Self::FatTree(tree) => tree.design.to_owned(),
            Self::Rails(rails) => format!(
                "{} rails below each of {} nodes, {} planes, {}:1",
                rails.gpus_per_node, rails.nodes_per_group, rails.planes, rails.oversubscription
            ),
            Self::Direct(network) => network.name(),
            Self::Reconfigurable { network, .. } => format!(
                "reconfigurable fat-tree: {} leaves, {} optical ports each on {} switches, {} per \
                 circuit",
                network.leaves(),
                network.optical_ports(),
                network.switches(),
                network
                    .circuit_rates()
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(" or "),
            ),
        }
    }

    /// Returns the nodes per leaf, at least 1.
    pub fn nodes_per_tor(&self) -> u32 {
        match self {
            Self::FatTree(tree) => tree.nodes_per_tor,
            Self::Rails(rails) => rails.nodes_per_group,
            Self::Direct(network) => network.leaf.nodes,
            Self::Reconfigurable { nodes_per_leaf, .. } => *nodes_per_leaf,
        }
    }

    /// Returns the leaves per aggregation domain, at least 1.
    pub fn tors_per_domain(&self) -> u32 {
        match self {
            Self::FatTree(tree) => tree.tors_per_domain,
            // The switches above the rails connect all node groups.
            Self::Rails(rails) => (u32::MAX / rails.nodes_per_group.max(1)).max(1),
            Self::Direct(network) => network.leaves(),
            Self::Reconfigurable { network, .. } => network.spec().leaves,
        }
    }

    /// Returns the rack of `node`. Racks are filled in order.
    pub fn tor_of(&self, node: NodeId) -> TorId {
        TorId(node.0 / self.nodes_per_tor())
    }

    /// Returns the leaf that a GPU's network card is connected to.
    pub fn leaf_of(&self, gpu: GpuId) -> LeafId {
        let group = self.tor_of(gpu.node).0;
        match self {
            Self::Rails(rails) => {
                LeafId(group * u32::from(rails.gpus_per_node) + u32::from(gpu.gpu))
            }
            Self::FatTree(_) | Self::Direct(_) | Self::Reconfigurable { .. } => LeafId(group),
        }
    }

    /// Returns the aggregation domain of `tor`.
    pub fn domain_of(&self, tor: TorId) -> u32 {
        tor.0 / self.tors_per_domain()
    }

    /// Returns the number of GPUs with a port at each leaf, at least 1.
    pub fn gpus_per_leaf(&self, gpus_per_node: u8) -> u64 {
        let per_node = if matches!(self, Self::Rails(_)) { 1 } else { gpus_per_node };
        (u64::from(self.nodes_per_tor()) * u64::from(per_node)).max(1)
    }

    /// Returns the number of racks for `nodes` nodes. The last one may be partly filled.
    pub fn tors(&self, nodes: u32) -> u32 {
        nodes.div_ceil(self.nodes_per_tor())
    }

    /// Returns the number of leaves in a network with `nodes` nodes.
    pub fn leaves(&self, nodes: u32) -> u32 {
        match self {
            Self::FatTree(_) => self.tors(nodes),
            Self::Rails(rails) => self.tors(nodes) * u32::from(rails.gpus_per_node),
            Self::Direct(network) => network.leaves(),
            Self::Reconfigurable { network, .. } => network.spec().leaves,
        }
    }

    /// Returns a leaf's ratio of downlink to packet uplink bandwidth; 1 is non-blocking.
    pub fn oversubscription(&self) -> u32 {
        match self {
            Self::FatTree(tree) => tree.oversubscription,
            Self::Rails(rails) => rails.oversubscription,
            Self::Direct(network) => {
                let up = self.packet_rate_of_leaf(network.leaf.gpus_per_node).max(1.0);
                (network.interface_rate() / up).ceil() as u32
            }
            Self::Reconfigurable { network, .. } => {
                let spec = network.spec();
                let down = f64::from(spec.gpus_per_leaf) * spec.gpu_rate.0 as f64;
                (down / network.electrical_rate().max(1.0)).ceil() as u32
            }
        }
    }

    /// Returns the rate of a packet switch port.
    pub fn port_rate(&self) -> BitsPerSecond {
        match self {
            Self::FatTree(tree) => tree.link_rate,
            Self::Rails(rails) => rails.link_rate,
            Self::Direct(_) | Self::Reconfigurable { .. } => self.link_rate(),
        }
    }

    /// Returns a domain's rate to other domains in bit/s, or `None` if it never limits the ToRs.
    pub fn rate_of_domain(&self, gpus_per_node: u8) -> Option<f64> {
        let tree = self.packet_tree().filter(|tree| tree.core_oversubscription > 1)?;
        let cores = tree.cores_of_plane();
        let uplinks = f64::from(self.uplinks_of_leaf(gpus_per_node));
        Some(uplinks * f64::from(cores) * tree.link_rate.0 as f64)
    }

    /// Returns the combined rate of a GPU's network interfaces.
    pub fn link_rate(&self) -> BitsPerSecond {
        match self {
            Self::FatTree(tree) => {
                BitsPerSecond(tree.link_rate.0.saturating_mul(u64::from(tree.nics_per_gpu)))
            }
            Self::Rails(rails) => {
                BitsPerSecond(rails.link_rate.0.saturating_mul(u64::from(rails.planes)))
            }
            Self::Direct(network) => network.leaf.link_rate,
            Self::Reconfigurable { network, .. } => network.spec().gpu_rate,
        }
    }

    /// Returns the propagation delay of one cable.
    pub fn link_latency(&self) -> Picoseconds {
        match self {
            Self::FatTree(tree) => tree.link_latency,
            Self::Rails(rails) => rails.link_latency,
            Self::Direct(network) => network.leaf.link_latency,
            Self::Reconfigurable { .. } => FatTree::default().link_latency,
        }
    }

    /// Returns the tree of packet switches if the network is a plain fat-tree.
    pub fn packet_tree(&self) -> Option<&FatTree> {
        match self {
            Self::FatTree(tree) => Some(tree),
            Self::Rails(_) | Self::Direct(_) | Self::Reconfigurable { .. } => None,
        }
    }

    /// Returns the cables between leaves if the leaves are directly connected.
    pub fn direct(&self) -> Option<&DirectNetwork> {
        match self {
            Self::Direct(network) => Some(network),
            Self::FatTree(_) | Self::Rails(_) | Self::Reconfigurable { .. } => None,
        }
    }

    /// Returns the optical switches between leaves, if there are any.
    pub fn circuits(&self) -> Option<&ReconfigurableFatTree> {
        match self {
            Self::FatTree(_) | Self::Rails(_) | Self::Direct(_) => None,
            Self::Reconfigurable { network, .. } => Some(network),
        }
    }

    /// Returns the number of uplinks from `leaf` to packet switches or to other leaves.
    pub fn uplinks_at(&self, leaf: LeafId, gpus_per_node: u8) -> u32 {
        match self {
            Self::Direct(network) => network.cables_of(leaf),
            Self::Reconfigurable { network, .. } => network.uplinks_of(leaf),
            Self::FatTree(_) | Self::Rails(_) => self.uplinks_of_leaf(gpus_per_node),
        }
    }

    /// Returns the number of uplinks per leaf, or the largest number of cables from a leaf to others.
    pub fn uplinks_of_leaf(&self, gpus_per_node: u8) -> u32 {
        match self {
            Self::FatTree(tree) => {
                let down = tree.nodes_per_tor.saturating_mul(u32::from(gpus_per_node));
                let down = down.saturating_mul(tree.nics_per_gpu);
                down.div_ceil(tree.oversubscription.max(1))
            }
            Self::Rails(rails) => {
                let down = rails.nodes_per_group.saturating_mul(rails.planes);
                down.div_ceil(rails.oversubscription.max(1))
            }
            Self::Direct(network) => network.most_cables(),
            Self::Reconfigurable { network, .. } => {
                let leaves = (0..network.spec().leaves).map(LeafId);
                leaves.map(|leaf| network.uplinks_of(leaf)).max().unwrap_or(0)
            }
        }
    }

    /// Returns the [`packet_rate_of_leaf`](Self::packet_rate_of_leaf) over the working uplinks.
    pub fn packet_rate_left(&self, leaf: LeafId, gpus_per_node: u8, faults: &FaultSet) -> f64 {
        if let Some(network) = self.direct() {
            let working = network.working(faults);
            let own = working.iter().filter(|(cable, _)| [cable.a, cable.b].contains(&leaf));
            let cables: u32 = own.map(|(_, count)| count).sum();
            return f64::from(cables) * network.leaf.link_rate.0 as f64;
        }
        let uplinks = self.uplinks_at(leaf, gpus_per_node).max(1);
        let left = uplinks.saturating_sub(faults.uplinks_of(leaf));
        let whole = match self.circuits() {
            Some(network) => network.electrical_rate_of(leaf),
            None => self.packet_rate_of_leaf(gpus_per_node),
        };
        whole * f64::from(left) / f64::from(uplinks)
    }

    /// Returns the rate of a leaf through packet switches in bit/s, or the mean if leaves differ.
    pub fn packet_rate_of_leaf(&self, gpus_per_node: u8) -> f64 {
        match self {
            Self::FatTree(tree) => {
                f64::from(self.uplinks_of_leaf(gpus_per_node)) * tree.link_rate.0 as f64
            }
            Self::Rails(rails) => {
                f64::from(self.uplinks_of_leaf(gpus_per_node)) * rails.link_rate.0 as f64
            }
            Self::Direct(network) => {
                let ends = 2.0 * network.cables().len() as f64;
                ends / f64::from(network.leaves()) * network.leaf.link_rate.0 as f64
            }
            Self::Reconfigurable { network, .. } => network.electrical_rate(),
        }
    }
}

/// In each plane, GPU i of every node in a group is connected to the group's leaf i.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(
    rename = "RailsFile",
    description = "One leaf per GPU of a node, with packet switches above.",
    example = "{nodes_per_group: 32, planes: 2}"
)]
pub struct Rails {
    /// Nodes per group (nodes with common rail switches).
    #[schemars(range(min = 1, max = 65536))]
    pub nodes_per_group: u32,
    /// GPUs per node, which is also the number of rails per group.
    #[serde(skip)]
    pub gpus_per_node: u8,
    /// Planes. Each GPU has one port per plane, and each plane has separate rail switches.
    #[schemars(range(min = 1, max = 64))]
    pub planes: u32,
    /// Ratio of downlink to uplink bandwidth of a rail switch; 1 is non-blocking.
    #[schemars(range(min = 1, max = 64))]
    pub oversubscription: u32,
    /// Rate of one GPU port and of every switch port.
    #[serde(with = "as_text")]
    #[schemars(with = "Text<BitsPerSecond>")]
    pub link_rate: BitsPerSecond,
    /// Propagation delay of one cable.
    #[serde(with = "as_text")]
    #[schemars(with = "Text<Picoseconds>")]
    pub link_latency: Picoseconds,
}

impl Default for Rails {
    fn default() -> Self {
        let FatTree { oversubscription, link_rate, link_latency, .. } = FatTree::default();
        let (nodes_per_group, gpus_per_node, planes) = (32, 1, 1);
        Self { nodes_per_group, gpus_per_node, planes, oversubscription, link_rate, link_latency }
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

/// A fat-tree with two tiers (one aggregation domain) or three tiers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(
    rename = "FatTreeFile",
    description = "Nodes under ToRs, and ToRs in aggregation domains.",
    example = "{nodes_per_tor: 4}"
)]
pub struct FatTree {
    /// Design name. It is leaf-spine if the file declares a two-tier tree as such.
    #[serde(skip)]
    pub design: &'static str,
    /// Nodes per ToR.
    #[schemars(range(min = 1, max = 65536))]
    pub nodes_per_tor: u32,
    /// ToRs per aggregation domain.
    #[schemars(range(min = 1, max = 65536))]
    pub tors_per_domain: u32,
    /// Ratio of downlink to uplink bandwidth of a ToR: 1 is non-blocking, 3 is 3:1.
    #[schemars(range(min = 1, max = 64))]
    pub oversubscription: u32,
    /// Ratio of downlink to uplink bandwidth of the aggregation switches, between domains.
    #[schemars(range(min = 1, max = 64))]
    pub core_oversubscription: u32,
    /// Network interfaces per GPU, each at `link_rate`.
    #[schemars(range(min = 1, max = 16))]
    pub nics_per_gpu: u32,
    /// Rate of a GPU's network interface and of every switch port.
    #[serde(with = "as_text")]
    #[schemars(with = "Text<BitsPerSecond>")]
    pub link_rate: BitsPerSecond,
    /// Propagation delay of one cable.
    #[serde(with = "as_text")]
    #[schemars(with = "Text<Picoseconds>")]
    pub link_latency: Picoseconds,
}

impl FatTree {
    /// Returns the number of core switches connected to one aggregation switch in each domain.
    pub fn cores_of_plane(&self) -> u32 {
        self.tors_per_domain.div_ceil(self.core_oversubscription.max(1))
    }
}

/// Order of the HBD line through the racks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Slot 0 of all ToRs, then slot 1 of all ToRs, and so on. Neighbours in the line are under
    /// different ToRs, and equal positions in all sub-lines are under the same ToR.
    #[default]
    SubLines,
    /// Rack by rack. Neighbours in the line are under the same ToR.
    Sequential,
}

impl Order {
    /// Returns the line order of `nodes` nodes, as a map from position to node.
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
    fn equal_gpu_indices_of_a_group_share_a_rail() {
        let rails = Dcn::Rails(Rails {
            nodes_per_group: 8,
            gpus_per_node: 4,
            planes: 2,
            oversubscription: 2,
            link_rate: BitsPerSecond::from_gbps(400),
            link_latency: Picoseconds::from_micros(1),
        });
        let leaf = |node, gpu| rails.leaf_of(GpuId { node: NodeId(node), gpu }).0;
        assert_eq!((leaf(0, 1), leaf(7, 1), leaf(7, 2), leaf(8, 1)), (1, 1, 2, 5));
        assert_eq!(rails.leaves(20), 12);
        assert_eq!(rails.link_rate(), BitsPerSecond::from_gbps(800));
        assert!((rails.packet_rate_of_leaf(4) - 8.0 * 400e9).abs() < 1.0);
    }

    #[test]
    fn sub_lines_take_one_slot_of_every_tor_at_a_time() {
        let line = Order::SubLines.line(7, 3);
        assert_eq!(line.iter().map(|n| n.0).collect::<Vec<_>>(), [0, 3, 6, 1, 4, 2, 5]);
    }
}
