//! Transactions: one as it ended with what to do next, and the table of the past.

use std::fmt::Write;

use serde_json::Value;

use super::status::Alarm;
use super::{count, crossed, list, named, text};
use crate::ctl::time;
use crate::table::Table;

/// How many names a cell holds.
const NAMES_MAX: usize = 3;

/// Past transactions, newest first.
pub(in crate::ctl) fn transactions(transactions: &Value, last: usize) -> String {
    let all = list(transactions);
    let mut table =
        Table::new(["txn", "when", "who", "what", "result", "devices", "first trouble"]);
    for past in all.iter().take(last) {
        let trouble = troubles(past);
        let trouble =
            trouble.first().map(|d| format!("{}: {}", text(&d["device"]), text(&d["detail"])));
        table.row([
            text(&past["txn"]),
            time::moment(&past["unix_ms"]),
            text(&past["actor"]),
            text(&past["summary"]),
            result(past),
            devices(past),
            trouble.unwrap_or_default(),
        ]);
    }
    if all.is_empty() { "no transactions yet\n".into() } else { table.to_string() }
}

/// Devices with something to say. Light that is missing at one is mostly the doing of another, so what
/// speaks of nothing else comes last.
fn troubles(past: &Value) -> Vec<&Value> {
    let said = |device: &&Value| device["detail"].as_str().is_some_and(|why| !why.is_empty());
    let mut devices: Vec<&Value> = list(&past["devices"]).iter().filter(said).collect();
    devices.sort_by_key(|device| device["unlit"] == true);
    devices
}

/// How it ended, and what became of it since.
fn result(past: &Value) -> String {
    let result = text(&past["result"]);
    match (past["undone_by"].as_u64(), past["state"].as_str()) {
        (Some(by), _) => format!("undone by {by}"),
        (None, Some("confirm-pending")) => {
            format!(
                "{result}, to confirm before {}",
                time::clock_at(&past["confirm_until_unix_ms"])
            )
        }
        (None, Some("confirmed")) => format!("{result}, confirmed"),
        _ => result,
    }
}

/// Which devices it names: by name where they are few.
fn devices(past: &Value) -> String {
    let names: Vec<String> = list(&past["devices"]).iter().map(|d| text(&d["device"])).collect();
    if names.len() > NAMES_MAX { names.len().to_string() } else { named(names, NAMES_MAX) }
}

/// The journal's records, oldest first, and where it is damaged.
pub(in crate::ctl) fn records(log: &Value) -> String {
    let mut table = Table::new(["line", "when", "what", "txn", "who", "detail", "parts"]);
    for record in list(&log["records"]) {
        table.row([
            text(&record["line"]),
            time::moment(&record["unix_ms"]),
            text(&record["what"]),
            text(&record["txn"]),
            text(&record["actor"]),
            text(&record["detail"]),
            named(list(&record["parts"]).iter().map(text).collect(), NAMES_MAX),
        ]);
    }
    let damage = damage(&log["damage"]);
    let damage = damage.map(|(about, next)| format!("JOURNAL DAMAGED: {about}\n  {next}\n"));
    table.to_string() + &damage.unwrap_or_default()
}

/// Where a journal is damaged and what a person can do.
pub(super) fn damage(damage: &Value) -> Option<(String, String)> {
    let reason = damage["reason"].as_str()?;
    let number = |key: &str| text(&damage[key]);
    let readable = count(damage["readable"].as_u64().unwrap_or(0) as usize, "record");
    let about = format!(
        "{} line {} (byte {}): {reason}; {readable} before it can be read",
        number("file"),
        number("line"),
        number("byte"),
    );
    Some((about, number("what_to_do")))
}

/// By when to confirm, where that is waited for, and what else happens.
pub(in crate::ctl) fn confirm_by(past: &Value) -> Option<String> {
    let until = &past["confirm_until_unix_ms"];
    let left = time::until(until)?;
    let (txn, clock, span) = (text(&past["txn"]), time::clock_at(until), time::span(left));
    Some(format!(
        "confirm {txn} before {clock} (in {span}) with `lightloom ctl confirm {txn}`, or it is undone"
    ))
}

/// One transaction, device by device where there is something to say, and what to do next.
pub(in crate::ctl) fn transaction(past: &Value) -> String {
    let devices = list(&past["devices"]);
    let (txn, result) = (text(&past["txn"]), text(&past["result"]));
    let mut page = format!("transaction {txn}: {result}, {}", count(devices.len(), "device"));
    match crossed::alarm(&past["crossed"]) {
        Some((what, about, next)) => {
            let _ = writeln!(page, ", but {what}: {about}\n  {next}");
        }
        None => page.push('\n'),
    }
    let mut table = Table::new(["device", "verdict", "why"]);
    let troubles = troubles(past);
    for device in &troubles {
        table.row([text(&device["device"]), text(&device["verdict"]), text(&device["detail"])]);
    }
    if !troubles.is_empty() {
        let _ = write!(page, "{table}");
    }
    for verdict in ["rolled-back", "untouched"] {
        let of = |device: &&Value| device["verdict"] == verdict && device["detail"] == "";
        let names: Vec<String> = devices.iter().filter(of).map(|d| text(&d["device"])).collect();
        if !names.is_empty() {
            let _ = writeln!(page, "{verdict}: {}", named(names, NAMES_MAX));
        }
    }
    for line in list(&past["when_known"]) {
        let _ = writeln!(page, "{}", text(line));
    }
    if let Some(forgotten) = forgotten(past) {
        let _ = writeln!(page, "{forgotten}");
    }
    if let Some(confirm) = confirm_by(past) {
        let _ = writeln!(page, "{confirm}");
    }
    if let Some(next) = next(past) {
        let _ = writeln!(page, "{next}");
    }
    page
}

/// The broken parts that a plan was made as if they worked, where that was let through.
fn forgotten(past: &Value) -> Option<String> {
    let parts: Vec<String> = list(&past["repaired"]).iter().map(text).collect();
    if parts.is_empty() || past["cause"] != "apply" || past["result"] != "committed" {
        return None;
    }
    let (names, again) = (named(parts.clone(), NAMES_MAX), parts.join(" "));
    Some(format!(
        "{names} taken to work again, as this plan has it; if not: lightloom ctl fault {again}"
    ))
}

/// That a change, the last one, did not take, and why. A partial one is spoken of by the devices that
/// need a person, until somebody has seen to them.
pub(super) fn did_not_take(past: &Value) -> Option<Alarm> {
    if past["result"] == "partial" {
        return None;
    }
    let next = next(past)?;
    let why =
        troubles(past).first().map(|d| format!("{}: {}", text(&d["device"]), text(&d["detail"])));
    let (txn, result) = (text(&past["txn"]), text(&past["result"]));
    let what =
        past["summary"].as_str().map(|what| format!("{what}, by {}: ", text(&past["actor"])));
    let why = why.unwrap_or_else(|| "no device says why".into());
    let about = format!("{}{result}; {why}", what.unwrap_or_default());
    Some((format!("transaction {txn} DID NOT TAKE"), about, next))
}

/// What to do after an end that nobody wished for.
fn next(past: &Value) -> Option<String> {
    let silent = troubles(past).into_iter().filter(|d| d["verdict"] == "unknown");
    let silent: Vec<String> = silent.map(|d| text(&d["device"])).collect();
    let next = match past["result"].as_str()? {
        "aborted" if past["cause"] == "bypass" && !silent.is_empty() => {
            return Some(format!(
                "nothing moved; what was told is kept; around what does not answer, too: \
                 lightloom ctl fault {}",
                silent.join(",")
            ));
        }
        "aborted" => Some("nothing moved: mend what is named, then apply again"),
        "rolled-back" => {
            Some("every device is back where it stood: mend what is named, then apply again")
        }
        "partial" => Some(
            "not every device is at either end: `lightloom ctl status` names those that need a \
             person and what to type",
        ),
        _ => None,
    };
    next.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_became_of_a_transaction_is_said_beside_how_it_ended() {
        let of = |changes: Value| {
            let mut past = json!({"result": "committed", "state": "committed"});
            past.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            result(&past)
        };
        assert_eq!(of(json!({})), "committed");
        assert_eq!(of(json!({"state": "confirmed"})), "committed, confirmed");
        assert_eq!(of(json!({"result": "undone", "undone_by": 4})), "undone by 4");
        let waits = of(json!({"state": "confirm-pending", "confirm_until_unix_ms": 0}));
        assert!(waits.starts_with("committed, to confirm before "), "{waits}");
    }

    #[test]
    fn few_devices_are_named_and_many_are_counted() {
        let device = |name: &str| json!({"device": name, "detail": ""});
        let of = |names: &[&str]| {
            let devices: Vec<Value> = names.iter().copied().map(device).collect();
            super::devices(&json!({ "devices": devices }))
        };
        assert_eq!(of(&["n10/b0", "n2/b0"]), "n2/b0, n10/b0");
        assert_eq!(of(&["n10/b0", "n2/b0", "n3/b0", "n4/b0"]), "4");
    }
}
