// SPDX-License-Identifier: Apache-2.0
//! A fabric consists of the installed hardware, its cabling and the jobs that run on it.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::id::NodeId;
use lightloom_units::{BitsPerSecond, Picoseconds};

use crate::dcn::{Dcn, FatTree, Order};
use crate::fat_tree::ReconfigurableFatTree;
use crate::fault::FaultSet;
use crate::file::step::StepFile;
use crate::hbd::{Grouping, Hbd};
use crate::khop::KhopRing;
use crate::plan::Searched;

/// A valid fabric, loaded from a fabric file.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    /// Name in reports.
    pub name: String,
    /// SHA-256 of the fabric file, in hex. Identifies the fabric in plans.
    pub sha256: String,
    /// High-bandwidth domain.
    pub hbd: Hbd,
    /// Number of nodes per ring that only forward light (0 or 1).
    pub spare_per_ring: u8,
    /// Rates and delays inside the high-bandwidth domain.
    pub hbd_links: HbdLinks,
    /// Data-centre network.
    pub dcn: Dcn,
    /// Order of the HBD line through the racks.
    pub order: Order,
    /// Transceivers with an integrated optical circuit switch.
    pub transceiver: Transceiver,
    /// Jobs, in order of placement.
    pub jobs: Vec<Job>,
    /// Parts that are out of service at the start.
    pub start: FaultSet,
    /// Parts of `start` that work but must not be used.
    pub drained: FaultSet,
    /// Nodes of `start` that are not installed.
    pub absent: BTreeSet<NodeId>,
    /// Smallest fraction of the demand's rate that remains in every stage of a change.
    pub floor: f64,
    /// Contents of the files that steps refer to (matrices and models), or the read error.
    pub files: BTreeMap<String, Result<String, String>>,
}

/// Rates and delays of the GPU ring.
#[derive(Clone, Debug, PartialEq)]
pub struct HbdLinks {
    /// Rate of one ring edge per direction, which is half of a GPU's bandwidth.
    pub edge_rate: BitsPerSecond,
    /// Propagation delay inside a node, over copper or a loopback bundle.
    pub inside_latency: Picoseconds,
    /// Propagation delay between nodes, over fibre.
    pub fibre_latency: Picoseconds,
}

/// A transceiver with an integrated optical circuit switch (OCSTrx).
#[derive(Clone, Debug, PartialEq)]
pub struct Transceiver {
    /// Shortest dark time while the switch moves.
    pub switch_min: Picoseconds,
    /// Longest dark time while the switch moves.
    pub switch_max: Picoseconds,
    /// Delay of the control software before the switch starts to move.
    pub software_delay: Picoseconds,
    /// Time from light at both ends of a path until the receivers pass data.
    pub relock: Picoseconds,
    /// Expected optical power, if the file specifies the losses.
    pub light: Option<LightBudget>,
}

/// Expected received power at the transceivers of a k-hop line.
#[derive(Clone, Debug, PartialEq)]
pub struct LightBudget {
    /// Received power for each hop length, shortest first, in dBm.
    pub hops_dbm: Vec<f64>,
    /// Receiver sensitivity, in dBm.
    pub sensitivity_dbm: f64,
}

/// A job. Each group of `tp` GPUs forms one ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name in reports.
    pub name: String,
    /// Requested GPUs.
    pub size: JobSize,
    /// GPUs per tensor-parallel group, or 0 if the step defines traffic between leaves.
    pub tp: u32,
    /// Fewest GPUs with which the job runs. `None` if it needs all requested GPUs.
    pub least: Option<u64>,
    /// Nodes that the job may use. `None` for all nodes.
    pub nodes: Option<BTreeSet<NodeId>>,
    /// The repeated step and its traffic. `None` if only rings are planned.
    pub step: Option<StepFile>,
    /// How the parallel mapping was found, if the file requests a search.
    pub searched: Option<Searched>,
}

impl Job {
    /// Returns whether the job's step refers to ranks rather than leaves.
    pub fn is_placed(&self) -> bool {
        self.tp > 0
    }
}

/// Requested size of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobSize {
    /// All GPUs that form complete groups.
    #[default]
    All,
    /// A fixed number, which is a multiple of the group size.
    Gpus(u64),
}

/// OCSTrx modules per bundle. Half of the modules belong to each of the two GPUs.
pub const MODULES_PER_BUNDLE: u32 = 8;

impl Fabric {
    /// Creates a k-hop ring or line under a fat-tree, with defaults for all other settings.
    pub fn of_ring(
        name: &str,
        ring: KhopRing,
        order: Order,
        tree: FatTree,
        jobs: Vec<Job>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            sha256: String::new(),
            hbd: ring.into(),
            spare_per_ring: 0,
            hbd_links: HbdLinks::default(),
            dcn: tree.into(),
            order,
            transceiver: Transceiver::default(),
            jobs,
            start: FaultSet::none(),
            drained: FaultSet::none(),
            absent: BTreeSet::new(),
            floor: 0.75,
            files: BTreeMap::new(),
        }
    }

    /// Returns the optical switches if the fabric lacks a domain and its jobs do not use GPUs.
    pub fn circuits_alone(&self) -> Option<&ReconfigurableFatTree> {
        let is_alone =
            self.hbd.grouping() == Grouping::Anywhere && !self.jobs.iter().any(Job::is_placed);
        self.dcn.circuits().filter(|_| is_alone)
    }

    /// Returns the installed nodes, in the order of their numbers.
    pub fn installed(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.hbd.nodes()).map(NodeId).filter(|node| !self.absent.contains(node))
    }

    /// Counts the GPUs of the installed nodes.
    pub fn gpus(&self) -> u64 {
        let absent = self.absent.len() as u64 * u64::from(self.hbd.gpus_per_node());
        self.hbd.gpus() - absent
    }

    /// Counts the drained nodes among those that `faults` takes out of service.
    pub fn drained_nodes(&self, faults: &FaultSet) -> usize {
        let out = faults.failed_nodes(&self.hbd);
        self.drained.failed_nodes(&self.hbd).intersection(&out).count()
    }

    /// Returns the contents of a file that a step refers to.
    pub fn neighbour(&self, name: &str) -> Result<String, String> {
        self.files.get(name).cloned().unwrap_or_else(|| Err(format!("cannot read {name}")))
    }
}

impl Default for HbdLinks {
    /// The default is 3.2 Tb/s per ring edge and direction, with 100 ns inside a node and 200 ns between nodes.
    fn default() -> Self {
        Self {
            edge_rate: BitsPerSecond::from_gbps(3200),
            inside_latency: Picoseconds::from_nanos(100),
            fibre_latency: Picoseconds::from_nanos(200),
        }
    }
}

impl Default for Transceiver {
    /// The switching time of 60 to 80 µs is published for InfiniteHBD. The software delay of 1 ms
    /// and the relock time of 0 are assumptions.
    fn default() -> Self {
        Self {
            switch_min: Picoseconds::from_micros(60),
            switch_max: Picoseconds::from_micros(80),
            software_delay: Picoseconds::from_millis(1),
            relock: Picoseconds::ZERO,
            light: None,
        }
    }
}

impl Default for FatTree {
    /// The default is non-blocking, with four nodes per ToR, 64 ToRs per domain, and cables of 400 Gb/s and 1 µs.
    fn default() -> Self {
        Self {
            design: "fat-tree",
            nodes_per_tor: 4,
            tors_per_domain: 64,
            oversubscription: 1,
            core_oversubscription: 1,
            nics_per_gpu: 1,
            link_rate: BitsPerSecond::from_gbps(400),
            link_latency: Picoseconds::from_micros(1),
        }
    }
}
