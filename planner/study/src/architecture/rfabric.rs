// SPDX-License-Identifier: Apache-2.0
//! Fat-trees with optical switches in upper tiers, named `rfabric`, `rfabric:thin`, `rfabric:core`.
//!
//! Counts are derived from a three-tier tree (5 switch ports and 6 optical modules per end point),
//! because RFabric's parts list was not available.

use super::Architecture;
use super::bill::{Bill, NoBill, Site};
use super::fat_tree::{DcnCounts, dcn_bill};
use super::registry::DesignKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Optical {
    AboveLeaves,
    /// Optical tiers above the leaves, plus an electrical core with a quarter of the bandwidth.
    AboveLeavesThinCore,
    /// Optical core above electrical leaves and aggregation.
    Core,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Rfabric {
    pub(super) optical: Optical,
}

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[
        ("rfabric", "electrical leaves, optical switches above; price only"),
        ("rfabric:thin", "the same with a 4:1 electrical core"),
        ("rfabric:core", "optical switches in the core only"),
    ],
    parse: |text| {
        let optical = match text {
            "rfabric" => Optical::AboveLeaves,
            "rfabric:thin" => Optical::AboveLeavesThinCore,
            "rfabric:core" => Optical::Core,
            _ => return None,
        };
        Some(Box::new(Rfabric { optical }))
    },
};

impl Architecture for Rfabric {
    fn name(&self) -> String {
        match self.optical {
            Optical::AboveLeaves => "rfabric",
            Optical::AboveLeavesThinCore => "rfabric:thin",
            Optical::Core => "rfabric:core",
        }
        .to_owned()
    }

    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        let (basis, ports, port_reason, optics, optics_reason) = match self.optical {
            Optical::AboveLeaves => (
                "electrical leaves, optical above",
                2.0,
                "down and up of the leaf",
                3.0,
                "network card, leaf down, leaf up",
            ),
            Optical::AboveLeavesThinCore => (
                "electrical leaves, optical above, with a 4:1 electrical core",
                2.0 + 0.25 * 3.0,
                "2 of the leaf, a quarter of the 3 above",
                3.0 + 0.25 * 3.0,
                "3 up to the leaf, a quarter of the 3 above",
            ),
            Optical::Core => (
                "electrical leaves and aggregation, optical core",
                4.0,
                "down and up of leaf and aggregation",
                5.0,
                "both ends of 2 links, and aggregation up",
            ),
        };
        Ok(dcn_bill(
            site.nic,
            basis.to_owned(),
            DcnCounts {
                switch_ports: (ports, port_reason.to_owned()),
                optics: (optics, optics_reason.to_owned()),
                ocs_ports: Some((1.0, "one uplink per GPU".to_owned())),
            },
        ))
    }
}
