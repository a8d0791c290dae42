// SPDX-License-Identifier: Apache-2.0

use lightloom_daemon_api::alarm::{unreachable_names, way};
use lightloom_daemon_api::device::{DeviceState, DeviceStatus};
use lightloom_daemon_api::status::Status;
use lightloom_daemon_api::text::{NAMES_MAX, count, named};

fn unseen(status: &Status) -> impl Iterator<Item = &DeviceStatus> {
    status.devices.iter().filter(|device| device.state == DeviceState::Unseen)
}

pub(in crate::ctl) fn waited_for<'a>(named: &[&str], status: &'a Status) -> Vec<&'a DeviceStatus> {
    let waited_for = unseen(status).filter(|device| match named {
        [] => !is_gone_around(device, status),
        named => named.iter().any(|part| is_of(device, part)),
    });
    waited_for.collect()
}

pub(in crate::ctl) fn not_a_device<'a>(named: &[&'a str], status: &Status) -> Option<&'a str> {
    named.iter().copied().find(|part| !status.devices.iter().any(|device| is_of(device, part)))
}

fn is_of(device: &DeviceStatus, part: &str) -> bool {
    let rest = device.name.strip_prefix(part);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_gone_around(device: &DeviceStatus, status: &Status) -> bool {
    let mut around = status.broken_parts.iter().filter(|part| part.bypassed);
    device.trouble.is_some() && around.any(|broken| is_of(device, &broken.part))
}

pub(in crate::ctl) fn all_read(only: &[&str], status: &Status) -> String {
    if !only.is_empty() {
        return format!("read: {}\n", only.join(", "));
    }
    let dead: Vec<String> = unseen(status).map(|device| device.name.clone()).collect();
    let read = count(status.devices.len() - dead.len(), "device");
    if dead.is_empty() {
        return format!("{read} read\n");
    }
    let them = if dead.len() == 1 { "it" } else { "them" };
    let names = named(dead, NAMES_MAX);
    format!("{read} read; {names} cannot be read, but the plan bypasses {them}\n")
}

pub(in crate::ctl) fn on_its_way(txn: u32, status: &Status, elapsed: &str) -> String {
    let open = status.transaction.clone().unwrap_or_default();
    let unseen: Vec<&DeviceStatus> = unseen(status).collect();
    let silent = if unseen.is_empty() {
        String::new()
    } else {
        format!("; cannot be read: {}", unreachable_names(&unseen))
    };
    let (way, devices) = (way(&open), count(open.devices, "device"));
    format!("transaction {txn}: {way} for {elapsed} now, {devices}{silent}")
}
