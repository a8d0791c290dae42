// SPDX-License-Identifier: Apache-2.0
//! The fabric of a file as a design: the planner's groups are its usable GPUs, and its bill is the purchase.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::hbd::Grouping;
use lightloom_planner::khop::gpus_in_groups;
use lightloom_units::id::NodeId;

use crate::architecture::{
    Architecture, Bill, BillLine, CannotHold, Cluster, FaultPolicy, NoBill, PartLoss, Site,
    UsableGpus, check_size, name_of, parse,
};
use crate::cost::{PriceList, parts_of};

/// A fabric file next to built-in designs. It cannot change its size.
#[derive(Debug)]
pub struct FabricDesign {
    fabric: Fabric,
    installed: Vec<NodeId>,
    parts: Result<Vec<BillLine>, NoBill>,
    /// The built-in design with the same kind of domain, which determines the effect of lost parts.
    kin: Option<Box<dyn Architecture>>,
}

impl FabricDesign {
    /// An optical switch without a price is counted by its ports, so the bill depends on `prices`.
    pub fn new(fabric: Fabric, prices: &PriceList) -> Self {
        let kin = name_of(&fabric).and_then(|name| parse(&name).ok());
        let installed = fabric.installed().collect();
        Self { parts: parts_of(&fabric, prices), kin, installed, fabric }
    }

    pub fn cluster(&self) -> Cluster {
        let nodes =
            u32::try_from(self.installed.len()).expect("a fabric has at most 4,000,000 nodes");
        Cluster { nodes, gpus_per_node: u32::from(self.fabric.hbd.gpus_per_node()) }
    }

    fn require(&self, gpus: u32, gpus_per_node: u32) -> Result<(), String> {
        let (name, own) = (&self.fabric.name, self.cluster());
        match (own.gpus(), own.gpus_per_node) == (gpus, gpus_per_node) {
            true => Ok(()),
            false => Err(format!(
                "{name} has {} GPUs in nodes of {}, not {gpus} in nodes of {gpus_per_node}",
                own.gpus(),
                own.gpus_per_node
            )),
        }
    }
}

impl Architecture for FabricDesign {
    fn name(&self) -> String {
        self.fabric.name.clone()
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        self.require(cluster.gpus(), cluster.gpus_per_node).map_err(CannotHold)?;
        check_size(cluster, tp)?;
        let gpus_per_node = cluster.gpus_per_node;
        if tp > gpus_per_node && !tp.is_multiple_of(gpus_per_node) {
            return Err(CannotHold(format!(
                "TP-{tp} is not a whole number of nodes of {gpus_per_node} GPUs"
            )));
        }
        let largest = self.fabric.hbd.largest_group();
        if u64::from(tp) > largest {
            return Err(CannotHold(format!("the largest group has {largest} GPUs, not {tp}")));
        }
        let (fabric, faults) = (self.fabric.clone(), self.fabric.start.clone());
        let installed = self.installed.clone();
        Ok(Box::new(PlannedGpus { fabric, installed, faults, tp, usable: Cell::new(None) }))
    }

    fn failed_nodes(&self) -> BTreeSet<NodeId> {
        let hbd = &self.fabric.hbd;
        let (failed, drained) =
            (self.fabric.start.failed_nodes(hbd), self.fabric.drained.failed_nodes(hbd));
        let installed = (0..).zip(&self.installed);
        installed
            .filter(|(_, node)| failed.contains(node) && !drained.contains(node))
            .map(|(index, _)| NodeId(index))
            .collect()
    }

    fn fault_policies(&self) -> &'static [FaultPolicy] {
        match self.fabric.hbd.grouping() {
            Grouping::Line if self.fabric.spare_per_ring > 0 => &[FaultPolicy::SpareNode],
            Grouping::Line => &[FaultPolicy::Bypass],
            Grouping::Island { .. } | Grouping::Anywhere => &[FaultPolicy::Regroup],
        }
    }

    fn mean_hops(&self, tp: u32) -> f64 {
        self.kin.as_ref().map_or(1.0, |kin| kin.mean_hops(tp))
    }

    fn without(&self, part: &str, site: &Site) -> Vec<(f64, PartLoss)> {
        let kin = self.kin.as_deref().filter(|kin| {
            kin.bill(site).is_ok_and(|bill| bill.lines.iter().any(|line| line.part == part))
        });
        kin.map_or_else(|| vec![(1.0, PartLoss::Out { gpus: 1 })], |kin| kin.without(part, site))
    }

    fn reach(&self) -> Option<u8> {
        self.kin.as_ref().and_then(|kin| kin.reach())
    }

    fn has_network(&self) -> bool {
        true
    }

    /// Adds up the tiers, which `lightloom cost FABRIC.yaml` lists.
    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        self.require(site.gpus, site.gpus_per_node).map_err(NoBill)?;
        let mut counts: BTreeMap<&str, (f64, Vec<&str>)> = BTreeMap::new();
        for line in self.parts.as_ref().map_err(Clone::clone)? {
            let (count, places) = counts.entry(&line.part).or_default();
            *count += line.count_per_gpu;
            if !places.contains(&line.place.as_str()) {
                places.push(&line.place);
            }
        }
        counts.remove("gpu");
        let lines = counts.into_iter();
        let lines =
            lines.map(|(part, (count, places))| BillLine::new(part, count, places.join(" + ")));
        let hbd = &self.fabric.hbd;
        let edge = self.fabric.hbd_links.edge_rate.0 as f64 / 8e9;
        Ok(Bill {
            gbytes_per_s_per_gpu: match hbd.grouping() {
                // A ring edge is half of a GPU's bandwidth.
                Grouping::Line => 2.0 * edge,
                Grouping::Island { .. } => edge,
                Grouping::Anywhere => self.fabric.dcn.link_rate().0 as f64 / 8e9,
            },
            basis: format!("{} GPUs as in the file", self.fabric.gpus()),
            lines: lines.collect(),
        })
    }
}

struct PlannedGpus {
    fabric: Fabric,
    installed: Vec<NodeId>,
    faults: FaultSet,
    tp: u32,
    /// `None` after a change.
    usable: Cell<Option<u32>>,
}

impl UsableGpus for PlannedGpus {
    fn fail(&mut self, node: NodeId) {
        self.faults.nodes.insert(self.installed[node.index()]);
        self.usable.set(None);
    }
    fn repair(&mut self, node: NodeId) {
        let node = self.installed[node.index()];
        if !self.fabric.start.nodes.contains(&node) {
            self.faults.nodes.remove(&node);
        }
        self.usable.set(None);
    }
    fn usable_gpus(&self) -> u32 {
        self.usable.get().unwrap_or_else(|| {
            let gpus = gpus_in_groups(&self.fabric, &self.faults, self.tp);
            let gpus = u32::try_from(gpus).expect("a cluster has fewer GPUs");
            self.usable.set(Some(gpus));
            gpus
        })
    }
}
