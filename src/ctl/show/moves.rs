//! What an apply would do: the moves in a table, then the bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use super::status::since;
use super::{count, crossed, is_module, is_switch, list, named, natural, place, slot, text};
use crate::ctl::time;
use crate::table::Table;

/// How many names a line holds.
const NAMES_MAX: usize = 6;

/// How to show a preview.
pub(in crate::ctl) struct Preview {
    /// The bytes of every device, also where they are the same.
    pub(in crate::ctl) bytes: bool,
    /// It needs the words that confirm it.
    pub(in crate::ctl) overwrites: bool,
    /// What changes on each device comes first.
    pub(in crate::ctl) by_device: bool,
}

impl Preview {
    /// What an apply would do.
    pub(in crate::ctl) fn page(&self, diff: &Value) -> String {
        let moves = list(&diff["moves"]);
        if moves.is_empty() {
            let page = "nothing has to move: every device stands there already\n";
            return page.to_owned() + &what_becomes(diff) + &parts(diff);
        }
        let mut page = summary(diff, moves) + &what_becomes(diff) + &parts(diff);
        if self.by_device {
            let _ = writeln!(page, "\n{}", by_device(moves));
        }
        let _ = writeln!(page, "\n{}", table(moves));
        let _ = writeln!(page, "{}\n", darkness(moves));
        page.push_str(&self.bytes(list(&diff["bytes"])));
        if self.overwrites {
            let words = text(&diff["confirmation"]);
            let _ = writeln!(page, "\nthis mode wants the words: --confirmation '{words}'");
        }
        page
    }

    fn bytes(&self, devices: &[Value]) -> String {
        let mut page = String::new();
        for device in devices.iter().filter(|device| device["trouble"].is_string()) {
            let (name, why) = (text(&device["device"]), text(&device["trouble"]));
            let _ = writeln!(page, "{name}: the bytes cannot be said: {why}");
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
                let _ = writeln!(page, "  {}", text(request));
            }
        }
        page
    }

    /// Devices that get the same bytes, together unless each is to be shown.
    fn alike<'a>(&self, devices: &'a [Value]) -> Vec<(&'a [Value], Vec<String>)> {
        let mut sorted: Vec<&Value> =
            devices.iter().filter(|device| !list(&device["requests"]).is_empty()).collect();
        sorted.sort_by_cached_key(|device| natural(&text(&device["device"])));
        let mut together: Vec<(&[Value], Vec<String>)> = Vec::new();
        let mut places = BTreeMap::<String, usize>::new();
        for device in sorted {
            let (requests, name) = (list(&device["requests"]), text(&device["device"]));
            let key = if self.bytes { name.clone() } else { text(&device["requests"]) };
            let place = *places.entry(key).or_insert(together.len());
            match together.get_mut(place) {
                Some((_, names)) => names.push(name),
                None => together.push((requests, vec![name])),
            }
        }
        together
    }
}

/// What a rollback undoes, the plan and the circuits that remain, and cables that are not where they belong.
fn what_becomes(diff: &Value) -> String {
    let mut page = String::new();
    let changes = |key: &str| -> Vec<String> {
        let of = |past: &Value| {
            format!(
                "{} ({}, by {})",
                text(&past["txn"]),
                text(&past["summary"]),
                text(&past["actor"])
            )
        };
        list(&diff[key]).iter().map(of).collect()
    };
    for (key, what) in [("undoes", "undoes"), ("restores", "stands again after it")] {
        let changes = changes(key);
        if !changes.is_empty() {
            let _ = writeln!(page, "{what}: {}", changes.join("; "));
        }
    }
    if diff["no_plan_after"] == true {
        page += "NO PLAN remains after it: what breaks is not bypassed until one is applied\n";
    } else if let Some(plan) = diff["plan_sha256"].as_str().filter(|plan| !plan.is_empty()) {
        let _ = writeln!(page, "plan after it: {}", plan.get(..12).unwrap_or(plan));
    }
    let circuits = &diff["circuits"];
    if circuits.is_object() {
        let [before, after] = ["before", "after"].map(|key| text(&circuits[key]));
        let _ = writeln!(page, "circuits that stand at both ends: {before} now, {after} after it");
    }
    if let Some((what, about, next)) = crossed::alarm(&diff["crossed"]) {
        let _ = writeln!(page, "{what}: {about}\n  {next}");
    }
    page
}

/// What changes on each device: transceivers of the rings, then optical switches with their circuits.
fn by_device(moves: &[Value]) -> Table {
    #[derive(Default)]
    struct Change {
        moves: usize,
        dark: usize,
        lit: usize,
        waves: BTreeSet<u64>,
    }
    let mut changes: BTreeMap<String, Change> = BTreeMap::new();
    for m in moves {
        let change = changes.entry(text(&m["device"])).or_default();
        change.moves += 1;
        change.dark += usize::from(m["from"] != 0);
        change.lit += usize::from(m["to"] != 0);
        change.waves.extend(m["wave"].as_u64());
    }
    let mut changes: Vec<(String, Change)> = changes.into_iter().collect();
    changes.sort_by_cached_key(|(name, _)| (is_switch(name), natural(name)));
    let mut table = Table::new(["device", "half", "moves", "go dark", "get light", "in waves"]);
    for (name, change) in changes {
        let half = match (is_switch(&name), is_module(&name)) {
            (true, _) => "circuits",
            (_, true) => "rings",
            _ => "-",
        };
        let waves = change.waves.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let numbers = [change.moves, change.dark, change.lit].map(|count| count.to_string());
        table.row([name, half.to_owned()].into_iter().chain(numbers).chain([waves]));
    }
    table
}

/// Which parts are known to be broken once it is done, and which are taken to work again.
fn parts(diff: &Value) -> String {
    let mut page = String::new();
    let broken = list(&diff["broken"]);
    if !broken.is_empty() {
        let parts = named(broken.iter().map(since).collect(), NAMES_MAX);
        let _ = writeln!(page, "around what is known to be broken: {parts}");
    }
    let forgotten = list(&diff["forgets"]);
    if !forgotten.is_empty() {
        let parts = named(forgotten.iter().map(since).collect(), NAMES_MAX);
        let _ = writeln!(page, "TAKEN TO WORK AGAIN: {parts}");
    }
    page
}

fn summary(diff: &Value, moves: &[Value]) -> String {
    let number = |key: &str| diff[key].as_u64().unwrap_or(0) as usize;
    let mut devices: Vec<String> = moves.iter().map(|m| text(&m["device"])).collect();
    devices.dedup();
    let mut page = format!(
        "{} on {} in {}, against version {}\n",
        count(moves.len(), "move"),
        count(devices.len(), "device"),
        count(number("waves"), "wave"),
        text(&diff["version"]),
    );
    if let Some(phase) = diff["phase"].as_str().filter(|phase| !phase.is_empty()) {
        let _ = writeln!(page, "{phase}");
    }
    let _ = writeln!(page, "at most {} dark at a time", count(number("dark_links_max"), "link"));
    page
}

fn table(moves: &[Value]) -> Table {
    let headings =
        ["wave", "device", "part", "from", "to", "goes dark", "comes up", "failure domain"];
    let mut sorted: Vec<&Value> = moves.iter().collect();
    sorted.sort_by_cached_key(|m| (m["wave"].as_u64(), natural(&text(&m["device"]))));
    let mut table = Table::new(headings);
    for m in sorted {
        let device = text(&m["device"]);
        table.row([
            text(&m["wave"]),
            device.clone(),
            slot(&device, &m["slot"]),
            place(&device, &m["from"]),
            place(&device, &m["to"]),
            text(&m["goes_dark"]),
            text(&m["comes_up"]),
            text(&m["domain"]),
        ]);
    }
    table
}

/// How long what goes dark is dark, as far as anybody can know before.
fn darkness(moves: &[Value]) -> String {
    let dark = moves.iter().filter(|m| m["goes_dark"].is_string()).count();
    let due_ps = moves.iter().filter_map(|m| m["answer_within_ps"].as_f64()).fold(0.0, f64::max);
    let due = time::span(due_ps / 1e12);
    match dark {
        0 => "no circuit goes dark".into(),
        _ => format!(
            "a circuit is dark from the first command to one of its ends until both are read back \
             with light; an answer later than {due} counts as unknown and is settled by reading"
        ),
    }
}
