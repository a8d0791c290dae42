// SPDX-License-Identifier: Apache-2.0
//! Circuit templates for a mesh, isolated pods and a tree.
//!
//! RFabric is reported to switch between such templates; the text of the paper was not available.
//! Each template is derived from a phase's demand and becomes a candidate. The planner chooses it
//! if it is faster or closer to the existing circuits.

use lightloom_fabric::fat_tree::ReconfigurableFatTree;
use petgraph::unionfind::UnionFind;

use super::demand::Demand;
use super::phases::Candidate;
use super::topology::{Ports, Topology};

/// Returns the templates for one phase.
pub fn templates(fabric: &ReconfigurableFatTree, phase: &str, demand: &Demand) -> Vec<Candidate> {
    let templates =
        [("isolated pods", isolated_pods(fabric, demand)), ("tree", tree(fabric, demand))];
    templates
        .map(|(name, topology)| Candidate { name: format!("{name} for {phase}"), topology })
        .into()
}

fn isolated_pods(fabric: &ReconfigurableFatTree, demand: &Demand) -> Topology {
    let leaves = fabric.leaves();
    let mut pods = UnionFind::new(leaves);
    demand.flows().for_each(|(from, to, _)| _ = pods.union(from.index(), to.index()));
    let pod_of = pods.into_labeling();
    let mut topology = Topology::bare(fabric);
    let mut ports = Ports::new(fabric, &topology);
    let mut placed = true;
    while placed {
        placed = false;
        for distance in 1..leaves {
            for first in 0..leaves - distance {
                if pod_of[first] == pod_of[first + distance] {
                    placed |= ports.join(&mut topology, first, first + distance);
                }
            }
        }
    }
    topology
}

/// Returns the heaviest spanning tree, with as many circuits per edge as ports allow.
pub fn tree(fabric: &ReconfigurableFatTree, demand: &Demand) -> Topology {
    let mut edges: Vec<(u64, usize, usize)> = Vec::new();
    for (from, to, bytes) in demand.flows() {
        let (a, b) = (from.index(), to.index());
        if a < b || demand.bytes(to, from).0 == 0 {
            edges.push((bytes.0.saturating_add(demand.bytes(to, from).0), a, b));
        }
    }
    edges.sort_by(|x, y| y.0.cmp(&x.0).then((x.1, x.2).cmp(&(y.1, y.2))));
    let mut joined = UnionFind::new(fabric.leaves());
    edges.retain(|(_, a, b)| joined.union(*a, *b));
    let mut topology = Topology::bare(fabric);
    let mut ports = Ports::new(fabric, &topology);
    let mut placed = true;
    while placed {
        placed = false;
        for &(_, a, b) in &edges {
            placed |= ports.join(&mut topology, a, b);
        }
    }
    topology
}

#[cfg(test)]
mod tests {
    use super::super::testkit::fabric;
    use super::*;
    use lightloom_units::Bytes;
    use lightloom_units::id::LeafId;

    #[test]
    fn isolated_pods_use_all_their_ports() {
        let mut demand = Demand::none(8);
        for (a, b) in [(0, 1), (1, 2), (2, 3), (4, 5), (6, 7), (5, 6)] {
            demand.add(LeafId(a), LeafId(b), Bytes(1));
        }
        let topology = isolated_pods(&fabric(8, 6), &demand);
        for (pair, _) in topology.pairs() {
            assert_eq!(pair.a.0 / 4, pair.b.0 / 4, "{pair:?}");
        }
        assert!((0..8).all(|leaf| topology.degree(leaf) == 6));
    }

    #[test]
    fn tree_has_no_cycle_and_keeps_the_heavy_edges() {
        let mut demand = Demand::none(4);
        for (a, b, size) in [(0, 1, 9), (1, 2, 8), (0, 2, 7), (2, 3, 1)] {
            demand.add(LeafId(a), LeafId(b), Bytes(size));
        }
        let topology = tree(&fabric(4, 4), &demand);
        let pairs: Vec<_> = topology.pairs().map(|(pair, _)| (pair.a.0, pair.b.0)).collect();
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 3)]);
    }
}
