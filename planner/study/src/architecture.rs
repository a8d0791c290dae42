// SPDX-License-Identifier: Apache-2.0
//! The designs that lightloom compares, with one file each except for those without parameters. They are high-bandwidth domains (HBD) and
//! data-centre networks, which are compared only by price.

mod bill;
mod blocks;
mod chain;
mod domains;
mod fat_tree;
mod ironwood;
mod khop;
mod multi_plane;
mod nvl;
mod part_loss;
mod photonic_rails;
mod plain;
mod policy;
mod registry;
mod rfabric;
mod torus;
mod tpuv4;

use std::collections::BTreeSet;
use std::fmt;

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::hbd::Grouping;
use lightloom_fabric::khop::Shape;
use lightloom_units::id::NodeId;

pub use bill::{Bill, BillLine, NicRate, NoBill, Site};
pub use khop::WasteBounds;
pub use part_loss::PartLoss;
pub use policy::FaultPolicy;
pub use registry::{UnknownArchitecture, is_fabric_file, parse, parse_network};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub nodes: u32,
    /// Nodes fail as a whole.
    pub gpus_per_node: u32,
}

impl Cluster {
    pub const fn gpus(self) -> u32 {
        self.nodes * self.gpus_per_node
    }

    pub const fn site(self, nic: NicRate) -> Site {
        Site { gpus: self.gpus(), gpus_per_node: self.gpus_per_node, nic }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotHold(pub String);

pub trait Architecture: fmt::Debug + Send + Sync {
    fn name(&self) -> String;

    /// The usable GPUs of the domains. Data-centre networks have none.
    fn usable(&self, _: Cluster, _tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        Err(CannotHold("data-centre networks do not contain tensor-parallel groups, so only their price is computed".into()))
    }

    /// Nodes that have failed before any other fault. The others may include nodes that must not be used.
    fn failed_nodes(&self) -> BTreeSet<NodeId> {
        BTreeSet::new()
    }

    /// Theoretical bounds on the waste with the share `node_fault_ratio` of faulty nodes, if known.
    fn waste_bounds(&self, _: Cluster, _tp: u32, _node_fault_ratio: f64) -> Option<WasteBounds> {
        None
    }

    /// The supported policies for faulty nodes, starting with the one that the design was made for.
    fn fault_policies(&self) -> &'static [FaultPolicy] {
        &[FaultPolicy::Regroup]
    }

    fn usable_under(
        &self,
        _: FaultPolicy,
        _spares: u32,
        cluster: Cluster,
        tp: u32,
    ) -> Result<Box<dyn UsableGpus>, CannotHold> {
        self.usable(cluster, tp)
    }

    /// Mean hops per byte in an all-to-all within a group of `tp` GPUs. A switch adds one hop.
    fn mean_hops(&self, _tp: u32) -> f64 {
        1.0
    }

    /// The possible effects of losing one such part, with the share of these parts for each effect.
    fn without(&self, _part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        vec![(1.0, PartLoss::Out { gpus: 1 })]
    }

    /// Step time with this network ÷ without it. 1 unless circuits follow the phases of a step.
    fn step_stretch(&self) -> f64 {
        1.0
    }

    /// The reach of a node if the planner places groups along a closed line over ToRs.
    fn reach(&self) -> Option<u8> {
        None
    }

    fn has_network(&self) -> bool {
        false
    }

    fn bill(&self, _: &Site) -> Result<Bill, NoBill> {
        Err(NoBill(format!("no parts list for {}", self.name())))
    }
}

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

/// Report only changes, so a failing node must be healthy and a repaired node must be faulty.
pub trait UsableGpus {
    fn fail(&mut self, node: NodeId);
    fn repair(&mut self, node: NodeId);
    fn usable_gpus(&self) -> u32;
    /// Whether a warm spare would replace this healthy node after a failure.
    fn has_spare_for(&self, _: NodeId) -> bool {
        false
    }
}

pub(crate) fn check_size(cluster: Cluster, tp: u32) -> Result<(), CannotHold> {
    if tp == 0 {
        return Err(CannotHold("a group has at least one GPU".to_owned()));
    }
    if tp > cluster.gpus() {
        let gpus = cluster.gpus();
        return Err(CannotHold(format!("TP-{tp} needs {tp} GPUs, but the cluster has {gpus}")));
    }
    Ok(())
}
