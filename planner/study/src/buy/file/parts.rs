// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;

use lightloom_fabric::document::{self, Check};

use super::super::{Candidate, PartRate};
use super::{MS_PER_DAY, PartFaultRecord, refuse};
use crate::architecture::Site;

pub(super) fn rates(
    records: &[PartFaultRecord],
    candidates: &[Candidate],
    site: &Site,
    check: &mut Check<'_>,
) -> Vec<PartRate> {
    let designs = candidates.iter().map(|candidate| candidate.design.as_ref());
    let networks = candidates.iter().filter_map(|candidate| candidate.network.as_deref());
    let bills = designs.chain(networks).filter_map(|design| design.bill(site).ok());
    let known: BTreeSet<String> = bills.flat_map(|bill| bill.lines).map(|line| line.part).collect();
    let mut rates: Vec<PartRate> = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let part = format!("/part_faults/{index}/part");
        if rates.iter().any(|rate| rate.part == record.part) {
            let message = format!("`{}` has a second rate", record.part);
            refuse(check, &part, message, "list each part once");
        }
        if !known.contains(&record.part) {
            let message = format!("no listed design has a part `{}`", record.part);
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let help = document::instead_of(&record.part, &known);
            refuse(check, &part, message, help);
        }
        let [mtbf_ms, repair_ms] =
            [record.mtbf_hours, record.repair_hours].map(|hours| hours * MS_PER_DAY / 24.0);
        rates.push(PartRate { part: record.part.clone(), mtbf_ms, repair_ms });
    }
    rates
}
