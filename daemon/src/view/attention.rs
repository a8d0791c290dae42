// SPDX-License-Identifier: Apache-2.0
//! Remedies that the daemon would accept now, for open changes and for devices that need an operator.

use std::collections::BTreeMap;

use super::{Knowledge, unseen};
use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, Remedy, Rollback};
use lightloom_control::ledger::Past;
use lightloom_control::record::{Cause, TxnResult};
use lightloom_control::replan::is_inside;
use lightloom_control::state::{DeviceName, Txn, at};
use lightloom_daemon_api::status::{BrokenPart, OwedView};
use lightloom_daemon_api::text::named;
use lightloom_fabric::fault::Part;

const DRIFTED_NAMED_MAX: usize = 6;

pub(super) fn reasons(known: &Knowledge<'_>) -> BTreeMap<String, String> {
    let all = known.control.ledger().attention.iter();
    let left = all.filter(|(device, _)| needs_action(known, device));
    left.map(|(device, why)| (device.to_string(), why.clone())).collect()
}

pub(super) fn nexts(known: &Knowledge<'_>) -> BTreeMap<String, String> {
    let all = known.control.ledger().attention.keys();
    let left = all.filter(|device| needs_action(known, device));
    left.map(|device| (device.to_string(), next(known, device))).collect()
}

pub(super) fn deferred(known: &Knowledge<'_>) -> BTreeMap<String, OwedView> {
    let ledger = known.control.ledger();
    let all = ledger.attention.iter().filter(|(device, _)| is_owed(known, device));
    all.map(|(device, why)| {
        let txn = ledger.deferred.get(device).map(|deferred| deferred.txn).unwrap_or_default();
        let view =
            OwedView { what: missed(known, txn), why: why.clone(), next: next(known, device) };
        (device.to_string(), view)
    })
    .collect()
}

pub(super) fn needs_action(known: &Knowledge<'_>, device: &DeviceName) -> bool {
    is_left(known, device) && !is_owed(known, device)
}

pub(super) fn is_left(known: &Knowledge<'_>, device: &DeviceName) -> bool {
    let ledger = known.control.ledger();
    ledger.attention.contains_key(device)
        && (ledger.deferred.contains_key(device)
            || left_by(known, device).is_none_or(|past| !is_as_before(known, past)))
}

fn left_by<'a>(known: &Knowledge<'a>, device: &DeviceName) -> Option<&'a Past> {
    let mut history = known.control.ledger().history.iter().rev();
    history.find(|past| past.result == TxnResult::Partial && past.ends.contains_key(device))
}

fn is_as_before(known: &Knowledge<'_>, past: &Past) -> bool {
    let devices = known.control.sightings().devices();
    let mut before = past.stood_before.iter();
    !past.cause.undoes()
        && before.all(|(device, before)| {
            let seen = devices.get(device).filter(|seen| seen.is_reachable());
            let read = seen.and_then(|seen| seen.observed());
            read.is_some_and(|read| {
                let mut slots = before.keys().chain(read.positions.keys());
                slots.all(|slot| at(before, *slot) == at(&read.positions, *slot))
            })
        })
}

fn is_owed(known: &Knowledge<'_>, device: &DeviceName) -> bool {
    known.control.journal_failure().is_none()
        && known.control.transactions().is_brought_back(device, known.control.sightings())
}

fn missed(known: &Knowledge<'_>, txn: Txn) -> String {
    let mut history = known.control.ledger().history.iter();
    match history.find(|past| past.txn == txn).map(|past| &past.cause) {
        Some(Cause::Rollback(undone) | Cause::ConfirmTimeout(undone)) => {
            format!("the undo of {undone}")
        }
        _ => format!("the rollback of {txn}"),
    }
}

fn typed(known: &Knowledge<'_>, words: &str, apply: &Apply) -> Option<String> {
    let preview = known.control.controller().preview(apply).ok()?;
    let diff = super::diff(known, &preview, apply, None, String::new());
    let cut = if diff.moves.iter().any(|one| one.cuts_light) { " --cut-light" } else { "" };
    Some(format!("lightloom ctl {words}{cut}"))
}

pub(super) fn again(known: &Knowledge<'_>) -> Option<String> {
    let (sha256, plan) = known.control.facts().applied_last().ok()?;
    if is_busy(known) || !known.control.facts().forgotten_by(&plan).is_empty() {
        return None;
    }
    let owned = &known.control.ledger().owned;
    let target = known.control.facts().both_halves(&plan, &plan, owned).ok()?;
    let mut apply = Apply { target, plan_sha256: sha256, ..Apply::default() };
    let safe = typed(known, "apply --again", &apply);
    apply.mode = Mode::Update;
    safe.or_else(|| typed(known, "apply --again --mode update", &apply))
}

pub(super) fn restore(known: &Knowledge<'_>) -> Option<String> {
    let home = known.control.controller().way_home().ok()?;
    let is_needed = !home.target.is_empty() && !is_busy(known);
    typed(known, "apply --restore", &home).filter(|_| is_needed)
}

pub(super) fn adopt(known: &Knowledge<'_>, devices: &[DeviceName]) -> String {
    let controller = known.control.controller();
    let all: Vec<DeviceName> = controller.sightings().devices().keys().cloned().collect();
    let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let (names, devices) = match devices.len() > DRIFTED_NAMED_MAX {
        true => ("all".to_owned(), &all[..]),
        false => (names.join(" "), devices),
    };
    let taken = controller.transactions().taken_by_adopting(devices, controller.sightings());
    let against = if taken.is_empty() { "" } else { " --against-plan" };
    format!("lightloom ctl adopt {names}{against}")
}

pub(super) fn decide_first(known: &Knowledge<'_>) -> Option<String> {
    let ledger = known.control.ledger();
    let open = ledger.open.as_ref().map(|open| open.intent.txn);
    let pending = ledger.pending.as_ref().map(|pending| pending.txn);
    let open = open.map(|txn| format!("transaction {txn} comes first: lightloom ctl watch"));
    open.or_else(|| {
        pending.map(|txn| {
            format!(
                "first confirm or undo transaction {txn}: lightloom ctl confirm {txn}, or \
                lightloom ctl rollback {txn}"
            )
        })
    })
}

fn is_busy(known: &Knowledge<'_>) -> bool {
    decide_first(known).is_some()
}

fn next(known: &Knowledge<'_>, device: &DeviceName) -> String {
    if known.control.journal_failure().is_some() {
        return "repair the journal first".into();
    }
    match known.control.transactions().remedy(device, known.control.sightings()) {
        Remedy::Answer { deferred } => {
            let then = match deferred {
                true => "it is restored automatically when it answers",
                false => "it can be adopted or moved when it answers",
            };
            let around = around(known, device);
            format!(
                "check its management line and power: {then}: lightloom ctl wait {device}{around}"
            )
        }
        Remedy::Over(_) | Remedy::Decide(_) => decide_first(known).unwrap_or_default(),
        Remedy::Adopt { .. } if is_owed(known, device) => {
            let adopt = adopt(known, std::slice::from_ref(device));
            format!(
                "it answers again and is restored automatically; or accept its position: {adopt}"
            )
        }
        Remedy::Adopt { apply } => {
            let one = std::slice::from_ref(device);
            let lost = lost_by_adopting(known, device);
            let adopt = adopt(known, one);
            let back = restore(known)
                .filter(|_| lost > 0)
                .or_else(|| undo(known, device))
                .or_else(|| again(known).filter(|_| apply));
            match (back, lost) {
                (Some(back), 0) => {
                    format!("restore it: {back}; or accept its position: {adopt}")
                }
                (Some(back), lost) => {
                    let s = if lost == 1 { "" } else { "s" };
                    format!(
                        "restore it: {back}; or accept its position and give up {lost} earlier lit position{s}: \
                         {adopt}"
                    )
                }
                (None, _) => format!("check it, then accept its position: {adopt}"),
            }
        }
    }
}

fn lost_by_adopting(known: &Knowledge<'_>, device: &DeviceName) -> usize {
    let controller = known.control.controller();
    let read = controller.sightings().devices().get(device).and_then(|seen| seen.observed());
    let wanted = controller.transactions().wanted(device).into_iter();
    let lost = wanted.filter(|(slot, wanted)| {
        !wanted.is_dark() && read.is_some_and(|read| at(&read.positions, *slot) != *wanted)
    });
    lost.count()
}

fn undo(known: &Knowledge<'_>, device: &DeviceName) -> Option<String> {
    let txn = left_by(known, device).filter(|past| past.undone_by.is_none())?.txn;
    let rollback = Rollback { txn, ..Rollback::default() };
    let (back, _) = known.control.facts().way_back(&rollback).ok()?;
    let moves = known.control.controller().preview(&back).is_ok_and(|p| !p.changes.is_empty());
    moves.then(|| format!("lightloom ctl rollback {txn} --cut-light"))
}

pub(super) fn drifted_next(known: &Knowledge<'_>, drifted: &[DeviceName]) -> Option<String> {
    drifted.first()?;
    if let Some(first) = decide_first(known) {
        return Some(first);
    }
    let restore = restore(known);
    // Do not suggest adopting the power-on positions of devices that lost power.
    let controller = known.control.controller();
    let is_restart = drifted.iter().all(|device| controller.sightings().has_restarted(device));
    let adopt = adopt(known, drifted);
    Some(match restore {
        Some(restore) if is_restart => {
            format!("restore the positions in plan and journal: {restore}")
        }
        Some(restore) => format!(
            "restore the positions in plan and journal: {restore}; or adopt the current light: \
                {adopt}"
        ),
        None => {
            let unseen = unseen(known);
            let unseen = match unseen.is_empty() {
                true => String::new(),
                false => format!("(unknown for {})", named(unseen, DRIFTED_NAMED_MAX)),
            };
            format!("adopt the current light: {adopt}; or remove the light at its source{unseen}")
        }
    })
}

pub(super) fn broken_next(known: &Knowledge<'_>, parts: &[BrokenPart]) -> Option<String> {
    let left = parts.iter().filter(|part| !part.bypassed).map(|broken| broken.part.as_str());
    let left: Vec<&str> = left.collect();
    known.control.plan().filter(|_| !left.is_empty())?;
    let whole = left
        .iter()
        .copied()
        .filter(|part| !left.iter().any(|other| other != part && is_inside(part, other)));
    let names = whole.collect::<Vec<_>>().join(" ");
    let named = left.iter().filter_map(|part| Some((part.parse::<Part>().ok()?, String::new())));
    let bypass = known.control.facts().try_bypass(&known.now, &named.collect::<Vec<_>>(), &[]);
    let refused =
        bypass.and_then(|(apply, _)| known.control.controller().preview(&apply).map(|_| ()));
    Some(match refused {
        Ok(()) => format!("bypass it: lightloom ctl fault {names}"),
        Err(reasons) => format!(
            "it cannot be bypassed now ({}): repair or replace it, then run: lightloom ctl fault \
                --repaired {names}",
            reasons.first().map_or("unknown reason", String::as_str)
        ),
    })
}

fn around(known: &Knowledge<'_>, device: &DeviceName) -> String {
    let part = device.as_str();
    let broken = known.control.facts().failed_parts();
    let in_plan = known.control.plan().is_some_and(|plan| {
        plan.transceivers.iter().any(|transceiver| transceiver.bundle.to_string() == part)
    });
    match in_plan && !broken.contains_key(part) {
        true => format!("; bypass it meanwhile: lightloom ctl fault {part}"),
        false => String::new(),
    }
}
