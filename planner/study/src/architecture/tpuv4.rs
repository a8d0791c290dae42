// SPDX-License-Identifier: Apache-2.0
//! TPUv4, `tpuv4` and `tpuv4:strict`, with cubes of 64 GPUs connected by optical circuit switches.
//!
//! The block rule (fixed blocks of one group) reproduces the recalled mean waste. The strict rule (whole cubes) is the
//! fault radius in the abstract.

use super::bill::{Bill, BillLine, NoBill, Site, fibres};
use super::blocks::{Blocks, Layout};
use super::part_loss::PartLoss;
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, FaultPolicy, UsableGpus, check_size};

pub(super) const CUBE: u32 = 64;
const SIDE: u32 = 4;
/// An optical switch has 128 usable ports, two per cube.
const CUBES: u32 = 64;
/// Bandwidth per direction.
const GBYTES_PER_S_PER_GPU: f64 = 300.0;
const BOARD_LINKS_PER_TRAY: u32 = 4;
const GPUS_PER_TRAY: u32 = 4;
pub(super) const MODULES: f64 = (6 * SIDE * SIDE) as f64 / CUBE as f64;
/// A cube has 144 internal links, and 64 of these are on boards.
pub(super) const INNER_CABLES: f64 = (3 * SIDE * SIDE * (SIDE - 1)
    - CUBE / GPUS_PER_TRAY * BOARD_LINKS_PER_TRAY) as f64
    / CUBE as f64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Block,
    Cube,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tpuv4 {
    pub(super) loss: Loss,
}

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[
        ("tpuv4", "cubes of 64 TPUs; a fault takes its block out of service"),
        ("tpuv4:strict", "cubes of 64 TPUs; a fault takes its cube out of service"),
    ],
    parse: |text| {
        let loss = match text {
            "tpuv4" => Loss::Block,
            "tpuv4:strict" => Loss::Cube,
            _ => return None,
        };
        Some(Box::new(Tpuv4 { loss }))
    },
};

impl Architecture for Tpuv4 {
    fn name(&self) -> String {
        match self.loss {
            Loss::Block => "tpuv4".to_owned(),
            Loss::Cube => "tpuv4:strict".to_owned(),
        }
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        check_size(cluster, tp)?;
        let (gpus_per_block, blocks_joined, gpus_joined) = match self.loss {
            _ if tp >= CUBE => (CUBE, tp.div_ceil(CUBE), tp),
            Loss::Block => (tp, 1, tp),
            Loss::Cube => (CUBE, 1, CUBE / tp * tp),
        };
        let gpus_per_domain = CUBE;
        let layout = Layout {
            gpus_per_domain,
            gpus_per_block,
            blocks_joined,
            gpus_joined,
            blocks_per_pod: u32::MAX,
        };
        Ok(Box::new(Blocks::new(cluster, layout)))
    }

    fn fault_policies(&self) -> &'static [FaultPolicy] {
        &[FaultPolicy::SpareCubes]
    }

    fn mean_hops(&self, tp: u32) -> f64 {
        torus_hops(tp)
    }

    /// An open torus makes its cube unusable. An optical switch is one of 48.
    fn without(&self, part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        let loss = match part {
            "palomar-ocs" => PartLoss::Slower { share: 1.0 / 48.0, around: None },
            _ => PartLoss::Out { gpus: CUBE },
        };
        vec![(1.0, loss)]
    }

    fn bill(&self, _: &Site) -> Result<Bill, NoBill> {
        let lines = vec![
            BillLine::new(
                "palomar-ocs",
                3.0 * (SIDE * SIDE) as f64 / (CUBES * CUBE) as f64,
                "one for each of 3·4·4 pairs of opposite links, for 4096 GPUs",
            ),
            BillLine::new("optical-400g", MODULES, "6 faces of 4·4 links, for 64 GPUs"),
            fibres(MODULES),
            BillLine::new(
                "dac-400g",
                INNER_CABLES,
                "144 links within a cube less 64 on boards, for 64 GPUs",
            ),
        ];
        let basis = "a full system of 64 cubes, 4096 GPUs".to_owned();
        Ok(Bill { gbytes_per_s_per_gpu: GBYTES_PER_S_PER_GPU, basis, lines })
    }
}

/// Mean hops per byte of an all-to-all. From 64 GPUs on, optical links close each dimension into a ring, and a ring of
/// n GPUs adds n/4 hops. In a smaller mesh of side s, each dimension adds (s − 1/s)/3 hops.
pub(super) fn torus_hops(tp: u32) -> f64 {
    let side = f64::from(tp.min(CUBE)).cbrt();
    if tp >= CUBE {
        2.0 * f64::from(SIDE) / 4.0 + f64::from(tp / CUBE * SIDE) / 4.0
    } else {
        (side - 1.0 / side).max(1.0)
    }
}
