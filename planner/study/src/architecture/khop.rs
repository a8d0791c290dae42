// SPDX-License-Identifier: Apache-2.0
//! Rings with optical circuit switching in transceivers, named `khop:K`, `khop:K:line`, `khop:K:spare`.
//!
//! Nodes are on a closed line (ring) or an open one (line). Bypasses span up to K-1 faulty nodes; K faulty nodes in a
//! row break the line. Groups are runs of consecutive healthy nodes. The design is InfiniteHBD (arXiv 2502.03885). The
//! counting rule is recalled, like the values that it reproduces.
//!
//! For odd K, one bundle serves `+K` and `-K`, but only one of them at a time. This matters only
//! for a node with K-1 faulty nodes on both sides, which the model treats as usable.

use lightloom_units::id::NodeId;
use serde::Serialize;

use super::bill::{Bill, BillLine, NoBill, Site, fibres};
use super::chain::Chain;
use super::part_loss::PartLoss;
use super::registry::{DesignKind, number};
use super::{Architecture, CannotHold, Cluster, FaultPolicy, UsableGpus, check_size};

/// Eight modules of 800 Gb/s. (Recalled, and implied by the recalled costs per GPU and per GB/s.)
const GBYTES_PER_S_PER_GPU: f64 = 800.0;
/// A ring edge has half the bandwidth of a GPU, so it needs four modules for each of its two GPUs.
const MODULES_PER_BUNDLE: u32 = 8;
const CABLES_PER_EDGE: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Ring,
    Line,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Khop {
    pub(super) k: u32,
    pub(super) shape: Shape,
    pub(super) has_spares: bool,
}

/// Theoretical bounds on the mean waste of a k-hop ring, as shares of all GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WasteBounds {
    pub node_fault_ratio: f64,
    /// `2 (N_t − R) P^K`, for TP size N_t and node fault ratio P, recalled from the paper's appendix.
    pub recalled: f64,
    /// `2 (N_t/R − 1) P^K`, our own derivation.
    pub derived: f64,
    /// `(N_t/R − 1) / N`, because N nodes may not be a multiple of the group size.
    pub remainder: f64,
}

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[
        ("khop:K", "k-hop ring of OCS transceivers on a closed line; `khop:2`"),
        ("khop:K:line", "the same on an open line"),
        ("khop:K:spare", "the same with a pass-through node per ring"),
    ],
    parse: |text| Some(Box::new(parse(text.strip_prefix("khop:")?)?)),
};

fn parse(parameter: &str) -> Option<Khop> {
    let (k, shape) = match parameter.split_once(':') {
        Some((k, "spare")) => {
            return Some(Khop { k: number(k, 64)?, shape: Shape::Ring, has_spares: true });
        }
        None | Some((_, "ring")) => (parameter.trim_end_matches(":ring"), Shape::Ring),
        Some((k, "line")) => (k, Shape::Line),
        Some(_) => return None,
    };
    Some(Khop { k: number(k, 64)?, shape, has_spares: false })
}

impl Architecture for Khop {
    fn name(&self) -> String {
        match self.shape {
            _ if self.has_spares => format!("khop:{}:spare", self.k),
            Shape::Ring => format!("khop:{}", self.k),
            Shape::Line => format!("khop:{}:line", self.k),
        }
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        check_size(cluster, tp)?;
        let Cluster { nodes, gpus_per_node } = cluster;
        if self.k > gpus_per_node {
            return Err(CannotHold(format!(
                "K is {}, but a node of {gpus_per_node} GPUs has at most {gpus_per_node} bundles",
                self.k
            )));
        }
        if tp > gpus_per_node && !tp.is_multiple_of(gpus_per_node) {
            return Err(CannotHold(format!(
                "TP-{tp} is not a whole number of nodes of {gpus_per_node} GPUs"
            )));
        }
        if self.has_spares {
            return self.spare_rings(cluster, tp);
        }
        let (nodes_per_group, gpus_per_group) = if tp >= gpus_per_node {
            (tp / gpus_per_node, tp)
        } else {
            (1, gpus_per_node / tp * tp)
        };
        let chain = match self.shape {
            Shape::Ring => Chain::ring(nodes, self.k, nodes_per_group),
            Shape::Line => Chain::line(nodes, self.k, nodes_per_group),
        };
        Ok(Box::new(Ring { chain, gpus_per_group }))
    }

    fn waste_bounds(&self, cluster: Cluster, tp: u32, ratio: f64) -> Option<WasteBounds> {
        if self.has_spares {
            return None;
        }
        let gpus_per_node = f64::from(cluster.gpus_per_node);
        let beyond_first = (f64::from(tp) - gpus_per_node).max(0.0);
        let broken = ratio.powi(i32::try_from(self.k).ok()?);
        Some(WasteBounds {
            node_fault_ratio: ratio,
            recalled: 2.0 * beyond_first * broken,
            derived: 2.0 * beyond_first / gpus_per_node * broken,
            remainder: beyond_first / gpus_per_node / f64::from(cluster.nodes),
        })
    }

    fn fault_policies(&self) -> &'static [FaultPolicy] {
        match self.has_spares {
            true => &[FaultPolicy::SpareNode],
            false => &[FaultPolicy::Bypass],
        }
    }

    /// A ring of t GPUs uses both directions, so a byte travels t/4 hops on average.
    fn mean_hops(&self, tp: u32) -> f64 {
        (f64::from(tp) / 4.0).max(1.0)
    }

    fn reach(&self) -> Option<u8> {
        let plans = self.shape == Shape::Ring && !self.has_spares && self.k >= 2;
        plans.then(|| u8::try_from(self.k).expect("K is at most 64"))
    }

    /// A ring is as fast as its slowest edge, which has four modules at either end, or two cables
    /// within a node. Only one of a node's K hops is lit; the other fibres carry no traffic.
    fn without(&self, part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        let of = if part == "dac-1.6t" { CABLES_PER_EDGE } else { MODULES_PER_BUNDLE / 2 };
        let slower = PartLoss::Slower { share: 1.0 / f64::from(of), around: Some(1) };
        match part {
            "fibre" if self.k > 1 => {
                let lit = 1.0 / f64::from(self.k);
                vec![(lit, slower), (1.0 - lit, PartLoss::Nothing)]
            }
            _ => vec![(1.0, slower)],
        }
    }

    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        let (k, r) = (self.k, site.gpus_per_node);
        if k > r {
            return Err(NoBill(format!("a node of {r} GPUs has at most {r} bundles, not {k}")));
        }
        let [modules, cables] = [MODULES_PER_BUNDLE * k, CABLES_PER_EDGE * (r - k)]
            .map(|per_node| f64::from(per_node) / f64::from(r));
        let lines = vec![
            BillLine::new("ocstrx-800g", modules, format!("8·K/R = 8·{k}/{r}")),
            fibres(modules),
            BillLine::new("dac-1.6t", cables, format!("2·(R−K)/R = 2·({r}−{k})/{r}")),
        ];
        let basis = format!("nodes of {r} GPUs with {k} bundles");
        Ok(Bill { gbytes_per_s_per_gpu: GBYTES_PER_S_PER_GPU, basis, lines })
    }
}

impl Khop {
    fn spare_rings(self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        if self.k < 2 {
            return Err(CannotHold("a bypass needs a hop over one node, but K is 1".to_owned()));
        }
        if tp < cluster.gpus_per_node {
            return Err(CannotHold(format!("TP-{tp} stays inside a node and needs no spare node")));
        }
        let nodes_per_ring = tp / cluster.gpus_per_node + 1;
        let rings = cluster.nodes / nodes_per_ring;
        if rings == 0 {
            return Err(CannotHold(format!(
                "TP-{tp} with a spare needs {nodes_per_ring} nodes, but the cluster has {}",
                cluster.nodes
            )));
        }
        let faulty = vec![0; rings as usize];
        Ok(Box::new(SpareRings { nodes_per_ring, tp, faulty, working: rings }))
    }
}

struct SpareRings {
    nodes_per_ring: u32,
    tp: u32,
    faulty: Vec<u32>,
    working: u32,
}

impl UsableGpus for SpareRings {
    fn fail(&mut self, node: NodeId) {
        let Some(faulty) = self.faulty.get_mut((node.0 / self.nodes_per_ring) as usize) else {
            return;
        };
        *faulty += 1;
        self.working -= u32::from(*faulty == 2);
    }
    fn repair(&mut self, node: NodeId) {
        let Some(faulty) = self.faulty.get_mut((node.0 / self.nodes_per_ring) as usize) else {
            return;
        };
        self.working += u32::from(*faulty == 2);
        *faulty -= 1;
    }
    fn usable_gpus(&self) -> u32 {
        self.working * self.tp
    }
}

struct Ring {
    chain: Chain,
    gpus_per_group: u32,
}

impl UsableGpus for Ring {
    fn fail(&mut self, node: NodeId) {
        self.chain.remove(node.0);
    }
    fn repair(&mut self, node: NodeId) {
        self.chain.insert(node.0);
    }
    fn usable_gpus(&self) -> u32 {
        self.chain.groups() * self.gpus_per_group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_have_their_recalled_values() {
        // (GPUs per node, 99th percentile of the node fault ratio, K, recalled waste in %)
        let recalled = [(4, 0.036_7, 2, 7.54), (4, 0.036_7, 3, 0.28), (8, 0.072_2, 2, 25.02)];
        for (gpus_per_node, ratio, k, percent) in recalled {
            let cluster = Cluster { nodes: 2_880 / gpus_per_node, gpus_per_node };
            let bounds = Khop { k, shape: Shape::Ring, has_spares: false }
                .waste_bounds(cluster, 32, ratio)
                .unwrap();
            assert!((bounds.recalled * 100.0 - percent).abs() < 0.005, "{bounds:?}");
            assert!(bounds.derived * f64::from(gpus_per_node) - bounds.recalled < 1e-12);
        }
    }

    #[test]
    fn spare_node_costs_its_share_and_covers_one_fault() {
        for (nodes, tp, usable) in [(320, 16, 1024), (720, 32, 2560)] {
            let cluster = Cluster { nodes, gpus_per_node: 4 };
            let design = Khop { k: 3, shape: Shape::Ring, has_spares: true };
            let mut gpus = design.usable(cluster, tp).unwrap();
            assert_eq!(gpus.usable_gpus(), usable);
            gpus.fail(NodeId(0));
            assert_eq!(gpus.usable_gpus(), usable);
            gpus.fail(NodeId(3));
            assert_eq!(gpus.usable_gpus(), usable - tp);
            gpus.repair(NodeId(0));
            assert_eq!(gpus.usable_gpus(), usable);
        }
    }

    #[test]
    fn only_k_failed_nodes_in_a_row_break_the_line() {
        let cluster = Cluster { nodes: 16, gpus_per_node: 4 };
        for (k, run, usable) in [(2, 1, 56), (2, 2, 48), (3, 2, 56), (3, 3, 48)] {
            let line = Khop { k, shape: Shape::Line, has_spares: false };
            let mut gpus = line.usable(cluster, 8).unwrap();
            // Node 5 leaves an odd number of nodes before the failed ones.
            (5..5 + run).for_each(|node| gpus.fail(NodeId(node)));
            assert_eq!(gpus.usable_gpus(), usable, "K = {k}, {run} faulty");
        }
    }
}
