//! The daemon's answers as people read them.

use std::fmt::Write;

use serde_json::Value;

use crate::table::Table;

/// What people look for, by the number of its terminal colour: green, yellow, red.
const PAINTED: [(u8, &[&str]); 3] = [
    (32, &["as-wanted", "committed", "no drift"]),
    (33, &["moving", "tuning", "rolled-back", "aborted", "WAITS FOR ITS CONFIRM"]),
    (31, &["drifted", "attention", "unseen", "partial", "NEEDS A PERSON", "JOURNAL FAILED"]),
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

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Why something was not done.
pub(super) fn refusal(body: &Value) -> String {
    if let Some(reason) = body["reason"].as_str() {
        return format!("conflict: {reason}");
    }
    let reasons: Vec<String> = list(&body["reasons"]).iter().map(text).collect();
    if reasons.is_empty() {
        text(body)
    } else {
        format!("refused: {}", reasons.join("\n         "))
    }
}

/// `lightloom ctl status`.
pub(super) fn status(status: &Value) -> String {
    let mut page = String::new();
    let plan = text(&status["plan_sha256"]);
    let plan = if plan.is_empty() { "none" } else { plan.get(..12).unwrap_or(&plan) };
    let (version, records) = (text(&status["version"]), text(&status["journal_records"]));
    let _ = writeln!(page, "version {version}, plan {plan}, {records} journal records");
    if let Some(why) = status["journal_failure"].as_str() {
        let _ = writeln!(page, "JOURNAL FAILED, changes are refused: {why}");
    }
    let pending = &status["pending"];
    if pending.is_object() {
        let left = pending["seconds_left"].as_f64().unwrap_or(0.0);
        let txn = text(&pending["txn"]);
        let _ = writeln!(page, "transaction {txn} WAITS FOR ITS CONFIRM, {left:.0} s left");
    }
    let open = &status["transaction"];
    if open.is_object() {
        let way = if open["going_back"] == true { "going back" } else { "on its way" };
        let (txn, actor) = (text(&open["txn"]), text(&open["actor"]));
        let _ = writeln!(page, "transaction {txn} by {actor} is {way}");
    }
    for (device, why) in status["attention"].as_object().into_iter().flatten() {
        let _ = writeln!(page, "{device} NEEDS A PERSON: {}", text(why));
    }
    for held in list(&status["held"]) {
        let _ = writeln!(page, "held drained: {}", text(held));
    }
    let _ = writeln!(page, "\n{}", devices(list(&status["devices"])));
    page + &transactions(&status["transactions"], 5)
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

/// More devices than fit a screen are counted, and only the odd ones listed.
const DEVICES_LISTED: usize = 40;

fn devices(devices: &[Value]) -> String {
    let as_wanted = |device: &&Value| device["state"] == "as-wanted";
    let good = devices.iter().filter(as_wanted).count();
    let mut table = Table::new(["device", "state", "slots", "identity"]);
    let all = devices.len() <= DEVICES_LISTED;
    let odd = devices.iter().filter(|device| all || !as_wanted(device));
    let mut odd: Vec<&Value> = odd.collect();
    odd.sort_by_cached_key(|device| natural(&text(&device["name"])));
    for device in odd.into_iter().take(DEVICES_LISTED) {
        let slots = device["slots"].as_object().map(|slots| {
            let shown = slots.iter().take(4).map(|(slot, to)| format!("{slot}>{to}"));
            let more =
                if slots.len() > 4 { format!(" +{}", slots.len() - 4) } else { String::new() };
            shown.collect::<Vec<_>>().join(" ") + &more
        });
        let why = device["trouble"].as_str().map(str::to_owned);
        let identity = why.unwrap_or_else(|| text(&device["identity"]));
        let slots = slots.unwrap_or_default();
        table.row([text(&device["name"]), text(&device["state"]), slots, identity]);
    }
    format!("{good} of {} devices as wanted\n{table}", devices.len())
}

/// Past transactions, newest first.
pub(super) fn transactions(transactions: &Value, last: usize) -> String {
    let mut table = Table::new(["txn", "who", "why", "result", "devices", "first trouble"]);
    for past in list(transactions).iter().take(last) {
        let devices = list(&past["devices"]);
        let trouble = devices.first().map(|device| text(&device["detail"])).unwrap_or_default();
        table.row([
            text(&past["txn"]),
            text(&past["actor"]),
            text(&past["cause"]),
            text(&past["result"]),
            devices.len().to_string(),
            trouble,
        ]);
    }
    table.to_string()
}

/// One transaction, device by device where there is something to say.
pub(super) fn transaction(past: &Value) -> String {
    let devices = list(&past["devices"]);
    let (txn, result) = (text(&past["txn"]), text(&past["result"]));
    let mut page = format!("transaction {txn}: {result}, {} devices\n", devices.len());
    let mut table = Table::new(["device", "verdict", "why"]);
    for device in devices.iter().filter(|device| device["verdict"] != "applied") {
        table.row([text(&device["device"]), text(&device["verdict"]), text(&device["detail"])]);
    }
    if devices.iter().any(|device| device["verdict"] != "applied") {
        let _ = write!(page, "{table}");
    }
    page
}

/// What stands elsewhere, in columns.
pub(super) fn drift(slots: &Value) -> String {
    if list(slots).is_empty() {
        return "no drift\n".into();
    }
    let dark = |value: &Value| if *value == 0 { "dark".to_owned() } else { text(value) };
    let mut table = Table::new(["device", "slot", "journal says", "device says"]);
    for slot in list(slots) {
        let device = text(&slot["device"]);
        table.row([device, text(&slot["slot"]), dark(&slot["ledger"]), dark(&slot["device_says"])]);
    }
    table.to_string()
}

/// What an apply would do.
pub(super) fn diff(diff: &Value) -> String {
    let moves = list(&diff["moves"]);
    let mut page = String::new();
    let (waves, dark) = (text(&diff["waves"]), text(&diff["dark_links_max"]));
    let version = text(&diff["version"]);
    let count = moves.len();
    let _ = writeln!(
        page,
        "moves: {count}, waves: {waves}, most links dark at a time: {dark}, against version {version}"
    );
    let dark = |value: &Value| if *value == 0 { "dark".to_owned() } else { text(value) };
    let mut table = Table::new(["device", "slot", "from", "to"]);
    for m in moves {
        table.row([text(&m["device"]), text(&m["slot"]), dark(&m["from"]), dark(&m["to"])]);
    }
    let _ = writeln!(page, "{table}");
    for device in list(&diff["bytes"]) {
        for request in list(&device["requests"]) {
            let _ = writeln!(page, "{} <- {}", text(&device["device"]), text(request));
        }
        if let Some(why) = device["trouble"].as_str() {
            let _ = writeln!(page, "{}: the bytes cannot be said: {why}", text(&device["device"]));
        }
    }
    let _ = writeln!(page, "for mode overwrite: --confirmation '{}'", text(&diff["confirmation"]));
    page
}

#[cfg(test)]
mod tests {
    use super::{natural, painted};

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
    }
}
