// SPDX-License-Identifier: Apache-2.0
//! Electrical fat-trees of k-port switches, `fat-tree:64` and `fat-tree:64:3`.
//!
//! A non-blocking tree of n tiers has 2·(k/2)^n end points. Only used ports are counted.

use super::Architecture;
use super::bill::{Bill, BillLine, NicRate, NoBill, Site};
use super::part_loss::{PartLoss, of_links_to_hosts};
use super::registry::{DesignKind, number};

const MOST_TIERS: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub(super) struct FatTree {
    pub(super) radix: u32,
    /// Number of tiers. `None` for the minimum.
    pub(super) tiers: Option<u32>,
}

impl FatTree {
    fn end_points(self, tiers: u32) -> u64 {
        2 * u64::from(self.radix / 2).pow(tiers)
    }

    fn tiers_for(self, end_points: u32) -> Result<u32, NoBill> {
        let most = self.tiers.unwrap_or(MOST_TIERS);
        let least = self.tiers.unwrap_or(1);
        let mut tiers = least..=most;
        tiers.find(|tiers| self.end_points(*tiers) >= u64::from(end_points)).ok_or_else(|| {
            let (radix, capacity) = (self.radix, self.end_points(most));
            NoBill(format!(
                "a tree of {most} tiers of {radix}-port switches has {capacity} end points, \
                 but {end_points} are needed"
            ))
        })
    }
}

pub(super) const KIND: DesignKind = DesignKind {
    forms: &[
        (
            "fat-tree:K",
            "electrical fat-tree of K-port switches, as few tiers as suffice; price only",
        ),
        ("fat-tree:K:N", "the same with N tiers"),
    ],
    parse: |text| Some(Box::new(parse(text.strip_prefix("fat-tree:")?)?)),
};

fn parse(parameter: &str) -> Option<FatTree> {
    let (radix, tiers) = match parameter.split_once(':') {
        None => (parameter, None),
        Some((radix, tiers)) => (radix, Some(number(tiers, 3)?)),
    };
    let radix = number(radix, 1 << 12).filter(|radix| radix.is_multiple_of(2))?;
    Some(FatTree { radix, tiers })
}

impl Architecture for FatTree {
    fn name(&self) -> String {
        match self.tiers {
            None => format!("fat-tree:{}", self.radix),
            Some(tiers) => format!("fat-tree:{}:{tiers}", self.radix),
        }
    }

    /// A host that loses its only link is out of service. Switches reroute traffic.
    fn without(&self, part: &str, site: &Site) -> Vec<(f64, PartLoss)> {
        let tiers = f64::from(self.tiers_for(site.gpus).unwrap_or(MOST_TIERS));
        let out = PartLoss::Out { gpus: 1 };
        match part.split('-').next() {
            Some("dcn") => of_links_to_hosts(1.0 / tiers, out),
            Some("switch") => of_links_to_hosts(1.0 / (2.0 * tiers - 1.0), out),
            _ => vec![(1.0, out)],
        }
    }

    fn bill(&self, site: &Site) -> Result<Bill, NoBill> {
        let tiers = self.tiers_for(site.gpus)?;
        let basis = format!(
            "{tiers} tiers of {}-port switches for {} GPUs with one network card each",
            self.radix, site.gpus
        );
        Ok(dcn_bill(
            site.nic,
            basis,
            DcnCounts {
                switch_ports: (
                    f64::from(2 * tiers - 1),
                    "2 per tier, 1 in the top tier".to_owned(),
                ),
                optics: (f64::from(2 * tiers), "both ends of one link per tier".to_owned()),
                ocs_ports: None,
            },
        ))
    }
}

pub(super) struct DcnCounts {
    pub(super) switch_ports: (f64, String),
    pub(super) optics: (f64, String),
    pub(super) ocs_ports: Option<(f64, String)>,
}

pub(super) fn dcn_bill(nic: NicRate, basis: String, counts: DcnCounts) -> Bill {
    let mut lines = vec![
        BillLine::new(nic.part("nic"), 1.0, "one per GPU"),
        BillLine::new(nic.part("switch-port"), counts.switch_ports.0, counts.switch_ports.1),
        BillLine::new(nic.part("dcn-optical"), counts.optics.0, counts.optics.1),
    ];
    lines.retain(|line| line.count_per_gpu > 0.0);
    if let Some((count, formula)) = counts.ocs_ports {
        lines.push(BillLine::new("ocs-port", count, formula));
    }
    Bill { gbytes_per_s_per_gpu: f64::from(nic.gbps()) / 8.0, basis, lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bill(tree: FatTree, gpus: u32) -> Result<Bill, NoBill> {
        tree.bill(&Site { gpus, gpus_per_node: 8, nic: NicRate::G400 })
    }

    #[test]
    fn tree_has_as_many_tiers_as_its_end_points_need() {
        let tree = FatTree { radix: 64, tiers: None };
        for (gpus, ports) in [(64, 1.0), (65, 3.0), (2_048, 3.0), (2_049, 5.0), (65_536, 5.0)] {
            let bill = bill(tree, gpus).unwrap();
            assert!((bill.lines[1].count_per_gpu - ports).abs() < 1e-12, "{gpus}: {bill:?}");
            assert!((bill.lines[2].count_per_gpu - ports - 1.0).abs() < 1e-12, "{gpus}: {bill:?}");
        }
    }

    #[test]
    fn undersized_tree_error_states_its_capacity() {
        let error = bill(FatTree { radix: 64, tiers: None }, 65_537).unwrap_err().to_string();
        assert_eq!(
            error,
            "a tree of 3 tiers of 64-port switches has 65536 end points, but 65537 are needed"
        );
        assert!(bill(FatTree { radix: 64, tiers: Some(2) }, 2_049).is_err());
    }
}
