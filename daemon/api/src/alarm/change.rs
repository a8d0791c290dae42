// SPDX-License-Identifier: Apache-2.0

use std::fmt::Write;

use super::{Alarm, Moment, clock_at, span_ps};
use crate::device::DeviceState;
use crate::log::JournalDamage;
use crate::status::Status;
use crate::text::{count, span};
use crate::transaction::{
    DeviceResult, DeviceVerdict, Kind, OpenTransaction, Transaction, TransactionResult,
};

const CONFIRM_TIMEOUT: &str = "policy:confirm-timeout";

/// Returns the direction of an open transaction as text.
pub fn way(open: &OpenTransaction) -> &'static str {
    if open.going_back { "going back" } else { "going forward" }
}

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
    Some(Alarm::new(format!("transaction {txn} AWAITS CONFIRMATION"), about, next))
}

pub(super) fn on_the_way(status: &Status) -> Option<Alarm> {
    let open = status.transaction.as_ref()?;
    let OpenTransaction { txn, actor, summary, .. } = open;
    let why = match open.undoes {
        Some(undone) if open.kind == Kind::ConfirmTimeout => {
            format!("undoes {undone}, which was not confirmed in time ({CONFIRM_TIMEOUT}), ")
        }
        Some(undone) => format!("undoes {undone} and all later changes, "),
        None if summary.is_empty() => String::new(),
        None => format!("{summary}, "),
    };
    let mut about = format!("{why}{}, {}", count(open.devices, "device"), way(open));
    if actor != CONFIRM_TIMEOUT {
        let _ = write!(about, ", requested by {actor}");
    }
    for (device, left_ps) in &open.waits_for_ps {
        let _ = write!(about, "; waits for {device}, {} at most", span_ps(*left_ps));
    }
    let what = format!("transaction {txn} IN PROGRESS");
    Some(Alarm::new(what, about, "see it: lightloom ctl watch"))
}

/// This alarm is listed first, because it replaces the one about the pending confirmation.
pub(super) fn undoing(status: &Status) -> Option<Alarm> {
    status.transaction.as_ref()?.undoes?;
    on_the_way(status)
}

/// Partial results need no alarm here, because each device that needs action has one.
pub(super) fn did_not_take(status: &Status) -> Option<Alarm> {
    let past = status.transactions.first()?;
    if !matches!(past.result, TransactionResult::Aborted | TransactionResult::RolledBack) {
        return None;
    }
    let is_as_before = past.devices.iter().all(|part| {
        let device = status.devices.iter().find(|device| device.name == part.device);
        device.is_none_or(|device| device.state == DeviceState::AsWanted)
    });
    if is_as_before {
        return None;
    }
    let why = troubles(past).first().map(|d| format!("{}: {}", d.device, d.detail));
    let Transaction { txn, result, summary, actor, .. } = past;
    let what = (!summary.is_empty()).then(|| format!("{summary}, by {actor}: "));
    let why = why.unwrap_or_else(|| "no device reported a reason".into());
    let about = format!("{}{result}; {why}", what.unwrap_or_default());
    Some(Alarm::new(format!("transaction {txn} DID NOT TAKE EFFECT"), about, next(past)?))
}

/// Returns the devices that reported a detail. Devices that only lack light come last, because
/// another device is usually the cause.
pub fn troubles(past: &Transaction) -> Vec<&DeviceResult> {
    let said = past.devices.iter().filter(|device| !device.detail.is_empty());
    let mut devices: Vec<&DeviceResult> = said.collect();
    devices.sort_by_key(|device| device.unlit);
    devices
}

/// Returns the remedy for a failed change. `None` if the transaction needs none.
pub fn next(past: &Transaction) -> Option<String> {
    let unknown = troubles(past).into_iter().filter(|d| d.verdict == DeviceVerdict::Unknown);
    let unknown: Vec<&str> = unknown.map(|d| d.device.as_str()).collect();
    // Older daemons do not send the kind, but their cause includes it.
    let is_bypass = past.kind == Kind::Bypass
        || (past.kind == Kind::default() && past.cause == Kind::Bypass.to_string());
    let again = match unknown.is_empty() {
        true => "fix the listed devices, then apply again: lightloom ctl apply PLAN".to_owned(),
        false => {
            format!("when it answers, apply again: lightloom ctl wait {}", unknown.join(" "))
        }
    };
    match past.result {
        TransactionResult::Aborted if is_bypass && !unknown.is_empty() => Some(format!(
            "nothing moved, and the fault is still recorded; to bypass the unreachable devices as \
             well: lightloom ctl fault {}",
            unknown.join(",")
        )),
        TransactionResult::Aborted => Some(format!("nothing moved: {again}")),
        TransactionResult::RolledBack => {
            Some(format!("every device is back at its previous position: {again}"))
        }
        TransactionResult::Partial => Some(
            "some devices are in neither the old nor the new state: `lightloom ctl status` lists \
             those that need an \
                operator, with the command"
                .into(),
        ),
        _ => None,
    }
}

/// Returns where a journal is damaged, and the remedy.
pub fn damage(damage: &JournalDamage) -> (String, String) {
    let JournalDamage { file, readable, line, byte, reason, what_to_do } = damage;
    let readable = count(usize::try_from(*readable).unwrap_or(usize::MAX), "record");
    let about =
        format!("{file} line {line} (byte {byte}): {reason}; {readable} before it can be read");
    (about, what_to_do.clone())
}
