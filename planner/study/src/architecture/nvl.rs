// SPDX-License-Identifier: Apache-2.0
//! NVLink switch domains, such as `nvl:72`, or `nvl:36x2` for one domain of two racks with 36 GPUs each.
//!
//! Groups use any healthy GPUs of one domain. NVL-72's counting rule is recalled, like the mean waste it reproduces.
//!
//! `nvl:144` is Rubin Ultra NVL144 (Kyber), with one rack, one tier of switches behind a midplane, and no optical
//! modules. The published values are 3.6 TB/s per GPU over both directions, and 260 TB/s for the 72 GPUs of the
//! previous generation. The number of switch chips is not published; 7.2 TB/s per chip would mean half a chip per GPU.
//! Chips and midplane lanes are priced like NVL72's parts.

use super::bill::{Bill, BillLine, NoBill, Site, fibres};
use super::domains::{DOMAIN_POLICIES, domains, domains_under};
use super::part_loss::PartLoss;
use super::registry::{DesignKind, number};
use super::{Architecture, CannotHold, Cluster, FaultPolicy, UsableGpus};

/// Bandwidth per direction.
const GBYTES_PER_S_PER_GPU: f64 = 900.0;
/// Ports of 50 GB/s provide four times the bandwidth of a GPU.
const PORTS_PER_CHIP: u32 = 72;
const CHIPS_PER_TIER_SIDE: f64 = 0.25;
/// Cables of 200 Gb/s for 36 lanes per direction, which gives the published 5,184 for NVL72.
const CABLES_PER_GPU: f64 = 72.0;
/// Cables of 1.6 Tb/s between racks, for the full bandwidth of the GPU.
const TRUNKS_PER_GPU: f64 = 7.2 / 1.6;
/// Optical modules of 1.6 Tb/s between two tiers. The recalled total cost implies 8; full bandwidth would need 9.
const OPTICS_PER_GPU: f64 = 8.0;

/// Number of GPUs, and gigabytes per second per GPU and direction.
const KYBER: (u32, f64) = (144, 1_800.0);
const KYBER_CHIPS_PER_GPU: f64 = 0.5;
/// Lanes of 400 Gb/s, 36 per direction, each priced as two cables of 200 Gb/s.
const KYBER_LANES_PER_GPU: f64 = 72.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Nvl {
    pub(super) gpus_per_rack: u32,
    pub(super) racks: u32,
}

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[
        ("nvl:144", "Rubin Ultra NVL144: one tier behind a midplane"),
        ("nvl:X", "NVLink switch domains of X GPUs; `nvl:72`"),
        ("nvl:XxN", "the same with N racks of X GPUs, such as `nvl:36x2`"),
    ],
    parse: |text| Some(Box::new(parse(text.strip_prefix("nvl:")?)?)),
};

fn parse(parameter: &str) -> Option<Nvl> {
    let (gpus, racks) = parameter.split_once('x').unwrap_or((parameter, "1"));
    Some(Nvl { gpus_per_rack: number(gpus, 1 << 20)?, racks: number(racks, 1 << 10)? })
}

impl Architecture for Nvl {
    fn name(&self) -> String {
        match self.racks {
            1 => format!("nvl:{}", self.gpus_per_rack),
            racks => format!("nvl:{}x{racks}", self.gpus_per_rack),
        }
    }

    fn usable(&self, cluster: Cluster, tp: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        domains(cluster, self.gpus_per_rack * self.racks, tp)
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
        domains_under(policy, spares, cluster, self.gpus_per_rack * self.racks, tp)
    }

    /// There is one chip per four GPUs (two in Kyber). A cable is one of 36 (one of two per lane in Kyber).
    fn without(&self, part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        let (chips, cables) = match self.is_kyber() {
            true => (KYBER_CHIPS_PER_GPU, KYBER_LANES_PER_GPU),
            false => (CHIPS_PER_TIER_SIDE, CABLES_PER_GPU / 2.0),
        };
        let chips = f64::from(self.gpus_per_rack * self.racks) * chips;
        let of = if part == "nvlink-switch" { chips } else { cables };
        let domain = self.gpus_per_rack * self.racks;
        let around = Some(if part == "nvlink-switch" { domain } else { 1 });
        vec![(1.0, PartLoss::Slower { share: 1.0 / of.max(2.0), around })]
    }

    fn bill(&self, _: &Site) -> Result<Bill, NoBill> {
        if self.is_kyber() {
            return Ok(kyber_bill());
        }
        let (racks, gpus) = (self.racks, self.gpus_per_rack);
        let copper =
            BillLine::new("copper-200g", CABLES_PER_GPU, "7.2 Tb/s ÷ 0.2 Tb/s, each direction");
        let (basis, mut lines) = match racks {
            1 if gpus <= PORTS_PER_CHIP => {
                ("one tier", vec![chips(1.0, "900 GB/s ÷ (72 · 50 GB/s)")])
            }
            1 if gpus <= PORTS_PER_CHIP * PORTS_PER_CHIP / 2 => (
                "two tiers",
                vec![
                    chips(3.0, "lower tier down and up, upper tier down"),
                    BillLine::new("optical-1.6t", OPTICS_PER_GPU, "fitted to a total"),
                    fibres(OPTICS_PER_GPU),
                ],
            ),
            2 if gpus <= PORTS_PER_CHIP / 2 => (
                "two racks, back to back",
                vec![
                    chips(2.0, "half of the ports to GPUs, half to the other rack"),
                    BillLine::new(
                        "acc-1.6t",
                        TRUNKS_PER_GPU / 2.0,
                        "7.2 ÷ 1.6 per GPU, shared by two racks",
                    ),
                ],
            ),
            _ => return Err(NoBill(format!("no parts list for {}", self.name()))),
        };
        lines.insert(1, copper);
        let basis = format!("domains of {} GPUs, {basis}", gpus * racks);
        Ok(Bill { gbytes_per_s_per_gpu: GBYTES_PER_S_PER_GPU, basis, lines })
    }
}

fn chips(sides: f64, formula: &str) -> BillLine {
    BillLine::new("nvlink-switch", sides * CHIPS_PER_TIER_SIDE, formula)
}

impl Nvl {
    const fn is_kyber(&self) -> bool {
        self.racks == 1 && self.gpus_per_rack == KYBER.0
    }
}

fn kyber_bill() -> Bill {
    let lines = vec![
        BillLine::new("nvlink-switch", KYBER_CHIPS_PER_GPU, "3.6 TB/s ÷ 7.2 TB/s"),
        BillLine::new(
            "copper-200g",
            2.0 * KYBER_LANES_PER_GPU,
            "14.4 Tb/s ÷ 0.4 Tb/s, each direction; two cables of 200 Gb/s for a lane of the midplane",
        ),
    ];
    let basis = format!("domains of {} GPUs, one tier", KYBER.0);
    Bill { gbytes_per_s_per_gpu: KYBER.1, basis, lines }
}
