// SPDX-License-Identifier: Apache-2.0
//! Output of `lightloom ctl status`, alarms first.

use std::fmt::Write;

use lightloom_daemon_api::alarm::{Alarm, alarms};
use lightloom_daemon_api::device::{DeviceState, DeviceStatus};
use lightloom_daemon_api::status::Status;
use lightloom_daemon_api::summary::summary;
use lightloom_daemon_api::text::natural;

use super::{history, is_module, place, slot};
use crate::ctl::time;
use lightloom::table::TextTable;

/// Above this number, the status lists only devices that differ from the desired state.
const DEVICES_LISTED: usize = 40;
const TRANSACTIONS_SHOWN: usize = 5;

pub(in crate::ctl) fn all_is_well(status: &Status) -> bool {
    alarms(status, time::moment).is_empty()
}

pub(in crate::ctl) fn status(status: &Status) -> String {
    let alarms = alarms(status, time::moment);
    let mut page: String = alarms.iter().map(|alarm: &Alarm| format!("{alarm}\n")).collect();
    if page.is_empty() {
        page.push_str("ALL IS WELL\n");
    }
    let lines = summary(status).into_iter().map(|line| format!("{line}\n"));
    page.push('\n');
    page.extend(lines);
    page += &devices(&status.devices);
    page.push('\n');
    page + &history::transactions(&status.transactions, TRANSACTIONS_SHOWN)
}

pub(in crate::ctl) fn is_deaf(status: &Status) -> bool {
    status.journal_damage.is_some()
}

fn devices(devices: &[DeviceStatus]) -> String {
    let all = devices.len() <= DEVICES_LISTED;
    let odd = devices.iter().filter(|device| all || device.state != DeviceState::AsWanted);
    let mut odd: Vec<&DeviceStatus> = odd.collect();
    odd.sort_by_cached_key(|device| natural(&device.name));
    if odd.is_empty() {
        return String::new();
    }
    let mut table =
        TextTable::new(["device", "state", "position", "identity or trouble"]).verbatim();
    for device in odd.iter().take(DEVICES_LISTED) {
        let DeviceStatus { name, state, identity, trouble, .. } = *device;
        let about = trouble.as_ref().unwrap_or(identity);
        table.row([name.clone(), state.to_string(), standing(device), about.clone()]);
    }
    let mut page = table.to_string();
    let more = odd.len().saturating_sub(DEVICES_LISTED);
    if more > 0 {
        let _ = writeln!(page, "and {more} more: lightloom ctl status --format json");
    }
    page
}

fn standing(device: &DeviceStatus) -> String {
    let name = &device.name;
    let mut slots: Vec<(&String, u32)> =
        device.slots.iter().map(|(slot, to)| (slot, *to)).collect();
    slots.sort_by_key(|(slot, _)| natural(slot));
    let more = slots.len().saturating_sub(4);
    let shown =
        slots.into_iter().take(4).map(|(number, to)| match is_module(name) && number == "0" {
            true => place(name, to),
            false => format!("{} to {to}", slot(name, number)),
        });
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    shown.collect::<Vec<_>>().join(", ") + &more
}

#[cfg(test)]
mod tests {
    #[test]
    fn status_of_another_daemon_version_is_still_shown() {
        let other = serde_json::json!({
            "daemon": "9.0.0", "colour": "red",
            "devices": [{"name": "n1/b0", "state": "dozing", "slots": {"0": 1}}],
            "transaction": {"txn": 3, "kind": "dance", "actor": "uid:0", "devices": 1},
        });
        let shown = super::status(&serde_json::from_value(other).unwrap());
        let first = "transaction 3 IN PROGRESS: 1 device, going forward, requested by uid:0\n";
        assert!(shown.starts_with(first), "{shown}");
        assert!(shown.contains("n1/b0   dozing  external-1"), "{shown}");
        assert!(!shown.contains("NO BYPASS LEFT"), "{shown}");
    }
}
