// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

use lightloom_daemon_api::alarm;
use lightloom_daemon_api::device::DriftedSlot;
use lightloom_daemon_api::drift::DriftReport;
use lightloom_daemon_api::text::{NAMES_MAX, count, named, natural};

use super::{place, slot};
use lightloom::table::TextTable;

pub(in crate::ctl) fn drift(report: &DriftReport) -> String {
    let mut slots: Vec<&DriftedSlot> = report.slots.iter().collect();
    slots.sort_by_cached_key(|drifted| natural(&drifted.device));
    let mut table = TextTable::new(["device", "part", "journal says", "device says"]).verbatim();
    for DriftedSlot { device, slot: number, ledger, device_says } in &slots {
        let places = [*ledger, *device_says].map(|position| place(device, position));
        table.row([device.clone(), slot(device, number)].into_iter().chain(places));
    }
    let mut page = match (slots.is_empty(), report.complete) {
        (true, true) => "no drift: every device was read and matches the journal\n".into(),
        (true, false) => "no drift found, but the check is incomplete:\n".into(),
        (false, _) => table.to_string(),
    };
    if let Some((about, next)) = report.journal_damage.as_ref().map(alarm::damage) {
        let _ = writeln!(
            page,
            "JOURNAL DAMAGED, the intended positions are unknown: {about}\n  {next}"
        );
    }
    if let Some(crossed) = alarm::crossed(&report.crossed, None) {
        let _ = writeln!(page, "{crossed}");
    }
    if !report.unseen.is_empty() {
        let (count, names) =
            (count(report.unseen.len(), "device"), named(report.unseen.clone(), NAMES_MAX));
        let _ = writeln!(page, "UNSEEN, {count}: {names}\n  why: lightloom ctl status");
    }
    page
}
