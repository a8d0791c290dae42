// SPDX-License-Identifier: Apache-2.0
//! Data-parallel traffic between ToRs.

use lightloom_fabric::dcn::Dcn;
use lightloom_units::id::NodeId;

/// Number of hops in the inner data-parallel rings, and how many of them cross ToRs (docs/metrics.md).
/// The inner ring of s equal-rank GPUs has s hops, or none if s is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrossTor {
    /// All inner hops. A hop between two nodes is counted once, not once per GPU.
    pub hops: u64,
    /// Hops between nodes under different ToRs.
    pub crossing: u64,
}

impl CrossTor {
    /// Returns `crossing / hops`, or 0 if there are no inner hops.
    pub fn share(self) -> f64 {
        if self.hops == 0 { 0.0 } else { self.crossing as f64 / self.hops as f64 }
    }
}

impl std::iter::Sum for CrossTor {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::default(), |a, b| Self {
            hops: a.hops + b.hops,
            crossing: a.crossing + b.crossing,
        })
    }
}

/// Counts inner hops. `groups` lists the nodes of each group in rank order.
pub fn cross_tor<'a>(dcn: &Dcn, groups: impl Iterator<Item = &'a [NodeId]>) -> CrossTor {
    let groups: Vec<&[NodeId]> = groups.collect();
    groups.chunks(dcn.nodes_per_tor() as usize).map(|set| in_set(dcn, set)).sum()
}

fn in_set(dcn: &Dcn, set: &[&[NodeId]]) -> CrossTor {
    let mut count = CrossTor::default();
    if set.len() < 2 {
        return count;
    }
    for (i, group) in set.iter().enumerate() {
        let next = set[(i + 1) % set.len()];
        count.hops += group.len() as u64;
        let pairs = group.iter().zip(next);
        let crossing = pairs.filter(|(one, other)| dcn.tor_of(**one) != dcn.tor_of(**other));
        count.crossing += crossing.count() as u64;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_fabric::dcn::FatTree;

    #[test]
    fn equal_ranks_under_one_tor_do_not_cross() {
        let dcn = FatTree { nodes_per_tor: 2, ..FatTree::default() }.into();
        let nodes = |ids: &[u32]| ids.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let aligned = [nodes(&[0, 2]), nodes(&[1, 3])];
        let count = |groups: &[Vec<NodeId>]| cross_tor(&dcn, groups.iter().map(Vec::as_slice));
        assert_eq!(count(&aligned), CrossTor { hops: 4, crossing: 0 });
        let shifted = [nodes(&[0, 2]), nodes(&[3, 1])];
        assert_eq!(count(&shifted), CrossTor { hops: 4, crossing: 4 });
        assert_eq!(count(&aligned[..1]).share(), 0.0);
    }
}
