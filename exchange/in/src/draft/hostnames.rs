// SPDX-License-Identifier: Apache-2.0
//! Drafts `hostnames.txt`, the names of the drafted fabric's nodes for `--hostnames`.

use super::{Draft, DraftPage, Sourced};
use crate::logs::{HostRecord, Logs};

/// Hosts below the same switch get consecutive ids, because nodes fill the fabric's ToRs in order.
pub(super) fn write(logs: &Logs, draft: &mut Draft) {
    let mut hosts: Vec<(&String, &HostRecord)> =
        logs.hosts.iter().filter(|(_, host)| host.place.is_some()).collect();
    // Among names of equal length, numbers are in order.
    hosts.sort_by_key(|(name, host)| {
        let from_top: Vec<&String> = host.switches.iter().rev().collect();
        (from_top, &host.domain, name.len(), *name)
    });
    let Some((first, _)) = hosts.first() else { return };
    let mut page =
        DraftPage::new("hostnames.txt", "For `--hostnames` of lightloom export and ctl.");
    let why = "hosts in the order of their switches, domains and names";
    page.guess("n0", &Sourced::derived(*first, why));
    for (number, (name, _)) in hosts.iter().enumerate() {
        page.put(&format!("n{number} {name}"));
    }
    page.end(draft);
}
