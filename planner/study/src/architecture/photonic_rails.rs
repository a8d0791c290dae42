// SPDX-License-Identifier: Apache-2.0
//! Rails with optical circuit switches, `photonic-rails`. Circuits follow the phases of a step.
//!
//! The abstract of Opus (arXiv 2602.12521) states 1/23 of the power, 1/4 of the cost, and steps that are less than 6 %
//! longer; the model uses 6 %. Our own counts are one module and one optical switch port per network card.

use super::Architecture;
use super::bill::{Bill, NoBill, Site};
use super::fat_tree::{DcnCounts, dcn_bill};
use super::registry::DesignKind;

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[("photonic-rails", "rails of optical switches; a step is 6 % longer; price only")],
    parse: |text| (text == "photonic-rails").then(|| Box::new(PhotonicRails) as _),
};

#[derive(Clone, Copy, Debug)]
struct PhotonicRails;

impl Architecture for PhotonicRails {
    fn name(&self) -> String {
        "photonic-rails".to_owned()
    }

    fn step_stretch(&self) -> f64 {
        1.06
    }

    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        let counts = DcnCounts {
            switch_ports: (0.0, "hosts switch all packets".to_owned()),
            optics: (1.0, "one per network card".to_owned()),
            ocs_ports: Some((1.0, "one per network card".to_owned())),
        };
        Ok(dcn_bill(site.nic, "rails of optical switches".to_owned(), counts))
    }
}
