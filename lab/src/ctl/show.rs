// SPDX-License-Identifier: Apache-2.0
//! The daemon's answers as people read them: what is wrong first, then what to type.

mod contention;
mod crossed;
mod diagnosis;
mod drift;
mod history;
mod management;
mod module;
mod moves;
mod status;
mod waited;

use std::collections::BTreeSet;
use std::fmt::Display;

use lightloom_daemon_api::answer::Answer;
use serde::Deserialize;
use serde_json::Value;

pub(super) use drift::drift;
pub(super) use history::{confirm_by, records, transaction, transactions};
pub(super) use module::module;
pub(super) use moves::PreviewStyle;
pub(super) use status::{all_is_well, devices_named, is_deaf, status};
pub(super) use waited::{all_read, not_a_device, on_its_way, waited_for};

/// How many names a line holds.
const NAMES_MAX: usize = 6;

/// What people look for, by the number of its terminal colour: green, yellow, red.
const PAINTED: [(u8, &[&str]); 3] = [
    (32, &["as-wanted", "committed", "confirmed", "no drift", "ALL IS WELL"]),
    (
        33,
        &[
            "moving",
            "tuning",
            "rolled-back",
            "aborted",
            "undone",
            "WAITS FOR ITS CONFIRM",
            "ON ITS WAY",
            "HELD DRAINED",
            "BROKEN",
            "FEWER CIRCUITS",
            "DEFERRED",
            "NO PLAN",
            "DID NOT TAKE",
        ],
    ),
    (
        31,
        &[
            "drifted",
            "crossed",
            "attention",
            "unseen",
            "partial",
            "NEEDS ACTION",
            "JOURNAL CANNOT BE WRITTEN",
            "AUDIT LOG CANNOT BE WRITTEN",
            "JOURNAL DAMAGED",
            "UNSEEN",
            "DRIFTED",
            "ANOTHER CONTROLLER",
            "CROSSED",
            "DAEMON AWAY",
            "MANAGEMENT LOST",
            "NO BYPASS LEFT",
            "SILENT, and nothing can testify",
            "NO LIGHT",
            "DARK CIRCUITS",
        ],
    ),
];

/// A page with what people look for in colours.
pub(super) fn painted(page: &str) -> String {
    let mut painted = page.to_owned();
    for (colour, words) in PAINTED {
        for word in words {
            painted = painted.replace(word, &format!("\u{1b}[{colour}m{word}\u{1b}[0m"));
        }
    }
    painted
}

/// What may be missing; `-` where it is.
fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// `1 device`, `64 devices`.
/// How many circuits a refusal names.
const CUTS_SHOWN_MAX: usize = 6;

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Names in the order people count, the first of them and how many more.
fn named(mut names: Vec<String>, shown_max: usize) -> String {
    names.sort_by_cached_key(|name| natural(name));
    let more = names.len().saturating_sub(shown_max);
    names.truncate(shown_max);
    let shown = names.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Names as people count: n2 before n10.
fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0_u64, String::new())];
    for letter in name.chars() {
        let last = parts.len() - 1;
        match letter.to_digit(10) {
            Some(digit) if parts[last].1.is_empty() => {
                parts[last].0 = parts[last].0.saturating_mul(10).saturating_add(digit.into());
            }
            Some(digit) => parts.push((digit.into(), String::new())),
            None => parts[last].1.push(letter),
        }
    }
    parts
}

/// Whether a device of this name is a transceiver: it is called as its bundle is.
fn is_module(device: &str) -> bool {
    device.parse::<lightloom_units::id::BundleId>().is_ok()
}

/// Whether a device of this name is an optical switch of a plan.
fn is_switch(device: &str) -> bool {
    device.parse::<lightloom_units::id::OcsId>().is_ok()
}

/// What moves on a device: `port 3` of an optical switch, `group 0` of a transceiver.
fn slot(device: &str, slot: impl Display) -> String {
    let what = match () {
        () if is_module(device) => "group",
        () if is_switch(device) => "port",
        () => "slot",
    };
    format!("{what} {slot}")
}

/// Where it stands: a transceiver's path by its name, an optical switch's port by its number.
fn place(device: &str, position: u32) -> String {
    match (position, is_module(device)) {
        (0, _) => "dark".into(),
        (15, true) => "loopback".into(),
        (path, true) => format!("external-{path}"),
        (port, false) if is_switch(device) => format!("port {port}"),
        (position, false) => format!("position {position}"),
    }
}

/// Why something was not done.
pub(super) fn refusal(body: &Value) -> String {
    match Answer::deserialize(body) {
        Ok(Answer::Conflict { reason } | Answer::PhaseRefused { reason, .. }) => {
            format!("conflict: {reason}")
        }
        Ok(Answer::Refused { reasons }) if !reasons.is_empty() => {
            format!("refused: {}", alike(&reasons).join("\n         "))
        }
        // What the HTTP layer itself refuses is text.
        _ => match body {
            Value::String(text) => text.clone(),
            Value::Null => "-".into(),
            other => other.to_string(),
        },
    }
}

/// Why a change by hand is not made that cuts these circuits, and what to do.
pub(super) fn cuts(circuits: &BTreeSet<String>) -> String {
    let cut = count(circuits.len(), "circuit");
    let names = named(circuits.iter().cloned().collect(), CUTS_SHOWN_MAX);
    format!(
        "this cuts {cut} with light: {names}; with --dry-run it shows what moves, with --cut-light it is done"
    )
}

/// Reasons that say the same of several devices in one line, in the order they came.
pub(super) fn alike(reasons: &[String]) -> Vec<String> {
    let mut together: Vec<(Vec<String>, &str)> = Vec::new();
    for reason in reasons {
        let (name, rest) = reason.split_once(": ").unwrap_or(("", reason));
        let (name, rest) = if name.contains(' ') { ("", reason.as_str()) } else { (name, rest) };
        match together.iter_mut().find(|(names, said)| *said == rest && !names.is_empty()) {
            Some((names, _)) if !name.is_empty() => names.push(name.to_owned()),
            _ if name.is_empty() => together.push((Vec::new(), rest)),
            _ => together.push((vec![name.to_owned()], rest)),
        }
    }
    let line = |(names, rest): (Vec<String>, &str)| match names.is_empty() {
        true => rest.to_owned(),
        false => format!("{}: {rest}", named(names, NAMES_MAX)),
    };
    together.into_iter().map(line).collect()
}

/// What was asked for, where it is done at once and without a transaction.
pub(super) enum DoneAtOnce<'a> {
    /// An apply, a rollback or a fault that moves nothing.
    Moved,
    /// This transaction stays.
    Confirmed(u32),
    /// What has light is ours.
    Adopted,
    /// These devices carry no traffic.
    Drained(&'a [String]),
    /// These devices may carry traffic.
    Undrained(&'a [String]),
    /// A lease was given up.
    Released,
    /// The daemon acts alone again.
    Resumed,
}

/// What was done at once, without a transaction.
pub(super) fn done(done: &DoneAtOnce<'_>, answer: &Answer) -> String {
    if let Answer::NothingToDo { reasons } = answer {
        return format!("nothing to do: {}\n", reasons.join("\n               "));
    }
    let names = |devices: &[String]| named(devices.to_vec(), 8);
    match done {
        DoneAtOnce::Moved => "nothing had to move\n".into(),
        DoneAtOnce::Confirmed(txn) => format!("transaction {txn} is confirmed: it stays\n"),
        DoneAtOnce::Adopted => {
            let (devices, slots) = match answer {
                Answer::Adopted { devices, slots } => (*devices, *slots),
                _ => (0, 0),
            };
            let slots = match slots {
                1 => "1 path or cross-connect".to_owned(),
                slots => format!("{slots} paths and cross-connects"),
            };
            format!("adopted: {slots} on {}; nothing moved\n", count(devices, "device"))
        }
        DoneAtOnce::Drained(devices) => {
            format!("drained: {}; back with `lightloom ctl undrain`\n", names(devices))
        }
        DoneAtOnce::Undrained(devices) => format!("undrained: {}\n", names(devices)),
        DoneAtOnce::Released => "released: what has light keeps it\n".into(),
        DoneAtOnce::Resumed => {
            "automatic changes are allowed: their count for this hour starts again at 0\n".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{named, natural, painted, place, refusal, slot};
    use serde_json::json;

    #[test]
    fn a_state_is_painted_and_nothing_else_changes() {
        let page = "n1/b0  as-wanted  0>1\nocs0   unseen\n";
        let shown = painted(page);
        assert!(shown.contains("\u{1b}[32mas-wanted\u{1b}[0m  0>1"), "{shown:?}");
        assert!(shown.contains("\u{1b}[31munseen\u{1b}[0m"), "{shown:?}");
        let plain = ["\u{1b}[32m", "\u{1b}[31m", "\u{1b}[0m"];
        assert_eq!(plain.iter().fold(shown, |text, code| text.replace(code, "")), page);
    }

    #[test]
    fn names_are_in_the_order_people_count() {
        let mut names = ["n10/b1", "ocs0", "n2/b0", "n10/b0", "n1/b0", "n2/b10", "n2/b9"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["n1/b0", "n2/b0", "n2/b9", "n2/b10", "n10/b0", "n10/b1", "ocs0"]);
        assert_eq!(named(names.map(str::to_owned).to_vec(), 2), "n1/b0, n2/b0 and 5 more");
    }

    #[test]
    fn what_is_said_of_many_devices_is_one_line() {
        let mut reasons: Vec<String> =
            (0..64).map(|node| format!("n{node}/b0: cannot be talked to (gone)")).collect();
        reasons.push("ocs0: not read yet".into());
        reasons.push("n1/b0, n2/b0: silent for 3 s; ask again".into());
        let said = refusal(&json!({"answer": "refused", "reasons": reasons}));
        let expected = "refused: n0/b0, n1/b0, n2/b0, n3/b0, n4/b0, n5/b0 and 58 more: cannot be talked to \
                        (gone)\n         ocs0: not read yet\n         n1/b0, n2/b0: silent for 3 s; ask again";
        assert_eq!(said, expected);
    }

    #[test]
    fn places_have_the_names_that_people_use() {
        let places =
            [("n1/b0", 15), ("n1/b0", 2), ("n1/b0", 0), ("ocs0", 26), ("ocs0", 15), ("leaf5", 1)];
        let shown = places.map(|(device, position)| place(device, position));
        assert_eq!(shown, ["loopback", "external-2", "dark", "port 26", "port 15", "position 1"]);
        let slots = ["n1/b0", "ocs0", "leaf5"].map(|device| slot(device, 3));
        assert_eq!(slots, ["group 3", "port 3", "slot 3"]);
    }
}
