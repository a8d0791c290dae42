// SPDX-License-Identifier: Apache-2.0
//! A fabric: what is installed, what is cabled to what, and what shall run on it.

use std::collections::BTreeMap;

use lightloom_units::{BitsPerSecond, Dollars, Picoseconds, Watts};

use crate::dcn::{Dcn, FatTree, Order};
use crate::fat_tree::ReconfigurableFatTree;
use crate::file::step::StepFile;
use crate::hbd::{Grouping, Hbd};
use crate::khop::KhopRing;
use crate::plan::Searched;

/// A valid fabric. It is made from a fabric file, where every error is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    /// Its name in reports.
    pub name: String,
    /// SHA-256 of the file it was read from, in hex: plans name the fabric they are for.
    pub sha256: String,
    /// The high-bandwidth domain.
    pub hbd: Hbd,
    /// Nodes of each ring that only pass its light on: 0 or 1.
    pub spare_per_ring: u8,
    /// Links of the high-bandwidth domain.
    pub hbd_links: HbdLinks,
    /// The data-centre network.
    pub dcn: Dcn,
    /// How the HBD line runs through the racks.
    pub order: Order,
    /// The transceivers with an optical circuit switch inside.
    pub transceiver: Transceiver,
    /// What shall run, in order of placement.
    pub jobs: Vec<Job>,
    /// Unit prices and powers of the interconnect parts.
    pub parts: Parts,
    /// Share of the live demand's rate that no stage of a change of circuits may go below.
    pub floor: f64,
    /// Text of the files that steps name (matrices, models), or why it cannot be read.
    pub files: BTreeMap<String, Result<String, String>>,
}

/// Rates and delays of the GPU ring.
#[derive(Clone, Debug, PartialEq)]
pub struct HbdLinks {
    /// One ring edge, one direction: half of a GPU's bandwidth.
    pub edge_rate: BitsPerSecond,
    /// Propagation inside a node, over copper or a looped bundle.
    pub inside_latency: Picoseconds,
    /// Propagation between nodes, over a fibre.
    pub fibre_latency: Picoseconds,
}

/// A transceiver with an optical circuit switch inside (OCSTrx).
#[derive(Clone, Debug, PartialEq)]
pub struct Transceiver {
    /// Shortest time the light is dark while the switch moves.
    pub switch_min: Picoseconds,
    /// Longest time the light is dark while the switch moves.
    pub switch_max: Picoseconds,
    /// Added by the software that commands it, before the light moves.
    pub software_delay: Picoseconds,
    /// From light at both ends of a path until its receivers pass bits on.
    pub relock: Picoseconds,
    /// How much light should arrive, where the file says what it loses.
    pub light: Option<LightBudget>,
}

/// How much light arrives at a transceiver of a k-hop line.
#[derive(Clone, Debug, PartialEq)]
pub struct LightBudget {
    /// After each length of hop, the shortest first, in dBm.
    pub hops_dbm: Vec<f64>,
    /// What a receiver needs, in dBm.
    pub sensitivity_dbm: f64,
}

/// A job: groups of `tp` GPUs, each group one ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name in reports.
    pub name: String,
    /// How many GPUs it wants.
    pub size: JobSize,
    /// GPUs of one tensor-parallel group. 0 where the step says itself which leaves send.
    pub tp: u32,
    /// What it sends, again and again. `None` if only its rings are planned.
    pub step: Option<StepFile>,
    /// How its mapping was found, where the file asks for a search.
    pub searched: Option<Searched>,
}

impl Job {
    /// Whether its GPUs are placed: its step names ranks, not leaves.
    #[must_use]
    pub fn is_placed(&self) -> bool {
        self.tp > 0
    }
}

/// How many GPUs a job wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSize {
    /// All that can be grouped.
    All,
    /// This many, a multiple of the group size.
    Gpus(u64),
}

/// Unit prices and powers of the parts of a k-hop ring.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// One OCSTrx module.
    pub ocstrx: Dollars,
    /// The fibre that comes with every optical module.
    pub fibre: Dollars,
    /// One direct-attach copper cable.
    pub dac: Dollars,
    /// One OCSTrx module.
    pub ocstrx_power: Watts,
    /// One direct-attach copper cable.
    pub dac_power: Watts,
}

/// OCSTrx modules in a bundle: half of them on each of the two GPUs it joins.
pub const MODULES_PER_BUNDLE: u32 = 8;
/// Copper cables that make one plain ring edge.
const DACS_PER_EDGE: u32 = 2;

impl Fabric {
    /// A k-hop ring or line of nodes below a fat-tree, everything else by default.
    #[must_use]
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
            parts: Parts::default(),
            floor: 0.75,
            files: BTreeMap::new(),
        }
    }

    /// The optical switches between leaves, where nothing else of the fabric is planned: it has no domain, and
    /// no job has GPUs of its own.
    #[must_use]
    pub fn circuits_alone(&self) -> Option<&ReconfigurableFatTree> {
        let is_alone =
            self.hbd.grouping() == Grouping::Anywhere && !self.jobs.iter().any(Job::is_placed);
        self.dcn.circuits().filter(|_| is_alone)
    }

    /// The text of a file that a step names.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn neighbour(&self, name: &str) -> Result<String, String> {
        self.files.get(name).cloned().unwrap_or_else(|| Err(format!("cannot read {name}")))
    }
    /// Interconnect cost of one GPU: (8K/R) modules with fibre and (2(R-K)/R) cables.
    #[must_use]
    pub fn cost_per_gpu(&self) -> Dollars {
        let (modules, cables) = self.parts_per_gpu();
        (self.parts.ocstrx + self.parts.fibre) * modules + self.parts.dac * cables
    }
    /// Interconnect power of one GPU.
    #[must_use]
    pub fn power_per_gpu(&self) -> Watts {
        let (modules, cables) = self.parts_per_gpu();
        self.parts.ocstrx_power * modules + self.parts.dac_power * cables
    }
    fn parts_per_gpu(&self) -> (f64, f64) {
        if self.hbd.k() == 0 {
            return (0.0, 0.0);
        }
        let (k, r) = (f64::from(self.hbd.k()), f64::from(self.hbd.gpus_per_node()));
        (f64::from(MODULES_PER_BUNDLE) * k / r, f64::from(DACS_PER_EDGE) * (r - k) / r)
    }
}

impl Default for HbdLinks {
    /// 3.2 Tb/s a ring edge and direction (6.4 Tb/s a GPU), 100 ns inside a node, 200 ns between.
    fn default() -> Self {
        Self {
            edge_rate: BitsPerSecond::from_gbps(3200),
            inside_latency: Picoseconds::from_nanos(100),
            fibre_latency: Picoseconds::from_nanos(200),
        }
    }
}

impl Default for Transceiver {
    /// 60 to 80 µs (InfiniteHBD, published), 1 ms of software and receivers that keep their state, both assumptions.
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

impl Default for Parts {
    /// Unit prices recalled from the InfiniteHBD study; they reproduce its totals per GPU exactly.
    fn default() -> Self {
        Self {
            ocstrx: Dollars(600.0),
            fibre: Dollars(6.8),
            dac: Dollars(199.6),
            ocstrx_power: Watts(12.0),
            dac_power: Watts(0.1),
        }
    }
}

impl Default for FatTree {
    /// Four nodes a ToR, 64 ToRs a domain, non-blocking, 400 Gb/s, 1 µs a cable.
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
