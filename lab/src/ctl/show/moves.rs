// SPDX-License-Identifier: Apache-2.0
//! The preview of an apply: a table of moves, followed by the bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use lightloom_daemon_api::alarm::{self, since};
use lightloom_daemon_api::circuit::CircuitCounts;
use lightloom_daemon_api::diff::{DeviceBytes, Diff, MoveView, OtherChange};
use lightloom_daemon_api::text::{NAMES_MAX, count, named, natural, span};

use super::{is_module, is_switch, or_dash, place, slot};
use crate::ctl::time;
use lightloom::table::TextTable;

#[derive(Default)]
pub(in crate::ctl) struct PreviewStyle {
    pub(in crate::ctl) bytes: bool,
    pub(in crate::ctl) overwrites: bool,
    pub(in crate::ctl) by_device: bool,
}

impl PreviewStyle {
    pub(in crate::ctl) fn page(&self, diff: &Diff) -> String {
        let moves = &diff.moves;
        if moves.is_empty() {
            let page = "no change needed: every device is already in position\n";
            return page.to_owned() + &what_becomes(diff) + &parts(diff);
        }
        let mut page = summary(diff, moves) + &what_becomes(diff) + &parts(diff);
        if self.by_device {
            let _ = writeln!(page, "\n{}", by_device(moves));
        }
        let _ = writeln!(page, "\n{}", table(moves));
        let _ = writeln!(page, "{}\n", darkness(moves));
        page.push_str(&self.bytes(&diff.bytes));
        if self.overwrites {
            let words = &diff.confirmation;
            let _ = writeln!(page, "\nthis mode requires --confirmation '{words}'");
        }
        page
    }

    fn bytes(&self, devices: &[DeviceBytes]) -> String {
        let mut page = String::new();
        for DeviceBytes { device, trouble, .. } in devices {
            if let Some(why) = trouble {
                let _ = writeln!(page, "{device}: bytes unknown: {why}");
            }
        }
        for (requests, names) in self.alike(devices) {
            let count = count(names.len(), "device");
            let names = if self.bytes {
                names.concat()
            } else {
                format!("{count}: {}", named(names, NAMES_MAX))
            };
            let _ = writeln!(page, "bytes to {names}");
            for request in requests {
                let _ = writeln!(page, "  {request}");
            }
        }
        page
    }

    fn alike<'a>(&self, devices: &'a [DeviceBytes]) -> Vec<(&'a [String], Vec<String>)> {
        let mut sorted: Vec<&DeviceBytes> =
            devices.iter().filter(|device| !device.requests.is_empty()).collect();
        sorted.sort_by_cached_key(|device| natural(&device.device));
        let mut together: Vec<(&[String], Vec<String>)> = Vec::new();
        let mut places = BTreeMap::<(&[String], &str), usize>::new();
        for DeviceBytes { device, requests, .. } in sorted {
            let key = (&requests[..], if self.bytes { device } else { "" });
            let place = *places.entry(key).or_insert(together.len());
            match together.get_mut(place) {
                Some((_, names)) => names.push(device.clone()),
                None => together.push((requests, vec![device.clone()])),
            }
        }
        together
    }
}

fn what_becomes(diff: &Diff) -> String {
    let mut page = String::new();
    for (changes, what) in [(&diff.undoes, "undoes"), (&diff.restores, "restores")] {
        let changes = changes
            .iter()
            .map(|OtherChange { txn, actor, summary }| format!("{txn} ({summary}, by {actor})"));
        let changes: Vec<String> = changes.collect();
        if !changes.is_empty() {
            let _ = writeln!(page, "{what}: {}", changes.join("; "));
        }
    }
    let plan = &diff.plan_sha256;
    if diff.no_plan_after {
        page += "NO PLAN remains afterwards: faults are not bypassed until a plan is applied\n";
    } else if !plan.is_empty() {
        let _ = writeln!(page, "plan afterwards: {}", plan.get(..12).unwrap_or(plan));
    }
    if let Some(CircuitCounts { before, after }) = diff.circuits {
        let _ = writeln!(page, "circuits up: {before} now, {after} afterwards");
    }
    if let Some(crossed) = alarm::crossed(&diff.crossed, None) {
        let _ = writeln!(page, "{crossed}");
    }
    page
}

fn by_device(moves: &[MoveView]) -> TextTable {
    #[derive(Default)]
    struct Change {
        moves: usize,
        dark: usize,
        lit: usize,
        waves: BTreeSet<usize>,
    }
    let mut changes: BTreeMap<String, Change> = BTreeMap::new();
    for m in moves {
        let change = changes.entry(m.device.clone()).or_default();
        change.moves += 1;
        change.dark += usize::from(m.from != 0);
        change.lit += usize::from(m.to != 0);
        change.waves.insert(m.wave);
    }
    let mut changes: Vec<(String, Change)> = changes.into_iter().collect();
    changes.sort_by_cached_key(|(name, _)| (is_switch(name), natural(name)));
    let mut table =
        TextTable::new(["device", "half", "moves", "go dark", "get light", "in waves"]).verbatim();
    for (name, change) in changes {
        let half = match (is_switch(&name), is_module(&name)) {
            (true, _) => "circuits",
            (_, true) => "rings",
            _ => "-",
        };
        let waves = change.waves.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let numbers = [change.moves, change.dark, change.lit].map(|count| count.to_string());
        table.row([name, half.to_owned()].into_iter().chain(numbers).chain([waves]));
    }
    table
}

fn parts(diff: &Diff) -> String {
    let mut page = String::new();
    let listed =
        [(&diff.broken, "known faults afterwards"), (&diff.forgets, "TREATED AS REPAIRED")];
    for (parts, what) in listed {
        if !parts.is_empty() {
            let parts = parts.iter().map(|part| since(part, time::moment)).collect();
            let _ = writeln!(page, "{what}: {}", named(parts, NAMES_MAX));
        }
    }
    page
}

fn summary(diff: &Diff, moves: &[MoveView]) -> String {
    let mut devices: Vec<&str> = moves.iter().map(|m| m.device.as_str()).collect();
    devices.dedup();
    let mut page = format!(
        "{} on {} in {}, against version {}\n",
        count(moves.len(), "move"),
        count(devices.len(), "device"),
        count(diff.waves, "wave"),
        diff.version,
    );
    if !diff.phase.is_empty() {
        let _ = writeln!(page, "{}", diff.phase);
    }
    let _ = writeln!(page, "at most {} dark at a time", count(diff.dark_links_max, "link"));
    page
}

fn table(moves: &[MoveView]) -> TextTable {
    let headings =
        ["wave", "device", "part", "from", "to", "goes dark", "comes up", "failure domain"];
    let mut sorted: Vec<&MoveView> = moves.iter().collect();
    sorted.sort_by_cached_key(|m| (m.wave, natural(&m.device)));
    let mut table = TextTable::new(headings).verbatim();
    for m in sorted {
        table.row([
            m.wave.to_string(),
            m.device.clone(),
            slot(&m.device, m.slot),
            place(&m.device, m.from),
            place(&m.device, m.to),
            or_dash(m.goes_dark.as_ref()),
            or_dash(m.comes_up.as_ref()),
            m.domain.clone(),
        ]);
    }
    table
}

fn darkness(moves: &[MoveView]) -> String {
    let dark = moves.iter().filter(|m| m.goes_dark.is_some()).count();
    let due_ps = moves.iter().map(|m| m.answer_within_ps).max().unwrap_or(0);
    let due = span(due_ps as f64 / 1e12);
    match dark {
        0 => "no circuit goes dark".into(),
        _ => format!(
            "a circuit is dark from the first command to either end until both ends are read back with \
                light; after {due} without an answer, the result is unknown and the device is read instead"
        ),
    }
}
