// SPDX-License-Identifier: Apache-2.0
//! What to do about a device that needs a person, and what is waited for: only what would be accepted now.

use std::collections::BTreeMap;

use super::unseen;
use crate::runtime::Runtime;
use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, Remedy};
use lightloom_control::record::Cause;
use lightloom_control::state::{DeviceName, Txn};
use lightloom_daemon_api::status::OwedView;

/// With more drifted devices than so many, all are adopted.
const DRIFTED_NAMED_MAX: usize = 6;

/// Devices in attention for whom the daemon does not go on by itself, and why.
pub(super) fn reasons(runtime: &Runtime) -> BTreeMap<String, String> {
    let all = runtime.control.controller().ledger().attention.iter();
    let left = all.filter(|(device, _)| !is_owed(runtime, device));
    left.map(|(device, why)| (device.to_string(), why.clone())).collect()
}

/// What to do about each of them.
pub(super) fn nexts(runtime: &Runtime) -> BTreeMap<String, String> {
    let all = runtime.control.controller().ledger().attention.keys();
    let left = all.filter(|device| !is_owed(runtime, device));
    left.map(|device| (device.to_string(), next(runtime, device))).collect()
}

/// Devices in attention that are given what they are owed without a person.
pub(super) fn owed(runtime: &Runtime) -> BTreeMap<String, OwedView> {
    let ledger = runtime.control.controller().ledger();
    let all = ledger.attention.iter().filter(|(device, _)| is_owed(runtime, device));
    all.map(|(device, why)| {
        let txn = ledger.owed.get(device).map(|owed| owed.txn).unwrap_or_default();
        let view =
            OwedView { what: missed(runtime, txn), why: why.clone(), next: next(runtime, device) };
        (device.to_string(), view)
    })
    .collect()
}

fn is_owed(runtime: &Runtime, device: &DeviceName) -> bool {
    runtime.control.failed().is_none() && runtime.control.controller().is_brought_back(device)
}

/// What a device missed in this transaction.
fn missed(runtime: &Runtime, txn: Txn) -> String {
    let mut history = runtime.control.controller().ledger().history.iter();
    match history.find(|past| past.txn == txn).map(|past| &past.cause) {
        Some(Cause::Rollback(undone) | Cause::ConfirmTimeout(undone)) => {
            format!("the undoing of {undone}")
        }
        _ => format!("the way back of {txn}"),
    }
}

/// The command that applies the plan once more, where it would be accepted now and forgets nothing that is
/// known to be broken.
pub(super) fn again(runtime: &Runtime) -> Option<&'static str> {
    let (sha256, plan) = runtime.control.applied_last().ok()?;
    if !runtime.control.forgotten_by(&plan).is_empty() {
        return None;
    }
    let owned = &runtime.control.controller().ledger().owned;
    let target = runtime.control.both_halves(&plan, &plan, owned).ok()?;
    let mut apply = Apply { target, plan_sha256: sha256, ..Apply::default() };
    let mut accepted = |mode| {
        apply.mode = mode;
        runtime.control.controller().preview(&apply).is_ok()
    };
    match () {
        () if accepted(Mode::Safe) => Some("lightloom ctl apply --again"),
        () if accepted(Mode::Update) => Some("lightloom ctl apply --again --mode update"),
        () => None,
    }
}

/// What to do, in words and commands.
fn next(runtime: &Runtime, device: &DeviceName) -> String {
    if runtime.control.failed().is_some() {
        return "nothing can be done before the journal is mended".into();
    }
    match runtime.control.controller().remedy(device) {
        Remedy::Over(txn) => format!("transaction {txn} comes first: lightloom ctl watch"),
        Remedy::Answer { owed } => {
            let then = match owed {
                true => "it is read and brought back by itself when it answers",
                false => "it can be adopted or moved when it answers",
            };
            format!("check its management line and power: {then}{}", around(runtime, device))
        }
        Remedy::Adopt { .. } if is_owed(runtime, device) => {
            format!(
                "it answers again and is brought back by itself; or take it as it stands: lightloom ctl adopt \
                 {device}"
            )
        }
        Remedy::Decide(txn) => format!(
            "decide first about transaction {txn}: lightloom ctl confirm {txn}, or lightloom ctl \
             rollback {txn}"
        ),
        Remedy::Adopt { apply } => {
            let apply = again(runtime).filter(|_| apply);
            let apply = apply.map(|apply| format!("; or {apply}")).unwrap_or_default();
            format!("look at it, then take it as it stands: lightloom ctl adopt {device}{apply}")
        }
    }
}

/// What to do about devices that stand elsewhere than the journal says.
pub(super) fn drifted_next(runtime: &Runtime, drifted: &[DeviceName]) -> Option<String> {
    drifted.first()?;
    let ledger = runtime.control.controller().ledger();
    if let Some(open) = &ledger.open {
        return Some(format!("transaction {} comes first: lightloom ctl watch", open.intent.txn));
    }
    if let Some(pending) = &ledger.pending {
        let txn = pending.txn;
        return Some(format!(
            "decide first about transaction {txn}: lightloom ctl confirm {txn}, or lightloom ctl rollback {txn}"
        ));
    }
    let silent = unseen(runtime);
    let adopt = match silent.is_empty() && drifted.len() > DRIFTED_NAMED_MAX {
        true => "all".into(),
        false => drifted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    };
    let back = put_back(runtime, &silent);
    // Who lost their power stand where they start, and were not brought there: that is not to become what is wanted.
    let controller = runtime.control.controller();
    let restarted = drifted.iter().all(|device| controller.has_restarted(device));
    Some(match back.strip_prefix("or ").filter(|_| restarted) {
        Some(back) => back.to_owned(),
        None => format!("take what is lit as ours: lightloom ctl adopt {adopt}; {back}"),
    })
}

/// How to put drifted devices back.
fn put_back(runtime: &Runtime, silent: &[String]) -> String {
    let controller = runtime.control.controller();
    let home = controller.way_home();
    if let Ok(home) = &home
        && let Ok(preview) = controller.preview(home)
    {
        let diff = super::diff(runtime, &preview, home, None, String::new());
        let cut = if diff.moves.iter().any(|one| one.cuts_light) { " --cut-light" } else { "" };
        return format!(
            "or put it back where the journal says: lightloom ctl apply --restore{cut}"
        );
    }
    match (again(runtime), silent.is_empty()) {
        _ if home.is_err() => "or take it away there: it is not ours".into(),
        (Some(command), _) => format!("or put it back: {command}"),
        (None, true) => "or put it back: lightloom ctl apply PLAN --mode update".into(),
        (None, false) => format!("it can be put back when {} answers again", named(silent)),
    }
}

fn named(names: &[String]) -> String {
    let shown = names.iter().take(DRIFTED_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(DRIFTED_NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How to lead rings around a silent module meanwhile, where the plan does not do so.
fn around(runtime: &Runtime, device: &DeviceName) -> String {
    let part = device.as_str();
    let known = runtime.control.broken();
    let in_plan = runtime.control.plan().is_some_and(|plan| {
        plan.transceivers.iter().any(|transceiver| transceiver.bundle.to_string() == part)
    });
    match in_plan && !known.contains_key(part) {
        true => format!("; lead rings around it meanwhile: lightloom ctl fault {part}"),
        false => String::new(),
    }
}
