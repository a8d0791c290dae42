// SPDX-License-Identifier: Apache-2.0

use lightloom_control::ledger::Past;
use lightloom_control::record::Cause;
use lightloom_daemon_api::transaction::{
    DeviceResult, Transaction, TransactionResult, TransactionState,
};

use super::{twins, words};

pub fn past(past: &Past) -> Transaction {
    let mut devices: Vec<DeviceResult> = past
        .ends
        .iter()
        .map(|(device, end)| DeviceResult {
            device: device.to_string(),
            verdict: twins::verdict(end.verdict),
            detail: end.detail.clone(),
            unlit: end.unlit,
        })
        .collect();
    devices.sort_by_key(|device| device.detail.is_empty());
    let result = match past.undone_by {
        Some(_) => TransactionResult::Undone,
        None => twins::result(past.result),
    };
    Transaction {
        txn: past.txn.0,
        actor: past.actor.to_string(),
        cause: cause_text(&past.cause),
        kind: twins::kind(&past.cause),
        summary: words::of_past(past),
        plan_sha256: past.plan_sha256.clone(),
        unix_ms: past.wall_ms,
        state: match past.confirmed_ms {
            Some(_) if past.undone_by.is_none() => TransactionState::Confirmed,
            _ => twins::state(&result),
        },
        result,
        confirm_until_unix_ms: None,
        undone_by: past.undone_by.map(|txn| txn.0),
        broken: words::news(&past.failed_after, &past.failed_before),
        repaired: words::news(&past.failed_before, &past.failed_after),
        crossed: Vec::new(),
        when_known: Vec::new(),
        devices,
    }
}

pub(super) fn cause_text(cause: &Cause) -> String {
    match cause {
        Cause::Apply => "apply".into(),
        Cause::Phase => "phase".into(),
        Cause::Rollback(txn) => format!("rollback to before {txn}"),
        Cause::ConfirmTimeout(txn) => format!("{txn} was not confirmed in time"),
        Cause::Bypass => "bypass".into(),
        Cause::Repair => "repair".into(),
        Cause::Drift => "drift".into(),
        Cause::Deferred(txn) => format!("deferred since {txn}"),
        Cause::Late(txn) => format!("late command of {txn}"),
        Cause::Probe => "probe".into(),
    }
}
