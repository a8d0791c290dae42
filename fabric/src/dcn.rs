//! The data-centre network beside the HBD: nodes under ToRs, ToRs in aggregation domains.

use lightloom_units::id::{NodeId, TorId};
use lightloom_units::{BitsPerSecond, Picoseconds};

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

impl FatTree {
    /// The ToR above `node`: racks are filled in order.
    #[must_use]
    pub fn tor_of(&self, node: NodeId) -> TorId {
        TorId(node.0 / self.nodes_per_tor)
    }
    /// The aggregation domain of `tor`.
    #[must_use]
    pub fn domain_of(&self, tor: TorId) -> u32 {
        tor.0 / self.tors_per_domain
    }
    /// ToRs needed for `nodes` nodes; the last may be partly filled.
    #[must_use]
    pub fn tors(&self, nodes: u32) -> u32 {
        nodes.div_ceil(self.nodes_per_tor)
    }
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
