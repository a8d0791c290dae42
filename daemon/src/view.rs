// SPDX-License-Identifier: Apache-2.0

mod attention;
mod circuits;
mod contention;
mod diagnosis;
mod log;
mod module;
mod moves;
pub mod past;
pub mod phases;
mod shut;
mod twins;
mod unreachable;
mod watched;
mod words;

use std::collections::BTreeMap;

use chrono::{DateTime, Local};

use crate::cluster::{JournalPlace, Leadership};
use crate::journal::Damage;
use crate::runtime::Runtime;
use lightloom_control::controller::{OWN_CHANGES_MAX, end_name};
use lightloom_control::drive::Verdict;
use lightloom_control::ledger::{Ledger, Open, Past};
use lightloom_control::policy::Control;
use lightloom_control::record::{Cause, Failed, TxnResult};
use lightloom_control::replan::is_inside;
use lightloom_control::state::{DeviceName, Now, Txn};
use lightloom_daemon_api::alarm::alarms;
use lightloom_daemon_api::device::{CrossedEnd, DeviceState, DeviceStatus, DriftedSlot};
use lightloom_daemon_api::drift::DriftReport;
use lightloom_daemon_api::log::JournalDamage;
use lightloom_daemon_api::status::{
    AppliedPlan, BrokenPart, BypassBudget, DarkFibreView, LeadershipView, LostState, Status,
};
use lightloom_daemon_api::summary::summary;
use lightloom_daemon_api::transaction::{
    OpenTransaction, PendingConfirm, Transaction, TransactionState,
};

pub use log::log;
pub use module::module;
pub use moves::diff;
pub use twins::{mode, on_failure};
pub use unreachable::when_known;
pub use watched::watched;

const TRANSACTIONS_SHOWN: usize = 20;

pub struct Knowledge<'a> {
    pub control: &'a Control,
    pub now: Now,
    pub identities: &'a BTreeMap<DeviceName, String>,
    pub fabric: Option<String>,
    pub is_damaged: bool,
}

impl<'a> From<&'a Runtime> for Knowledge<'a> {
    fn from(runtime: &'a Runtime) -> Self {
        let fabric = runtime.config.file.fabric.as_ref();
        Self {
            control: &runtime.control,
            now: runtime.clock.now(),
            identities: &runtime.identities,
            fabric: fabric.map(|file| file.display().to_string()),
            is_damaged: runtime.damage.is_some(),
        }
    }
}

pub fn status(runtime: &Runtime) -> Status {
    let failed = runtime.control.journal_failure();
    let failed = failed.map(|why| (why.to_owned(), runtime.place.after_failure()));
    let (journal_failure, journal_next) = failed.or_else(|| full_disk(runtime)).unzip();
    let mut status = Status {
        leadership: runtime.leadership.as_ref().map(leadership),
        changes: runtime.changes(),
        journal_records: runtime.records,
        journal_next: journal_next.map(str::to_owned),
        journal_failure,
        audit_failure: runtime.audit.failure(),
        lost: lost(runtime),
        journal_damage: journal_damage(runtime),
        ..of_fabric(&runtime.into())
    };
    if runtime.stored(|_| ()).is_err() {
        status.transactions.clear();
    }
    status.alarms = alarms(&status, moment);
    status.summary = summary(&status);
    status
}

pub fn of_fabric(known: &Knowledge<'_>) -> Status {
    let controller = known.control.controller();
    let ledger = controller.ledger();
    let broken_parts = broken_parts(known);
    let (circuits, loopbacks) = (circuits::all(known), circuits::loopbacks(known));
    let devices: Vec<DeviceStatus> =
        controller.sightings().devices().keys().map(|name| device(known, name)).collect();
    Status {
        daemon: env!("CARGO_PKG_VERSION").into(),
        fabric: known.fabric.clone(),
        version: ledger.version,
        plan_sha256: ledger.plan_sha256.clone(),
        applied: known.control.applied().map(|plan| AppliedPlan {
            plan_sha256: ledger.applied_sha256.clone(),
            circuits: plan.circuits.len(),
            explained: known.control.facts().is_explained(plan),
            next: attention::again(known).map(|again| format!("apply the rest: {again}")),
        }),
        transaction: ledger.open.as_ref().map(|open| open_transaction(known, open)),
        pending: pending(known),
        attention: attention::reasons(known),
        attention_next: attention::nexts(known),
        drifted_next: attention::drifted_next(known, &drifted(&devices)),
        restarted: restarted(known),
        owed: attention::deferred(known),
        held: ledger.held.iter().map(|(device, slot)| format!("{device}/{slot}")).collect(),
        held_off: held_off(known),
        dark_circuits: circuits::dark(known, &circuits, &loopbacks),
        no_plan: circuits::no_plan(known, &circuits),
        other_fabric: circuits::other_fabric(known),
        circuits,
        loopbacks,
        broken: broken_parts.iter().map(|broken| broken.part.clone()).collect(),
        broken_next: attention::broken_next(known, &broken_parts),
        broken_parts,
        dark_fibres: dark_fibres(known),
        named_parts: diagnosis::all(known),
        shut: shut::all(known),
        crossed: controller.sightings().devices().keys().flat_map(|d| crossed(known, d)).collect(),
        contended: contention::all(known),
        bypass_budget: BypassBudget {
            used: controller.budget().spent(&known.now),
            per_hour: OWN_CHANGES_MAX,
        },
        unseen: unseen(known),
        management_lost: unreachable::management_lost(known).filter(|_| !known.is_damaged),
        unwitnessed: unreachable::unwitnessed(known),
        devices,
        transactions: ledger
            .history
            .iter()
            .rev()
            .take(TRANSACTIONS_SHOWN)
            .map(|past| transaction(known, past))
            .collect(),
        ..Status::default()
    }
}

fn moment(unix_ms: u64) -> String {
    let utc = i64::try_from(unix_ms).ok().and_then(DateTime::from_timestamp_millis);
    let local = utc.map(|utc| utc.with_timezone(&Local));
    local.map_or_else(|| "-".into(), |at| at.format("%Y-%m-%d %H:%M:%S").to_string())
}

fn held_off(known: &Knowledge<'_>) -> Vec<String> {
    let controller = known.control.controller();
    let held = &controller.ledger().held;
    let devices = controller.sightings().inventory().devices.iter();
    let off = devices.filter(|(_, device)| device.levers.values().any(|one| held.contains(one)));
    off.map(|(name, _)| name.to_string()).collect()
}

fn leadership(of: &Leadership) -> LeadershipView {
    let (leader, epoch) = (of.name.clone(), of.epoch);
    LeadershipView { leader, epoch, standbys: of.standbys.borrow().clone() }
}

fn restarted(known: &Knowledge<'_>) -> Vec<String> {
    let sightings = known.control.sightings();
    let restarted = sightings.devices().keys().filter(|device| sightings.has_restarted(device));
    restarted.map(ToString::to_string).collect()
}

fn drifted(devices: &[DeviceStatus]) -> Vec<DeviceName> {
    let drifted = devices.iter().filter(|device| device.state == DeviceState::Drifted);
    drifted.map(|device| DeviceName::from(device.name.as_str())).collect()
}

pub fn circuits_dark(runtime: &Runtime) -> usize {
    let known = &runtime.into();
    let dark = circuits::dark(known, &circuits::all(known), &circuits::loopbacks(known));
    dark.map_or(0, |dark| dark.circuits - dark.standing)
}

fn open_transaction(known: &Knowledge<'_>, open: &Open) -> OpenTransaction {
    let waits_for =
        known.control.transactions().waits_for(&known.now, known.control.sightings()).into_iter();
    OpenTransaction {
        txn: open.intent.txn.0,
        actor: open.intent.asked.actor.to_string(),
        cause: past::cause_text(&open.intent.cause),
        kind: twins::kind(&open.intent.cause),
        summary: words::of_intent(&open.intent, &known.control.ledger().failed),
        undoes: undone_by(open).map(|txn| txn.0),
        going_back: open.turned.is_some(),
        devices: open.intent.after.len(),
        waits_for_ps: waits_for
            .map(|(device, left)| (device.to_string(), left.0.saturating_mul(1_000_000)))
            .collect(),
    }
}

fn undone_by(open: &Open) -> Option<Txn> {
    match open.intent.cause {
        Cause::Rollback(txn) | Cause::ConfirmTimeout(txn) => Some(txn),
        _ => None,
    }
}

/// Returns `None` after the rollback has started, because a confirmation would be refused.
fn pending(known: &Knowledge<'_>) -> Option<PendingConfirm> {
    let ledger = known.control.ledger();
    let pending = ledger.pending.as_ref().filter(|pending| {
        let undone = ledger.open.as_ref().and_then(undone_by);
        undone.is_none_or(|first| first > pending.txn)
    })?;
    let now = &known.now;
    let left = pending.deadline(now) - now.mono;
    Some(PendingConfirm {
        txn: pending.txn.0,
        seconds_left: left.as_secs_f64(),
        left_ps: left.0.saturating_mul(1_000_000),
        until_unix_ms: pending.until_unix_ms(now),
    })
}

fn broken_parts(known: &Knowledge<'_>) -> Vec<BrokenPart> {
    let mut broken = known.control.facts().failed_parts();
    broken.extend(known.control.not_bypassed(&known.now));
    parts(known, broken)
}

fn parts(known: &Knowledge<'_>, broken: BTreeMap<String, Failed>) -> Vec<BrokenPart> {
    let parts = broken.into_iter().map(|(part, broken)| BrokenPart {
        bypassed: part.parse().is_ok_and(|part| known.control.facts().is_bypassed(part)),
        part,
        since_unix_ms: Some(broken.wall_ms).filter(|ms| *ms > 0),
        why: broken.why,
        price: broken.price,
    });
    parts.collect()
}

fn dark_fibres(known: &Knowledge<'_>) -> Vec<DarkFibreView> {
    let broken = known.control.facts().failed_parts();
    let dark = known.control.sightings().dark_fibres(known.control.ledger()).into_iter();
    let dark = dark.filter(|dark| {
        let mut ends = [end_name(&dark.receiver), end_name(&dark.sender)].into_iter();
        !ends.any(|end| broken.keys().any(|part: &String| is_inside(&end, part)))
    });
    let views = dark.map(|dark| DarkFibreView {
        near: end_name(&dark.receiver),
        far: end_name(&dark.sender),
        power_dbm: f64::from(dark.power_mdbm) / 1000.0,
        far_is_down: dark.sender_is_unreachable,
        far_lit_by: dark.sender_lit_by,
    });
    views.collect()
}

fn crossed(known: &Knowledge<'_>, device: &DeviceName) -> Vec<CrossedEnd> {
    let crossed = known.control.sightings().crossed(device, known.control.ledger());
    let ends = crossed.into_iter().map(|crossed| CrossedEnd {
        end: end_name(&crossed.end),
        lit_by: crossed.lit_by,
        should_be: end_name(&crossed.should_be),
    });
    ends.collect()
}

pub fn unseen(known: &Knowledge<'_>) -> Vec<String> {
    let devices = known.control.sightings().devices().iter();
    let unseen = devices.filter(|(_, seen)| !seen.is_read());
    unseen.map(|(name, _)| name.to_string()).collect()
}

/// Returns whether every device has been read or will remain unreadable for a while. Devices that
/// the previous leader still holds are expected to become readable soon.
pub fn is_settled(runtime: &Runtime) -> bool {
    runtime.damage.is_some()
        || unseen(&runtime.into()).iter().all(|name| {
            let devices = runtime.control.sightings().devices();
            let seen = devices.get(&DeviceName::from(name.as_str()));
            runtime.leadership.is_none() && seen.is_some_and(|seen| seen.trouble().is_some())
        })
}

fn journal_damage(runtime: &Runtime) -> Option<JournalDamage> {
    let damage = runtime.damage.as_ref()?;
    Some(damage_of(damage, &runtime.place))
}

pub fn damage_of(damage: &Damage, place: &JournalPlace) -> JournalDamage {
    JournalDamage {
        file: place.to_string(),
        readable: damage.line as u64 - 1,
        line: damage.line as u64,
        byte: damage.byte as u64,
        reason: damage.reason.clone(),
        what_to_do: place.after_damage(damage),
    }
}

fn device(known: &Knowledge<'_>, name: &DeviceName) -> DeviceStatus {
    let seen = &known.control.sightings().devices()[name];
    let observed = seen.observed().cloned().unwrap_or_default();
    let ledger = known.control.ledger();
    let moving = ledger.open.as_ref().is_some_and(|open| open.intent.after.contains_key(name));
    let state = match () {
        () if !seen.is_read() => DeviceState::Unseen,
        () if moving => DeviceState::Moving,
        () if !observed.tuning.is_empty() => DeviceState::Tuning,
        () if attention::is_left(known, name) => DeviceState::Attention,
        () if !seen.drift().is_empty() => DeviceState::Drifted,
        () if !known.control.sightings().crossed(name, known.control.ledger()).is_empty() => {
            DeviceState::Crossed
        }
        () => DeviceState::AsWanted,
    };
    DeviceStatus {
        name: name.to_string(),
        identity: known.identities.get(name).cloned().unwrap_or_default(),
        up: seen.is_reachable(),
        trouble: seen.trouble().map(|trouble| trouble.why().to_owned()),
        state,
        slots: observed.positions.iter().map(|(s, p)| (s.to_string(), p.0)).collect(),
        power_dbm: observed
            .power_mdbm
            .iter()
            .map(|(slot, mdbm)| (slot.to_string(), f64::from(*mdbm) / 1000.0))
            .collect(),
        neighbours: observed
            .neighbours
            .iter()
            .map(|(slot, seen)| (slot.to_string(), seen.clone()))
            .collect(),
        drift: drift_of(known, name),
        probed: ledger.probed.get(name).into_iter().flatten().map(|slot| slot.0).collect(),
    }
}

fn drift_of(known: &Knowledge<'_>, name: &DeviceName) -> Vec<DriftedSlot> {
    let seen = &known.control.sightings().devices()[name];
    let slots = seen.drift().iter().filter(|_| seen.is_reachable()).map(|drift| DriftedSlot {
        device: name.to_string(),
        slot: drift.slot.0,
        ledger: drift.wanted.0,
        device_says: drift.observed.0,
    });
    slots.collect()
}

fn lost(runtime: &Runtime) -> Vec<LostState> {
    if runtime.damage.is_some() {
        return Vec::new();
    }
    let plans = lost_plans(runtime.control.ledger());
    let is_gone = runtime.journal_gone && runtime.control.plan().is_none();
    let gone = is_gone.then(|| LostState {
        what: runtime.place.to_string(),
        why: "it was missing at startup although the audit log records changes; plans, fault \
            reports and leases are lost"
            .into(),
        next: "apply the plan's file again: lightloom ctl apply PLAN --mode update".into(),
    });
    gone.into_iter().chain(plans).collect()
}

fn full_disk(runtime: &Runtime) -> Option<(String, &'static str)> {
    let (why, folder) = (runtime.short_of_space()?, runtime.config.file.state_dir.display());
    let what = format!("the disk of {folder} is full ({why}): only open changes are completed");
    Some((what, JournalPlace::AFTER_FULL_DISK))
}

pub fn drift(runtime: &Runtime) -> DriftReport {
    let known = &Knowledge::from(runtime);
    let devices = known.control.sightings().devices().keys();
    let (unseen, journal_damage) = (unseen(known), journal_damage(runtime));
    DriftReport {
        slots: devices.clone().flat_map(|name| drift_of(known, name)).collect(),
        crossed: devices.flat_map(|name| crossed(known, name)).collect(),
        complete: unseen.is_empty() && journal_damage.is_none() && runtime.stored(|_| ()).is_ok(),
        unseen,
        journal_damage,
    }
}

pub fn transaction(known: &Knowledge<'_>, past: &Past) -> Transaction {
    let mut shown = past::past(past);
    if known.control.ledger().last_txn == past.txn {
        shown.crossed = past.ends.keys().flat_map(|name| crossed(known, name)).collect();
        if past.result == TxnResult::Aborted {
            let unknown = past.ends.iter().filter(|(_, end)| end.verdict == Verdict::Unknown);
            let unreachable = unknown.map(|(device, _)| device.clone()).collect();
            shown.when_known = unreachable::when(known, &unreachable);
        }
    }
    if let Some(pending) = pending(known).filter(|pending| pending.txn == past.txn.0) {
        shown.state = TransactionState::ConfirmPending;
        shown.confirm_until_unix_ms = Some(pending.until_unix_ms);
    }
    shown
}

pub fn lost_plans(ledger: &Ledger) -> Vec<LostState> {
    let (now, applied) = (ledger.plan_sha256.as_str(), ledger.applied_sha256.as_str());
    let plans = [
        (now, "the devices are set to it, and faults cannot be bypassed without it"),
        (applied, "it was applied last, but bypasses have replaced it since"),
    ];
    let others = if applied == now { 1 } else { 2 };
    let lost = plans
        .into_iter()
        .take(others)
        .filter(|(sha256, _)| !sha256.is_empty() && ledger.plan_named(sha256).is_none());
    let states = lost.map(|(sha256, why)| LostState {
        what: words::plan(sha256),
        why: why.into(),
        next: "apply its file again: lightloom ctl apply PLAN".into(),
    });
    states.collect()
}
