// SPDX-License-Identifier: Apache-2.0
//! Networks of directly connected leaves, without spine switches.
//!
//! | design | cables |
//! | --- | --- |
//! | dragonfly | between all leaves of a group, and between all groups, distributed round-robin over their leaves |
//! | torus | between neighbours along each closed dimension; a dimension of 2 has one neighbour |
//! | graph | as listed |

use std::collections::{BTreeMap, VecDeque};

use crate::fault::FaultSet;
use lightloom_units::id::{LeafId, UplinkId};
use lightloom_units::{BitsPerSecond, Picoseconds};

/// Maximum number of leaves, limited because routes are computed between all pairs.
pub const MAX_DIRECT_LEAVES: u32 = 2_048;

/// The two ends of a cable between leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafCable {
    /// The leaf with the smaller number.
    pub a: LeafId,
    /// The leaf with the larger number.
    pub b: LeafId,
}

/// A network of directly connected leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectNetwork {
    name: String,
    leaves: u32,
    /// Properties common to all leaves.
    pub leaf: DirectLeaf,
    cables: Vec<LeafCable>,
    of_leaf: Vec<Vec<u32>>,
}

/// Properties common to all leaves of a direct network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectLeaf {
    /// Nodes per leaf, at least 1.
    pub nodes: u32,
    /// GPUs of a node.
    pub gpus_per_node: u8,
    /// Rate of a GPU's network interface and of every cable.
    pub link_rate: BitsPerSecond,
    /// Propagation delay of one cable.
    pub link_latency: Picoseconds,
}

impl DirectNetwork {
    /// Creates a network of `leaves` leaves with the given number of cables per pair.
    pub fn new(
        name: String,
        leaves: u32,
        leaf: DirectLeaf,
        pairs: &BTreeMap<LeafCable, u32>,
    ) -> Self {
        let cables: Vec<LeafCable> =
            pairs.iter().flat_map(|(pair, count)| (0..*count).map(|_| *pair)).collect();
        let mut of_leaf = vec![Vec::new(); leaves as usize];
        for (index, cable) in (0..).zip(&cables) {
            of_leaf[cable.a.index()].push(index);
            of_leaf[cable.b.index()].push(index);
        }
        Self { name, leaves, leaf, cables, of_leaf }
    }

    /// Returns the cables of a dragonfly with `between` cables between any two groups.
    pub fn dragonfly(groups: u32, per_group: u32, between: u32) -> BTreeMap<LeafCable, u32> {
        let mut pairs = BTreeMap::new();
        let mut ports = vec![0_u32; groups as usize];
        let mut next = |group: u32| {
            let port = &mut ports[group as usize];
            *port += 1;
            LeafId(group * per_group + (*port - 1) % per_group)
        };
        for x in 0..groups {
            for y in x + 1..groups {
                for _ in 0..between {
                    *pairs.entry(LeafCable { a: next(x), b: next(y) }).or_insert(0) += 1;
                }
            }
        }
        for group in 0..groups {
            let leaf = |place: u32| LeafId(group * per_group + place);
            for a in 0..per_group {
                for b in a + 1..per_group {
                    *pairs.entry(LeafCable { a: leaf(a), b: leaf(b) }).or_insert(0) += 1;
                }
            }
        }
        pairs
    }

    /// Returns the cables of a torus with these dimensions and `count` cables between neighbours.
    pub fn torus(sides: &[u32], count: u32) -> BTreeMap<LeafCable, u32> {
        let leaves: u32 = sides.iter().product();
        let mut pairs = BTreeMap::new();
        let mut stride = 1;
        for &side in sides {
            for leaf in (0..leaves).filter(|_| side > 1) {
                let place = leaf / stride % side;
                let next = leaf - place * stride + (place + 1) % side * stride;
                let cable = LeafCable { a: LeafId(leaf.min(next)), b: LeafId(leaf.max(next)) };
                pairs.insert(cable, count);
            }
            stride *= side;
        }
        pairs
    }

    /// Returns the design name for text output.
    pub fn name(&self) -> String {
        format!("{} of {} leaves, {} cables", self.name, self.leaves, self.cables.len())
    }
    /// Returns the number of leaves, including leaves without nodes.
    pub fn leaves(&self) -> u32 {
        self.leaves
    }
    /// Returns all cables.
    pub fn cables(&self) -> &[LeafCable] {
        &self.cables
    }
    /// Returns the number of cables of one leaf.
    pub fn cables_of(&self, leaf: LeafId) -> u32 {
        self.of_leaf.get(leaf.index()).map_or(0, |cables| cables.len() as u32)
    }
    /// Returns the largest number of cables at any leaf.
    pub fn most_cables(&self) -> u32 {
        self.of_leaf.iter().map(|cables| cables.len() as u32).max().unwrap_or(0)
    }
    /// Returns the combined send rate of all GPUs under one leaf, in bit/s.
    pub fn interface_rate(&self) -> f64 {
        f64::from(self.leaf.nodes)
            * f64::from(self.leaf.gpus_per_node)
            * self.leaf.link_rate.0 as f64
    }

    /// Returns the cable's name at the lower-numbered leaf, which is unique.
    pub fn lower_end(&self, uplink: UplinkId) -> Option<UplinkId> {
        let cable = *self.of_leaf.get(uplink.leaf.index())?.get(uplink.uplink as usize)?;
        let leaf = self.cables[cable as usize].a;
        let place = self.of_leaf[leaf.index()].iter().position(|other| *other == cable)?;
        Some(UplinkId { leaf, uplink: u32::try_from(place).ok()? })
    }

    /// Returns the number of working cables between each pair of directly connected leaves.
    pub fn working(&self, faults: &FaultSet) -> BTreeMap<LeafCable, u32> {
        let mut pairs = BTreeMap::new();
        for cable in self.cables_left(faults) {
            *pairs.entry(cable).or_insert(0) += 1;
        }
        pairs
    }

    /// Returns all working cables.
    pub fn cables_left(&self, faults: &FaultSet) -> impl Iterator<Item = LeafCable> + '_ {
        let broken = faults.uplinks.iter().filter_map(|uplink| {
            self.of_leaf.get(uplink.leaf.index())?.get(uplink.uplink as usize).copied()
        });
        let broken: std::collections::BTreeSet<u32> = broken.collect();
        let all = (0_u32..).zip(&self.cables);
        all.filter(move |(index, _)| !broken.contains(index)).map(|(_, cable)| *cable)
    }

    /// Returns a leaf that is not connected to leaf 0. `None` if all leaves are connected.
    pub fn cut_off(&self) -> Option<LeafId> {
        let mut seen = vec![false; self.leaves as usize];
        let mut next = VecDeque::from([LeafId(0)]);
        seen[0] = true;
        while let Some(leaf) = next.pop_front() {
            for &cable in &self.of_leaf[leaf.index()] {
                let LeafCable { a, b } = self.cables[cable as usize];
                let other = if a == leaf { b } else { a };
                if !std::mem::replace(&mut seen[other.index()], true) {
                    next.push_back(other);
                }
            }
        }
        seen.iter().position(|seen| !seen).map(LeafId::from_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: DirectLeaf = DirectLeaf {
        nodes: 1,
        gpus_per_node: 4,
        link_rate: BitsPerSecond(400_000_000_000),
        link_latency: Picoseconds(1_000_000),
    };

    #[test]
    fn balanced_dragonfly_joins_every_two_groups_once() {
        let network = DirectNetwork::new("d".into(), 36, LEAF, &DirectNetwork::dragonfly(9, 4, 1));
        assert!((0..36).all(|leaf| network.cables_of(LeafId(leaf)) == 3 + 2));
        assert_eq!(network.cables().len(), 9 * 6 + 36);
        assert_eq!(network.cut_off(), None);
    }

    #[test]
    fn torus_has_two_neighbours_per_side_and_one_on_sides_of_2() {
        let network =
            DirectNetwork::new("t".into(), 24, LEAF, &DirectNetwork::torus(&[4, 3, 2], 2));
        assert!((0..24).all(|leaf| network.cables_of(LeafId(leaf)) == 2 * (2 + 2 + 1)));
        assert_eq!(network.cut_off(), None);
    }

    #[test]
    fn cable_is_one_fault_from_either_end() {
        let network = DirectNetwork::new("t".into(), 4, LEAF, &DirectNetwork::torus(&[4], 1));
        let at = |leaf: u32, uplink: u32| UplinkId { leaf: LeafId(leaf), uplink };
        assert_eq!(network.lower_end(at(1, 0)), Some(at(0, 0)));
        assert_eq!(network.lower_end(at(2, 0)), network.lower_end(at(1, 1)));
        assert_eq!(network.lower_end(at(2, 2)), None);
    }
}
