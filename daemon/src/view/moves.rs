// SPDX-License-Identifier: Apache-2.0

use lightloom_fabric::khop::Port;
use lightloom_fabric::plan::Plan;
use lightloom_units::id::BundleId;

use super::{Knowledge, circuits, parts, words};
use lightloom_control::change::{self, Domains};
use lightloom_control::controller::{Apply, Preview};
use lightloom_control::drive::Site;
use lightloom_control::ledger::{Ledger, Past};
use lightloom_control::record::{Cause, TxnResult};
use lightloom_control::state::{DeviceName, Move, Position, Slot, Txn};
use lightloom_daemon_api::device::CrossedEnd;
use lightloom_daemon_api::diff::{Diff, MoveView, OtherChange};

const PS_A_MICROSECOND: u64 = 1_000_000;

pub fn diff(
    known: &Knowledge<'_>,
    preview: &Preview,
    apply: &Apply,
    next: Option<&Plan>,
    confirmation: String,
) -> Diff {
    let broken = known.control.facts().failed_parts();
    let after = apply.failed.clone().unwrap_or_else(|| broken.clone());
    let forgotten = broken.into_iter().filter(|(part, _)| !after.contains_key(part)).collect();
    let moves = preview.changes.iter().flat_map(|(device, moves)| {
        moves.iter().map(move |m| move_view(known, preview, next, device, m))
    });
    let ledger = known.control.ledger();
    let plan_after = plan_after(ledger, apply);
    Diff {
        version: preview.version,
        confirmation,
        undoes: others(known, |first, past| past.txn >= first && past.undone_by.is_none(), apply),
        restores: others(
            known,
            |first, past| past.txn < first && past.undone_by.is_some_and(|by| by >= first),
            apply,
        ),
        no_plan_after: plan_after.is_empty() && !ledger.plan_sha256.is_empty(),
        plan_sha256: plan_after.to_owned(),
        circuits: circuits::counted(known, &preview.changes),
        crossed: moved_and_crossed(known, preview, apply),
        moves: moves.collect(),
        waves: preview.waves.len(),
        phase: preview.phase.as_ref().map(ToString::to_string).unwrap_or_default(),
        dark_links_max: dark_links_max(known, preview),
        broken: parts(known, after),
        forgets: parts(known, forgotten),
        bytes: Vec::new(),
    }
}

fn dark_links_max(known: &Knowledge<'_>, preview: &Preview) -> usize {
    let inventory = known.control.sightings().inventory();
    preview.waves.iter().map(|wave| change::dark_links(wave, inventory)).max().unwrap_or(0)
}

fn plan_after<'a>(ledger: &'a Ledger, apply: &'a Apply) -> &'a str {
    let is_touched = apply.target.keys().any(|device| ledger.plan_devices.contains(device));
    match () {
        () if !apply.plan_sha256.is_empty() => &apply.plan_sha256,
        () if is_touched => "",
        () => &ledger.plan_sha256,
    }
}

fn others(
    known: &Knowledge<'_>,
    spoken_of: impl Fn(Txn, &Past) -> bool,
    apply: &Apply,
) -> Vec<OtherChange> {
    let Some(Cause::Rollback(first)) = apply.cause else { return Vec::new() };
    let history = known.control.ledger().history.iter().rev();
    let spoken_of = history.filter(|past| {
        matches!(past.result, TxnResult::Committed | TxnResult::Partial) && spoken_of(first, past)
    });
    let others = spoken_of.map(|past| OtherChange {
        txn: past.txn.0,
        actor: past.actor.to_string(),
        summary: words::of_past(past),
    });
    others.collect()
}

fn moved_and_crossed(known: &Knowledge<'_>, preview: &Preview, apply: &Apply) -> Vec<CrossedEnd> {
    let devices = known.control.sightings().devices().keys();
    let ends = devices.flat_map(|device| super::crossed(known, device));
    let moved = ends.filter(|crossed| {
        [&crossed.end, &crossed.should_be].iter().any(|end| {
            let device = end.split_once('.').map(|(device, _)| DeviceName::from(device));
            device.is_some_and(|device| {
                apply.target.contains_key(&device) || preview.changes.contains_key(&device)
            })
        })
    });
    moved.collect()
}

fn move_view(
    known: &Knowledge<'_>,
    preview: &Preview,
    next: Option<&Plan>,
    device: &DeviceName,
    m: &Move,
) -> MoveView {
    let inventory = known.control.sightings().inventory();
    let goes_dark = circuit(known.control.plan(), device, m.slot, m.from);
    let seen = known.control.sightings().devices().get(device);
    let power = seen
        .and_then(|seen| seen.observed())
        .and_then(|read| read.power_mdbm.get(&m.slot).copied());
    let is_lit = power.is_none_or(|power| power >= inventory.limits(device).power_min_mdbm);
    let wave = preview
        .waves
        .iter()
        .position(|wave| wave.get(device).is_some_and(|step| step.end().contains_key(&m.slot)));
    MoveView {
        device: device.to_string(),
        slot: m.slot.0,
        from: m.from.0,
        to: m.to.0,
        wave: wave.map_or(0, |wave| wave + 1),
        domain: inventory.domain(device, m.slot),
        cuts_light: goes_dark.is_some() && is_lit,
        goes_dark,
        comes_up: circuit(next, device, m.slot, m.to),
        answer_within_ps: inventory.limits(device).reply_within.0.saturating_mul(PS_A_MICROSECOND),
    }
}

fn circuit(plan: Option<&Plan>, device: &DeviceName, slot: Slot, at: Position) -> Option<String> {
    if at.is_dark() {
        return None;
    }
    let Ok(bundle) = device.as_str().parse::<BundleId>() else {
        return Some(format!("{slot} - {at}"));
    };
    if at == Position::LOOPBACK {
        return None;
    }
    let port = Port { bundle, path: u8::try_from(at.0).ok()? };
    let planned = plan.iter().flat_map(|plan| &plan.circuits).find(|c| c.a == port || c.b == port);
    Some(planned.map_or_else(|| port.to_string(), |c| format!("{} - {}", c.a, c.b)))
}
