// SPDX-License-Identifier: Apache-2.0
//! Bills of materials with the number of each part per GPU.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Number of GPUs, which determines the tiers of a fat-tree.
    pub gpus: u32,
    pub gpus_per_node: u32,
    pub nic: NicRate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NicRate {
    G100,
    G200,
    G400,
    G800,
}

impl NicRate {
    pub const ALL: [Self; 4] = [Self::G100, Self::G200, Self::G400, Self::G800];

    pub const fn gbps(self) -> u32 {
        match self {
            Self::G100 => 100,
            Self::G200 => 200,
            Self::G400 => 400,
            Self::G800 => 800,
        }
    }

    pub(crate) fn part(self, kind: &str) -> String {
        format!("{kind}-{}g", self.gbps())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bill {
    /// Bandwidth per GPU and direction.
    pub gbytes_per_s_per_gpu: f64,
    /// System size for which the parts per GPU are averaged.
    pub basis: String,
    pub lines: Vec<BillLine>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BillLine {
    /// Tier or bank of a fabric. Empty in built-in designs.
    pub place: String,
    pub part: String,
    pub count_per_gpu: f64,
    pub formula: String,
}

impl BillLine {
    pub(crate) fn new(
        part: impl Into<String>,
        count_per_gpu: f64,
        formula: impl Into<String>,
    ) -> Self {
        Self { place: String::new(), part: part.into(), count_per_gpu, formula: formula.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoBill(pub String);

pub(super) fn fibres(modules_per_gpu: f64) -> BillLine {
    BillLine::new("fibre", modules_per_gpu, "one per optical module")
}
