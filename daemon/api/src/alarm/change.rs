// SPDX-License-Identifier: Apache-2.0
//! Changes: on their way, waiting for a confirm, and those that did not take.

use std::fmt::Write;

use super::{Alarm, Moment, clock_at, span_ps};
use crate::device::DeviceState;
use crate::log::JournalDamage;
use crate::status::Status;
use crate::text::{count, span};
use crate::transaction::{
    DeviceResult, DeviceVerdict, Kind, OpenTransaction, Transaction, TransactionResult,
};

/// Who undoes what was not confirmed in time.
const CONFIRM_TIMEOUT: &str = "policy:confirm-timeout";

/// `going back`, `going forward`.
#[must_use]
pub fn way(open: &OpenTransaction) -> &'static str {
    if open.going_back { "going back" } else { "going forward" }
}

/// A change that waits for its confirm.
pub(super) fn pending(status: &Status, moment: Moment) -> Option<Alarm> {
    let pending = status.pending.as_ref()?;
    let txn = pending.txn;
    let past = status.transactions.iter().find(|past| past.txn == txn);
    let past = past.filter(|past| !past.summary.is_empty());
    let what_it_was = past.map(|past| format!("{}, by {}: ", past.summary, past.actor));
    let about = format!(
        "{}{} left, until {}, then it is undone",
        what_it_was.unwrap_or_default(),
        span(pending.seconds_left),
        clock_at(moment, pending.until_unix_ms)
    );
    let next =
        format!("keep it: lightloom ctl confirm {txn}; undo it: lightloom ctl rollback {txn}");
    Some(Alarm::new(format!("transaction {txn} WAITS FOR ITS CONFIRM"), about, next))
}

/// The transaction on its way, and whom it waits for.
pub(super) fn on_the_way(status: &Status) -> Option<Alarm> {
    let open = status.transaction.as_ref()?;
    let OpenTransaction { txn, actor, summary, .. } = open;
    let why = match open.undoes {
        Some(undone) if open.kind == Kind::ConfirmTimeout => {
            format!("undoes {undone}, which was not confirmed in time ({CONFIRM_TIMEOUT}), ")
        }
        Some(undone) => format!("undoes {undone} and what came after it, "),
        None if summary.is_empty() => String::new(),
        None => format!("{summary}, "),
    };
    let mut about = format!("{why}{}, {}", count(open.devices, "device"), way(open));
    if actor != CONFIRM_TIMEOUT {
        let _ = write!(about, ", asked by {actor}");
    }
    for (device, left_ps) in &open.waits_for_ps {
        let _ = write!(about, "; waits for {device}, {} at most", span_ps(*left_ps));
    }
    let what = format!("transaction {txn} ON ITS WAY");
    Some(Alarm::new(what, about, "see it: lightloom ctl watch"))
}

/// The same, where it undoes another: that comes first, in the place of the confirm that was waited for.
pub(super) fn undoing(status: &Status) -> Option<Alarm> {
    status.transaction.as_ref()?.undoes?;
    on_the_way(status)
}

/// The last change did not take, and a device of it is not back where it was. A partial one is shown by the devices
/// that need action.
pub(super) fn did_not_take(status: &Status) -> Option<Alarm> {
    let past = status.transactions.first()?;
    if !matches!(past.result, TransactionResult::Aborted | TransactionResult::RolledBack) {
        return None;
    }
    let as_before = |name: &str| {
        let device = status.devices.iter().find(|device| device.name == name);
        device.is_none_or(|device| device.state == DeviceState::AsWanted)
    };
    if past.devices.iter().all(|part| as_before(&part.device)) {
        return None;
    }
    let why = troubles(past).first().map(|d| format!("{}: {}", d.device, d.detail));
    let Transaction { txn, result, summary, actor, .. } = past;
    let what = (!summary.is_empty()).then(|| format!("{summary}, by {actor}: "));
    let why = why.unwrap_or_else(|| "no device says why".into());
    let about = format!("{}{result}; {why}", what.unwrap_or_default());
    Some(Alarm::new(format!("transaction {txn} DID NOT TAKE"), about, next(past)?))
}

/// Devices with something to say. Light that is missing at one is mostly the doing of another, so what
/// speaks of nothing else comes last.
#[must_use]
pub fn troubles(past: &Transaction) -> Vec<&DeviceResult> {
    let said = past.devices.iter().filter(|device| !device.detail.is_empty());
    let mut devices: Vec<&DeviceResult> = said.collect();
    devices.sort_by_key(|device| device.unlit);
    devices
}

/// The remedy after a change that did not take.
#[must_use]
pub fn next(past: &Transaction) -> Option<String> {
    let silent = troubles(past).into_iter().filter(|d| d.verdict == DeviceVerdict::Unknown);
    let silent: Vec<&str> = silent.map(|d| d.device.as_str()).collect();
    // A daemon that names no kind names it in the cause.
    let is_bypass = past.kind == Kind::Bypass
        || (past.kind == Kind::default() && past.cause == Kind::Bypass.to_string());
    let again = match silent.is_empty() {
        true => "mend what is named, then apply again: lightloom ctl apply PLAN".to_owned(),
        false => format!("when it answers, apply again: lightloom ctl wait {}", silent.join(" ")),
    };
    match past.result {
        TransactionResult::Aborted if is_bypass && !silent.is_empty() => Some(format!(
            "nothing moved; the report is kept; to bypass what does not answer, too: lightloom ctl fault {}",
            silent.join(",")
        )),
        TransactionResult::Aborted => Some(format!("nothing moved: {again}")),
        TransactionResult::RolledBack => {
            Some(format!("every device is back where it stood: {again}"))
        }
        TransactionResult::Partial => Some(
            "not every device is at either end: `lightloom ctl status` names those that need a person and what to type"
                .into(),
        ),
        _ => None,
    }
}

/// Where a journal is damaged and what a person can do.
#[must_use]
pub fn damage(damage: &JournalDamage) -> (String, String) {
    let JournalDamage { file, readable, line, byte, reason, what_to_do } = damage;
    let readable = count(usize::try_from(*readable).unwrap_or(usize::MAX), "record");
    let about =
        format!("{file} line {line} (byte {byte}): {reason}; {readable} before it can be read");
    (about, what_to_do.clone())
}
