// SPDX-License-Identifier: Apache-2.0
//! Rubin Ultra NVL144 (Kyber): 144 GPUs of one rack under one tier of switches behind a midplane, `nvl:144`.
//!
//! Published: 3.6 TB/s of a GPU in both directions, and 260 TB/s of the 72 GPUs of the generation before, so 7.2 TB/s a switch
//! chip is half a chip a GPU. How many chips Kyber has was not published: the count is derived, the chip and the lanes of the
//! midplane cost what those of NVL72 cost. No optical module leaves the rack.

use super::bill::{Bill, BillLine, NoBill, Site};
use super::domains::{DOMAIN_POLICIES, domains, domains_under};
use super::part_loss::PartLoss;
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, FaultPolicy, UsableGpus};

const GPUS: u32 = 144;
/// Each direction.
const GBYTES_PER_S_PER_GPU: f64 = 1_800.0;
const CHIPS_PER_GPU: f64 = 0.5;
/// Lanes of 400 Gb/s, 36 each direction, priced as two cables of 200 Gb/s.
const LANES_PER_GPU: f64 = 72.0;

/// How it is written.
pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("nvl:144", "Rubin Ultra NVL144: one tier behind a midplane")],
    parse: |text| (text == "nvl:144").then(|| Box::new(Kyber) as _),
};

/// Racks of 144.
#[derive(Clone, Copy, Debug)]
struct Kyber;

impl Architecture for Kyber {
    fn name(&self) -> String {
        format!("nvl:{GPUS}")
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        domains(cluster, GPUS, tp)
    }

    fn fault_policies(&self) -> &'static [FaultPolicy] {
        DOMAIN_POLICIES
    }

    fn usable_under(
        &self,
        policy: FaultPolicy,
        spares: u32,
        cluster: Cluster,
        tp: u32,
    ) -> Result<Box<dyn UsableGpus>, CannotHold> {
        domains_under((policy, spares), cluster, GPUS, tp)
    }

    fn without(&self, part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        let chips = f64::from(GPUS) * CHIPS_PER_GPU;
        let of = if part == "nvlink-switch" { chips } else { LANES_PER_GPU };
        vec![(1.0, PartLoss::Slower { share: 1.0 / of })]
    }

    fn bill(&self, _: &Site) -> Result<Bill, NoBill> {
        let lines = vec![
            BillLine::new("nvlink-switch", CHIPS_PER_GPU, "3.6 TB/s ÷ 7.2 TB/s"),
            BillLine::new(
                "copper-200g",
                2.0 * LANES_PER_GPU,
                "14.4 Tb/s ÷ 0.4 Tb/s, each direction; two cables of 200 Gb/s for a lane of the midplane",
            ),
        ];
        let basis = format!("domains of {GPUS} GPUs, one tier");
        Ok(Bill { gbytes_per_s_per_gpu: GBYTES_PER_S_PER_GPU, basis, lines })
    }
}
