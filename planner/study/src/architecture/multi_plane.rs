// SPDX-License-Identifier: Apache-2.0
//! Two-tier Clos networks, `multi-plane:8`, whose network cards are split over planes.
//!
//! The published figures (MRC) are 2/3 of the optics and 3/5 of the switches of a three-tier network.

use super::Architecture;
use super::bill::{Bill, NoBill, Site};
use super::fat_tree::{DcnCounts, dcn_bill};
use super::part_loss::{PartLoss, of_links_to_hosts};
use super::registry::{DesignKind, number};

const SWITCH_GBPS: u32 = 51_200;
const LANE_GBPS: u32 = 100;

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[(
        "multi-plane:P",
        "two tiers, P planes per network card; `multi-plane:8`; price only",
    )],
    parse: |text| {
        let planes = number(text.strip_prefix("multi-plane:")?, 64)?;
        Some(Box::new(MultiPlane { planes }))
    },
};

#[derive(Clone, Copy, Debug)]
struct MultiPlane {
    planes: u32,
}

impl Architecture for MultiPlane {
    fn name(&self) -> String {
        format!("multi-plane:{}", self.planes)
    }

    /// A GPU whose host loses a link or port has one plane fewer. Switches reroute traffic.
    fn without(&self, part: &str, _: &Site) -> Vec<(f64, PartLoss)> {
        let slower =
            PartLoss::Slower { share: 1.0 / f64::from(self.planes.max(2)), around: Some(1) };
        match part.split('-').next() {
            Some("dcn") => of_links_to_hosts(2.0 / 4.0, slower),
            Some("switch") => of_links_to_hosts(1.0 / 3.0, slower),
            _ => vec![(1.0, PartLoss::Out { gpus: 1 })],
        }
    }

    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        let (planes, nic) = (self.planes, site.nic.gbps());
        if nic % planes != 0 || nic / planes < LANE_GBPS {
            return Err(NoBill(format!(
                "a network card of {nic} Gb/s cannot have {planes} planes of {LANE_GBPS} Gb/s or more"
            )));
        }
        let ports = SWITCH_GBPS / (nic / planes);
        let ends = u64::from(ports).pow(2) / 2;
        if ends < u64::from(site.gpus) {
            return Err(NoBill(format!(
                "two tiers of {ports}-port planes have {ends} end points, but {} are needed",
                site.gpus
            )));
        }
        let basis = format!("{planes} planes of two tiers of {ports}-port switches");
        let counts = DcnCounts {
            switch_ports: (3.0, "2 of the lower tier, 1 of the upper, over all planes".to_owned()),
            optics: (4.0, "both ends of one link per tier, over all planes".to_owned()),
            ocs_ports: None,
        };
        Ok(dcn_bill(site.nic, basis, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Site, parse};
    use crate::architecture::NicRate;

    #[test]
    fn two_tiers_of_planes_hold_131072_gpus_with_two_thirds_of_the_optics() {
        let site = |gpus| Site { gpus, gpus_per_node: 8, nic: NicRate::G800 };
        let counts = |design: &str, gpus| -> Vec<f64> {
            let bill = parse(design).unwrap().bill(&site(gpus)).unwrap();
            bill.lines.iter().map(|line| line.count_per_gpu).collect()
        };
        let planes = counts("multi-plane:8", 131_072);
        let tree = counts("fat-tree:128:3", 131_072);
        assert!((planes[1] / tree[1] - 3.0 / 5.0).abs() < 1e-12, "{planes:?} {tree:?}");
        assert!((planes[2] / tree[2] - 2.0 / 3.0).abs() < 1e-12, "{planes:?} {tree:?}");
        let more = parse("multi-plane:8").unwrap().bill(&site(131_073)).unwrap_err().to_string();
        assert!(more.contains("have 131072 end points, but 131073 are needed"), "{more}");
        let slow = Site { nic: NicRate::G400, ..site(8) };
        assert!(parse("multi-plane:8").unwrap().bill(&slow).is_err());
        assert!(parse("multi-plane:4").unwrap().bill(&slow).is_ok());
    }
}
