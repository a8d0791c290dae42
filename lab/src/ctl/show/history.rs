// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

use lightloom_daemon_api::alarm::{self, after_change, damage, troubles};
use lightloom_daemon_api::log::Log;
use lightloom_daemon_api::text::{count, named, span};
use lightloom_daemon_api::transaction::{
    DeviceVerdict, Kind, Transaction, TransactionResult, TransactionState,
};

use super::or_dash;
use crate::ctl::time;
use lightloom::table::TextTable;

const NAMES_MAX: usize = 3;

pub(in crate::ctl) fn transactions(all: &[Transaction], last: usize) -> String {
    let mut table =
        TextTable::new(["txn", "when", "who", "what", "result", "devices", "first trouble"])
            .verbatim();
    for past in all.iter().take(last) {
        let trouble = troubles(past);
        let trouble = trouble.first().map(|d| format!("{}: {}", d.device, d.detail));
        table.row([
            past.txn.to_string(),
            time::moment(past.unix_ms),
            past.actor.clone(),
            past.summary.clone(),
            result(past),
            devices(past),
            trouble.unwrap_or_default(),
        ]);
    }
    if all.is_empty() { "no transactions yet\n".into() } else { table.to_string() }
}

fn result(past: &Transaction) -> String {
    let result = &past.result;
    match (past.undone_by, &past.state) {
        (Some(by), _) => format!("undone by {by}"),
        (None, TransactionState::ConfirmPending) => {
            let until = or_dash(past.confirm_until_unix_ms.map(time::clock_at));
            format!("{result}, to confirm before {until}")
        }
        (None, TransactionState::Confirmed) => format!("{result}, confirmed"),
        _ => result.to_string(),
    }
}

fn devices(past: &Transaction) -> String {
    let names: Vec<String> = past.devices.iter().map(|d| d.device.clone()).collect();
    if names.len() > NAMES_MAX { names.len().to_string() } else { named(names, NAMES_MAX) }
}

pub(in crate::ctl) fn records(log: &Log) -> String {
    let mut table =
        TextTable::new(["line", "when", "what", "txn", "who", "detail", "parts"]).verbatim();
    for record in &log.records {
        table.row([
            record.line.to_string(),
            or_dash(record.unix_ms.map(time::moment)),
            record.what.to_string(),
            or_dash(record.txn),
            or_dash(record.actor.as_ref()),
            record.detail.clone(),
            named(record.parts.clone(), NAMES_MAX),
        ]);
    }
    let damage = log.damage.as_ref().map(damage);
    let damage = damage.map(|(about, next)| format!("JOURNAL DAMAGED: {about}\n  {next}\n"));
    table.to_string() + &damage.unwrap_or_default()
}

pub(in crate::ctl) fn confirm_by(past: &Transaction) -> Option<String> {
    let until = past.confirm_until_unix_ms?;
    let left = time::until(until)?;
    let (txn, clock, span) = (past.txn, time::clock_at(until), span(left));
    Some(format!(
        "confirm {txn} before {clock} (in {span}) with `lightloom ctl confirm {txn}`, or it is undone"
    ))
}

pub(in crate::ctl) fn transaction(past: &Transaction) -> String {
    let Transaction { txn, result, devices, .. } = past;
    let mut page = format!("transaction {txn}: {result}, {}", count(devices.len(), "device"));
    match alarm::crossed(&past.crossed, None) {
        Some(crossed) => {
            let _ = writeln!(page, ", but {crossed}");
        }
        None => page.push('\n'),
    }
    let mut table = TextTable::new(["device", "verdict", "why"]).verbatim();
    let troubles = troubles(past);
    for device in &troubles {
        table.row([device.device.clone(), device.verdict.to_string(), device.detail.clone()]);
    }
    if !troubles.is_empty() {
        let _ = write!(page, "{table}");
    }
    for verdict in [DeviceVerdict::RolledBack, DeviceVerdict::Untouched] {
        let of_verdict = devices.iter().filter(|device| device.verdict == verdict);
        let unexplained = of_verdict.filter(|device| device.detail.is_empty());
        let names: Vec<String> = unexplained.map(|device| device.device.clone()).collect();
        if !names.is_empty() {
            let _ = writeln!(page, "{verdict}: {}", named(names, NAMES_MAX));
        }
    }
    for line in &past.when_known {
        let _ = writeln!(page, "{line}");
    }
    if let Some(forgotten) = forgotten(past) {
        let _ = writeln!(page, "{forgotten}");
    }
    if let Some(confirm) = confirm_by(past) {
        let _ = writeln!(page, "{confirm}");
    }
    if let Some(next) = after_change(past) {
        let _ = writeln!(page, "{next}");
    }
    page
}

/// Older daemons do not send the kind, but their cause includes it.
fn is_a(past: &Transaction, kind: Kind) -> bool {
    past.kind == kind || (past.kind == Kind::default() && past.cause == kind.to_string())
}

fn forgotten(past: &Transaction) -> Option<String> {
    let parts = &past.repaired;
    if parts.is_empty() || !is_a(past, Kind::Apply) || past.result != TransactionResult::Committed {
        return None;
    }
    let (names, again) = (named(parts.clone(), NAMES_MAX), parts.join(" "));
    Some(format!(
        "this plan treats {names} as repaired; if that is wrong: lightloom ctl fault {again}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn known(fields: Value) -> Transaction {
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn history_shows_result_and_later_state() {
        let of = |changes: Value| {
            let mut past = json!({"result": "committed", "state": "committed"});
            past.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            result(&known(past))
        };
        assert_eq!(of(json!({})), "committed");
        assert_eq!(of(json!({"state": "confirmed"})), "committed, confirmed");
        assert_eq!(of(json!({"result": "undone", "undone_by": 4})), "undone by 4");
        let waits = of(json!({"state": "confirm-pending", "confirm_until_unix_ms": 0}));
        assert!(waits.starts_with("committed, to confirm before "), "{waits}");
    }

    #[test]
    fn names_few_devices_and_counts_many() {
        let device = |name: &str| json!({"device": name, "detail": ""});
        let of = |names: &[&str]| {
            let devices: Vec<Value> = names.iter().copied().map(device).collect();
            super::devices(&known(json!({ "devices": devices })))
        };
        assert_eq!(of(&["n10/b0", "n2/b0"]), "n2/b0, n10/b0");
        assert_eq!(of(&["n10/b0", "n2/b0", "n3/b0", "n4/b0"]), "4");
    }
}
