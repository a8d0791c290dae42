// SPDX-License-Identifier: Apache-2.0
//! The designs that lightloom compares, one small file each: high-bandwidth domains (HBD) and, for
//! their price, data-centre networks.
//!
//! A design says two things: which GPUs can still work when nodes fail ([`Architecture::usable`]),
//! and what it is made of ([`Architecture::bill`]). What a design can do to count is in three
//! parts that the files share:
//!
//! | part | counts | used by |
//! | --- | --- | --- |
//! | `chain` | a line of nodes that bypasses short runs of faulty ones | k-hop ring |
//! | `domains` | any healthy GPUs of a switch domain | big switch, NVL, DGX |
//! | `blocks` | fixed blocks, lost as a whole | TPUv4, SiP-Ring, 3D torus |

mod big_switch;
mod bill;
mod blocks;
mod chain;
mod dgx;
mod domains;
mod fat_tree;
mod ironwood;
mod khop;
mod mixnet;
mod multi_plane;
mod nvl;
mod part_loss;
mod photonic_rails;
mod policy;
mod registry;
mod rfabric;
mod sip_ring;
mod torus;
mod tpuv4;

use std::fmt;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Shape;
use lightloom_units::id::NodeId;

pub use bill::{Bill, BillLine, NicRate, NoBill, Site};
pub use khop::WasteBounds;
pub use part_loss::PartLoss;
pub use policy::FaultPolicy;
pub use registry::{UnknownArchitecture, parse, parse_network};

/// The size of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Nodes, in the order in which they are cabled.
    pub nodes: u32,
    /// GPUs of a node. A node is healthy or faulty as a whole.
    pub gpus_per_node: u32,
}

impl Cluster {
    /// GPUs in all.
    #[must_use]
    pub const fn gpus(self) -> u32 {
        self.nodes * self.gpus_per_node
    }

    /// What its bill depends on, with these network cards.
    #[must_use]
    pub const fn site(self, nic: NicRate) -> Site {
        Site { gpus: self.gpus(), gpus_per_node: self.gpus_per_node, nic }
    }
}

/// Why a design can never hold a tensor-parallel group of some size, whatever the faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotHold(pub String);

/// A design of the network between GPUs.
pub trait Architecture: fmt::Debug + Send + Sync {
    /// How it is written on the command line, and shown in results.
    fn name(&self) -> String;

    /// Counts the GPUs that groups of `tp` GPUs can use, from a state without faults.
    ///
    /// # Errors
    /// If no group of `tp` GPUs ever fits.
    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold>;

    /// What theory says about the waste while a share `node_fault_ratio` of the nodes is faulty, where
    /// it says anything.
    fn waste_bounds(&self, _: Cluster, _tp: u32, _node_fault_ratio: f64) -> Option<WasteBounds> {
        None
    }

    /// What it can do about a faulty node; the first is what it was made for.
    fn fault_policies(&self) -> &'static [FaultPolicy] {
        &[FaultPolicy::Regroup]
    }

    /// As [`usable`](Self::usable), under one of its policies; under [`FaultPolicy::Backup`] each domain keeps back `spares` nodes.
    ///
    /// # Errors
    /// If no group of `tp` GPUs ever fits.
    fn usable_under(
        &self,
        _: FaultPolicy,
        _spares: u32,
        cluster: Cluster,
        tp: u32,
    ) -> Result<Box<dyn UsableGpus>, CannotHold> {
        self.usable(cluster, tp)
    }

    /// Mean links that a byte of an all-to-all takes among `tp` GPUs of a group, 1 through a switch.
    fn all_to_all_hops(&self, _tp: u32) -> f64 {
        1.0
    }

    /// What it does without one part of this name of its bill: shares of these parts, each with what their loss costs.
    fn without(&self, _part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        vec![(1.0, PartLoss::Out { gpus: 1 })]
    }

    /// Time of a step ÷ time without it, of a network whose circuits follow the phases of a step.
    fn step_stretch(&self) -> f64 {
        1.0
    }

    /// How many nodes on a closed line of nodes is joined, if groups lie along one that the planner places over
    /// ToRs. `None` for all others.
    fn reach(&self) -> Option<u8> {
        None
    }

    /// The parts of the interconnect for each GPU.
    ///
    /// # Errors
    /// If no parts list is known, or the design cannot be built for this site.
    fn bill(&self, _: &Site) -> Result<Bill, NoBill> {
        Err(NoBill(format!("no parts list of {} is known", self.name())))
    }
}

/// How the high-bandwidth domain of `fabric` is written among the designs. `None` if none of them is like it.
#[must_use]
pub fn name_of(fabric: &Fabric) -> Option<String> {
    let hbd = &fabric.hbd;
    match (hbd.grouping(), hbd.shape()) {
        (Grouping::Line, _) if fabric.spare_per_ring > 0 => Some(format!("khop:{}:spare", hbd.k())),
        (Grouping::Line, Shape::Ring) => Some(format!("khop:{}", hbd.k())),
        (Grouping::Line, Shape::Line) => Some(format!("khop:{}:line", hbd.k())),
        (Grouping::Island { .. }, _) => Some(format!("nvl:{}", hbd.largest_group())),
        (Grouping::Anywhere, _) => None,
    }
}

/// A cluster whose nodes fail and come back, and the GPUs it can use meanwhile.
///
/// The caller tells of changes only: a node that fails was healthy, one that is repaired was not.
pub trait UsableGpus {
    /// A healthy node fails.
    fn fail(&mut self, node: NodeId);
    /// A faulty node comes back.
    fn repair(&mut self, node: NodeId);
    /// GPUs that are in a full group now.
    fn usable_gpus(&self) -> u32;
    /// Whether a warm spare takes the place of this healthy node if it fails now.
    fn has_spare_for(&self, _: NodeId) -> bool {
        false
    }
}

/// Refuses a group of no GPU, and one larger than the cluster.
fn check_size(cluster: Cluster, tp: u32) -> Result<(), CannotHold> {
    if tp == 0 {
        return Err(CannotHold("a group has at least one GPU".to_owned()));
    }
    if tp > cluster.gpus() {
        let gpus = cluster.gpus();
        return Err(CannotHold(format!("TP-{tp} needs {tp} GPUs and the cluster has {gpus}")));
    }
    Ok(())
}
