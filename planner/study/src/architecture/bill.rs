// SPDX-License-Identifier: Apache-2.0
//! Bills of materials: how many of which part a design needs for each GPU.
//!
//! A design derives its counts from what it is (bandwidth of a GPU, ports of a switch chip, K and R
//! of a k-hop ring); prices and watts are not known here, but in a price file.

use serde::Serialize;

/// What a bill depends on besides the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// GPUs, where the size matters (tiers of a fat-tree).
    pub gpus: u32,
    /// GPUs of a node, where it matters (k-hop ring).
    pub gpus_per_node: u32,
    /// Rate of the one network card that each GPU has, for data-centre networks.
    pub nic: NicRate,
}

/// Rates of network cards that there are prices for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NicRate {
    /// 100 Gb/s.
    G100,
    /// 200 Gb/s.
    G200,
    /// 400 Gb/s.
    G400,
    /// 800 Gb/s.
    G800,
}

impl NicRate {
    /// All of them, slowest first.
    pub const ALL: [Self; 4] = [Self::G100, Self::G200, Self::G400, Self::G800];

    /// The rate in Gb/s, each direction.
    #[must_use]
    pub const fn gbps(self) -> u32 {
        match self {
            Self::G100 => 100,
            Self::G200 => 200,
            Self::G400 => 400,
            Self::G800 => 800,
        }
    }

    /// The name of the part `kind` at this rate: `nic-400g`.
    pub(super) fn part(self, kind: &str) -> String {
        format!("{kind}-{}g", self.gbps())
    }
}

/// The interconnect of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bill {
    /// What it connects a GPU with: gigabytes per second, each direction.
    pub gbytes_per_s_per_gpu: f64,
    /// What size of system the counts are averages over.
    pub basis: String,
    /// The parts.
    pub lines: Vec<BillLine>,
}

/// One part of a bill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BillLine {
    /// The name of the part in the price file.
    pub part: String,
    /// How many, on average.
    pub count_per_gpu: f64,
    /// Where the count comes from.
    pub formula: String,
}

impl BillLine {
    pub(super) fn new(
        part: impl Into<String>,
        count_per_gpu: f64,
        formula: impl Into<String>,
    ) -> Self {
        Self { part: part.into(), count_per_gpu, formula: formula.into() }
    }
}

/// Why a design has no bill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoBill(pub String);

/// A fibre to every optical module.
pub(super) fn fibres(modules_per_gpu: f64) -> BillLine {
    BillLine::new("fibre", modules_per_gpu, "one to every optical module")
}
