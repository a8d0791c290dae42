// SPDX-License-Identifier: Apache-2.0
//! A network like MixNet's, `mixnet`. Of eight network cards, two use a three-tier fat-tree and six
//! connect directly to optical circuit switches.
//!
//! Counts are our own derivation. With the prices of table 4 in the MixNet paper, they reproduce
//! the published cost ratio to a fat-tree (2.0 on average, 2.3 at 400 Gb/s).

use super::bill::{Bill, NoBill, Site};
use super::fat_tree::{DcnCounts, dcn_bill, not_a_domain};
use super::registry::DesignKind;
use super::{Architecture, CannotHold, Cluster, UsableGpus};

const ELECTRICAL: f64 = 2.0 / 8.0;
const TREE_PORTS: f64 = 5.0;
const TREE_OPTICS: f64 = 6.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Mixnet;

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("mixnet", "2 of 8 network cards on a fat-tree, 6 on optical switches; price only")],
    parse: |text| (text == "mixnet").then(|| Box::new(Mixnet) as _),
};

impl Architecture for Mixnet {
    fn name(&self) -> String {
        "mixnet".to_owned()
    }

    fn usable(&self, _: Cluster, _: u32) -> Result<Box<dyn UsableGpus>, CannotHold> {
        Err(not_a_domain())
    }

    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        let optical = 1.0 - ELECTRICAL;
        let basis = "2 of 8 network cards on a three-tier tree, 6 on optical switches".to_owned();
        Ok(dcn_bill(
            site.nic,
            basis,
            DcnCounts {
                switch_ports: (
                    ELECTRICAL * TREE_PORTS,
                    "2/8 of 5 for a three-tier tree".to_owned(),
                ),
                optics: (ELECTRICAL * TREE_OPTICS + optical, "2/8 of 6, and 6/8 of 1".to_owned()),
                ocs_ports: Some((optical, "6/8 of the network cards".to_owned())),
            },
        ))
    }
}
