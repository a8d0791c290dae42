//! Transactions: one as it ended with what to do next, and the table of the past.

use std::fmt::Write;

use serde_json::Value;

use super::{count, list, named, text};
use crate::ctl::time;
use crate::table::Table;

/// How many names a cell holds.
const NAMES_MAX: usize = 3;

/// Past transactions, newest first.
pub(in crate::ctl) fn transactions(
    transactions: &Value,
    pending: Option<u64>,
    last: usize,
) -> String {
    let all = list(transactions);
    let headings = ["txn", "when", "who", "why", "result", "devices", "which", "first trouble"];
    let mut table = Table::new(headings);
    for past in all.iter().take(last) {
        let devices = list(&past["devices"]);
        let trouble = devices.iter().find(|device| device["detail"] != "");
        let trouble = trouble.map(|d| format!("{}: {}", text(&d["device"]), text(&d["detail"])));
        table.row([
            text(&past["txn"]),
            time::moment(past["unix_ms"].as_u64().unwrap_or(0)),
            text(&past["actor"]),
            text(&past["cause"]),
            result(past, all, pending),
            devices.len().to_string(),
            named(devices.iter().map(|device| text(&device["device"])).collect(), NAMES_MAX),
            trouble.unwrap_or_default(),
        ]);
    }
    if all.is_empty() { "no transactions yet\n".into() } else { table.to_string() }
}

/// How it ended, and what became of it since.
fn result(past: &Value, all: &[Value], pending: Option<u64>) -> String {
    let (txn, result) = (past["txn"].as_u64().unwrap_or(0), text(&past["result"]));
    if pending == Some(txn) {
        return format!("{result}, not confirmed yet");
    }
    let undoes = |later: &&Value| {
        let since = undone_from(&text(&later["cause"]));
        let later_txn = later["txn"].as_u64().unwrap_or(0);
        later["result"] == "committed" && since.is_some_and(|since| since <= txn && txn < later_txn)
    };
    match all.iter().rev().find(undoes) {
        Some(later) if result == "committed" => format!("undone by {}", text(&later["txn"])),
        _ => result,
    }
}

/// From which transaction on a cause undoes.
fn undone_from(cause: &str) -> Option<u64> {
    let rollback = cause.strip_prefix("rollback to before ");
    let timeout = cause.strip_suffix(" was not confirmed in time");
    rollback.or(timeout)?.parse().ok()
}

/// By when to confirm, and what else happens.
pub(in crate::ctl) fn confirm_by(txn: u64, left: f64) -> String {
    let (clock, span) = (time::clock_in(left), time::span(left));
    format!(
        "confirm {txn} before {clock} (in {span}) with `lightloom ctl confirm {txn}`, or it is undone"
    )
}

/// One transaction, device by device where there is something to say, and what to do next. `left` is
/// how many seconds there are to confirm it.
pub(in crate::ctl) fn transaction(past: &Value, left: Option<f64>) -> String {
    let devices = list(&past["devices"]);
    let (txn, result) = (text(&past["txn"]), text(&past["result"]));
    let mut page = format!("transaction {txn}: {result}, {}\n", count(devices.len(), "device"));
    let odd = |device: &&Value| device["verdict"] != "applied" && device["verdict"] != "untouched";
    let odd = |device: &&Value| odd(device) || device["detail"] != "";
    let mut table = Table::new(["device", "verdict", "why"]);
    for device in devices.iter().filter(odd) {
        table.row([text(&device["device"]), text(&device["verdict"]), text(&device["detail"])]);
    }
    if devices.iter().any(|device| odd(&device)) {
        let _ = write!(page, "{table}");
    }
    let untouched = devices.iter().filter(|device| device["verdict"] == "untouched").count();
    if result != "committed" && untouched > 0 {
        let _ = writeln!(page, "untouched: {}", count(untouched, "device"));
    }
    if let Some(left) = left {
        let _ = writeln!(page, "{}", confirm_by(past["txn"].as_u64().unwrap_or(0), left));
    }
    if let Some(next) = next(&result) {
        let _ = writeln!(page, "{next}");
    }
    page
}

/// What to do after an end that nobody wished for.
fn next(result: &str) -> Option<&'static str> {
    match result {
        "aborted" => Some("nothing moved: mend what is named above, then apply again"),
        "rolled-back" => Some("every device is back where it stood: look at those named above"),
        "partial" => Some(
            "not every device is at either end: `lightloom ctl status` names those that need a \
             person and what to type",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn past(txn: u64, cause: &str, result: &str) -> Value {
        json!({"txn": txn, "cause": cause, "result": result})
    }

    #[test]
    fn what_was_undone_is_not_called_committed() {
        let all = [
            past(4, "3 was not confirmed in time", "committed"),
            past(3, "apply", "committed"),
            past(2, "rollback to before 1", "aborted"),
            past(1, "apply", "committed"),
        ];
        let results: Vec<String> = all.iter().map(|p| result(p, &all, Some(4))).collect();
        let expected = ["committed, not confirmed yet", "undone by 4", "aborted", "committed"];
        assert_eq!(results, expected);
    }
}
