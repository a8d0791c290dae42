// SPDX-License-Identifier: Apache-2.0
//! Formats the daemon's responses as text: problems first, then remedies.

mod drift;
mod history;
mod module;
mod moves;
mod status;
mod waited;

use std::collections::BTreeSet;
use std::fmt::Display;

use lightloom_control::state::{DeviceName, Position};
use lightloom_daemon_api::answer::Answer;
use lightloom_daemon_api::text::{NAMES_MAX, count, named};
use serde::Deserialize;
use serde_json::Value;

pub(super) use drift::drift;
pub(super) use history::{confirm_by, records, transaction, transactions};
pub(super) use module::module;
pub(super) use moves::PreviewStyle;
pub(super) use status::{all_is_well, is_deaf, status};
pub(super) use waited::{all_read, not_a_device, on_its_way, waited_for};

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
            "AWAITS CONFIRMATION",
            "IN PROGRESS",
            "HELD DRAINED",
            "DEGRADED",
            "NOT BYPASSED",
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
            "DAEMON UNREACHABLE",
            "MANAGEMENT LOST",
            "NO BYPASS LEFT",
            "SILENT without a witness",
            "NO LIGHT",
            "DARK CIRCUITS",
            "NOT AS PLANNED",
            "NOT ADOPTED",
        ],
    ),
];

pub(super) fn painted(page: &str) -> String {
    let mut painted = page.to_owned();
    for (colour, words) in PAINTED {
        for word in words {
            painted = painted.replace(word, &format!("\u{1b}[{colour}m{word}\u{1b}[0m"));
        }
    }
    painted
}

fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

const CUTS_SHOWN_MAX: usize = 6;

fn is_module(device: &str) -> bool {
    device.parse::<lightloom_units::id::BundleId>().is_ok()
}

fn is_switch(device: &str) -> bool {
    device.parse::<lightloom_units::id::OcsId>().is_ok()
}

fn slot(device: &str, slot: impl Display) -> String {
    DeviceName::from(device).slot(slot)
}

fn place(device: &str, position: u32) -> String {
    DeviceName::from(device).place(Position(position))
}

pub(super) fn refusal(body: &Value) -> String {
    match Answer::deserialize(body) {
        Ok(Answer::Conflict { reason } | Answer::PhaseRefused { reason, .. }) => {
            format!("conflict: {reason}")
        }
        Ok(Answer::Refused { reasons }) if !reasons.is_empty() => {
            format!("refused: {}", alike(&reasons).join("\n         "))
        }
        _ => match body {
            Value::String(text) => text.clone(),
            Value::Null => "-".into(),
            other => other.to_string(),
        },
    }
}

pub(super) fn cuts(circuits: &BTreeSet<String>) -> String {
    let cut = count(circuits.len(), "circuit");
    let names = named(circuits.iter().cloned().collect(), CUTS_SHOWN_MAX);
    format!(
        "this would cut {cut} with light: {names}; preview it with --dry-run, or allow it with --cut-light"
    )
}

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
    let lines = together.into_iter().map(|(names, rest)| match names.is_empty() {
        true => rest.to_owned(),
        false => format!("{}: {rest}", named(names, NAMES_MAX)),
    });
    lines.collect()
}

pub(super) enum DoneAtOnce<'a> {
    Moved,
    Confirmed(u32),
    Adopted,
    Drained(&'a [String]),
    Undrained(&'a [String]),
    Released,
    Resumed,
}

pub(super) fn done(done: &DoneAtOnce<'_>, answer: &Answer) -> String {
    if let Answer::NothingToDo { reasons } = answer {
        return format!("nothing to do: {}\n", reasons.join("\n               "));
    }
    match done {
        DoneAtOnce::Moved => "no change needed\n".into(),
        DoneAtOnce::Confirmed(txn) => {
            format!("transaction {txn} is confirmed and will not be rolled back\n")
        }
        DoneAtOnce::Adopted => {
            let (devices, slots, silent) = match answer {
                Answer::Adopted { devices, slots, silent } => (*devices, *slots, *silent),
                _ => (0, 0, 0),
            };
            let left_out = match silent {
                0 => String::new(),
                silent => format!("; no answer from {}", count(silent, "device")),
            };
            let slots = match slots {
                1 => "1 path or cross-connect".to_owned(),
                slots => format!("{slots} paths and cross-connects"),
            };
            format!("adopted: {slots} on {}; nothing moved{left_out}\n", count(devices, "device"))
        }
        DoneAtOnce::Drained(devices) => {
            let names = named(devices.to_vec(), 8);
            format!("drained: {names}; undo with `lightloom ctl undrain`\n")
        }
        DoneAtOnce::Undrained(devices) => format!("undrained: {}\n", named(devices.to_vec(), 8)),
        DoneAtOnce::Released => "released: lit circuits stay up\n".into(),
        DoneAtOnce::Resumed => {
            "automatic changes are enabled again, and the hourly count restarts at 0\n".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{painted, place, refusal, slot};
    use serde_json::json;

    #[test]
    fn paints_states_without_changing_the_text() {
        let page = "n1/b0  as-wanted  0>1\nocs0   unseen\n";
        let shown = painted(page);
        assert!(shown.contains("\u{1b}[32mas-wanted\u{1b}[0m  0>1"), "{shown:?}");
        assert!(shown.contains("\u{1b}[31munseen\u{1b}[0m"), "{shown:?}");
        let plain = ["\u{1b}[32m", "\u{1b}[31m", "\u{1b}[0m"];
        assert_eq!(plain.iter().fold(shown, |text, code| text.replace(code, "")), page);
    }

    #[test]
    fn reasons_of_many_devices_are_folded_into_one_line() {
        let mut reasons: Vec<String> =
            (0..64).map(|node| format!("n{node}/b0: unreachable (gone)")).collect();
        reasons.push("ocs0: not read yet".into());
        reasons.push("n1/b0, n2/b0: unresponsive for 3 s; retry".into());
        let said = refusal(&json!({"answer": "refused", "reasons": reasons}));
        let expected = "refused: n0/b0, n1/b0, n2/b0, n3/b0, n4/b0, n5/b0 and 58 more: unreachable \
                        (gone)\n         ocs0: not read yet\n         n1/b0, n2/b0: unresponsive for 3 s; retry";
        assert_eq!(said, expected);
    }

    #[test]
    fn positions_and_slots_have_user_facing_names() {
        let places =
            [("n1/b0", 15), ("n1/b0", 2), ("n1/b0", 0), ("ocs0", 26), ("ocs0", 15), ("leaf5", 1)];
        let shown = places.map(|(device, position)| place(device, position));
        assert_eq!(shown, ["loopback", "external-2", "dark", "port 26", "port 15", "position 1"]);
        let slots = ["n1/b0", "ocs0", "leaf5"].map(|device| slot(device, 3));
        assert_eq!(slots, ["group 3", "port 3", "slot 3"]);
    }
}
