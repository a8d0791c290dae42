// SPDX-License-Identifier: Apache-2.0
//! The ledger: the state that survives a crash, folded from the journal's records.
//!
//! The controller changes this state only by appending a [`Record`] and folding it into its
//! [`Ledger`] in one step, so a restart that folds the journal restores exactly the same state.

mod plans;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use plans::PLAN_ENTRIES_MAX;
use serde::{Deserialize, Serialize};

use crate::actor::Actor;
use crate::change::PhaseChange;
use crate::deferred::Deferred;
use crate::drive::DeviceEnd;
use crate::kept_plan::KeptPlan;
use crate::record::{Asked, Cause, Failed, Intent, Lease, Pending, Record, TxnResult};
use crate::state::{DeviceName, FibreEnd, Micros, Positions, Slot, SwitchState, Txn, at};

pub const HISTORY_MAX: usize = 1024;
const SENT_MAX: usize = 4;
/// Maximum number of devices in all past transactions together, which bounds the memory.
const ENTRIES_MAX: usize = 32_768;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    pub intent: Intent,
    /// Devices that may have moved. After a crash of the machine, other devices may have moved too.
    pub fired: BTreeSet<DeviceName>,
    pub turned: Option<BTreeMap<DeviceName, DeviceEnd>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    pub txn: Txn,
    pub actor: Actor,
    pub cause: Cause,
    pub plan_sha256: String,
    #[serde(default)]
    pub plan_before: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_before: String,
    /// Devices of the previous plan; `None` if this transaction did not change them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_devices_before: Option<BTreeSet<DeviceName>>,
    pub wall_ms: u64,
    pub result: TxnResult,
    #[serde(rename = "parts")]
    pub ends: BTreeMap<DeviceName, DeviceEnd>,
    /// Owned positions on its devices, and other circuits that it moved, before the transaction.
    pub stood_before: SwitchState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within: Option<Micros>,
    /// Unix time in milliseconds of the confirmation; 0 if not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone_by: Option<Txn>,
    #[serde(default, rename = "broken_before", skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_before: BTreeMap<String, Failed>,
    #[serde(default, rename = "broken_after", skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_after: BTreeMap<String, Failed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseChange>,
}

impl Past {
    fn entries(&self) -> usize {
        let of_plan = self.plan_devices_before.as_ref().map_or(0, BTreeSet::len);
        self.ends.len().max(self.stood_before.len()).max(of_plan)
    }
}

/// The moves of an ended transaction, whose commands a device may still execute late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub txn: Txn,
    pub wall_ms: u64,
    pub before: SwitchState,
    pub after: SwitchState,
}

impl Sent {
    pub fn of(intent: &Intent) -> Self {
        let (before, after) = (intent.before.clone(), intent.after.clone());
        Self { txn: intent.txn, wall_ms: intent.wall_ms, before, after }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Number of changes to owned positions. Requests with an older version are refused.
    pub version: u64,
    pub last_txn: Txn,
    pub plan_sha256: String,
    /// Plan that an operator last applied and did not undo. Bypasses lead to other plans.
    #[serde(default)]
    pub applied_sha256: String,
    pub plan_devices: BTreeSet<DeviceName>,
    pub owned: SwitchState,
    /// Slots that a probe set. They are not circuits, so missing light there is not a fault.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probed: BTreeMap<DeviceName, BTreeSet<Slot>>,
    pub open: Option<Open>,
    pub pending: Option<Pending>,
    pub held: BTreeSet<(DeviceName, Slot)>,
    pub attention: BTreeMap<DeviceName, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", rename = "owed")]
    pub deferred: BTreeMap<DeviceName, Deferred>,
    /// Failed parts that the current plan avoids.
    #[serde(default, rename = "broken", skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, Failed>,
    /// Failed parts that operators reported and that the current plan does not avoid.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reported: BTreeMap<String, Failed>,
    /// SHA-256 of the audit log's key; `None` in journals from versions without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    #[serde(skip)]
    pub plans: BTreeMap<String, KeptPlan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_after: Option<Txn>,
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub sent_last: VecDeque<Sent>,
    pub history: VecDeque<Past>,
    pub requests: BTreeMap<String, (String, Option<Txn>)>,
    request_order: VecDeque<String>,
}

impl Ledger {
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut ledger = Self::default();
        for record in records {
            ledger.apply(record);
        }
        ledger
    }

    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Started { .. } => {}
            Record::Snapshot { ledger, .. } => self.clone_from(ledger),
            Record::Plan(plan) => {
                self.plans.insert(plan.sha256().to_owned(), plan.clone());
            }
            Record::PlanAfter(next) => {
                let plan = self.plans.get(&next.after).and_then(|after| next.plan(after));
                self.plans.extend(plan.map(|plan| (next.sha256.clone(), plan)));
            }
            Record::Reported { parts, .. } => {
                for (part, failed) in parts {
                    self.reported.entry(part.clone()).or_insert_with(|| failed.clone());
                }
            }
            Record::AuditKey { sha256, .. } => self.audit_key = Some(sha256.clone()),
            Record::Leased { lease, .. } => self.lease.clone_from(lease),
            Record::Intent(intent) => self.begin(intent),
            Record::Fire { wave, .. } => {
                if let Some(open) = &mut self.open {
                    open.fired.extend(wave.keys().cloned());
                }
            }
            Record::Turn { ends, .. } => {
                if let Some(open) = &mut self.open {
                    open.turned = Some(ends.clone());
                }
            }
            Record::End { result, ends, pending, .. } => {
                self.sent_last.extend(self.open.as_ref().map(|open| Sent::of(&open.intent)));
                while self.sent_last.len() > SENT_MAX {
                    self.sent_last.pop_front();
                }
                self.end(*result, ends, pending);
            }
            Record::Confirmed { txn, asked, wall_ms } => {
                self.pending = None;
                let confirmed = self.history.iter_mut().rev().find(|past| past.txn == *txn);
                if let Some(past) = confirmed {
                    past.confirmed_ms = Some(*wall_ms);
                }
                self.remember(asked, None);
            }
            Record::Adopted { asked, positions, .. } => {
                for (device, positions) in positions {
                    self.owned.insert(device.clone(), positions.clone());
                    self.probed.remove(device);
                    self.attention.remove(device);
                    self.deferred.remove(device);
                }
                self.version += 1;
                self.remember(asked, None);
            }
            Record::Held { asked, levers, drained, .. } => {
                self.held.retain(|lever| !levers.contains(lever));
                if *drained {
                    self.held.extend(levers.iter().cloned());
                }
                self.remember(asked, None);
            }
            Record::Resumed { asked, .. } => {
                self.resumed_after = Some(self.last_txn);
                self.remember(asked, None);
            }
        }
    }

    fn begin(&mut self, intent: &Intent) {
        self.last_txn = intent.txn;
        self.remember(&intent.asked, Some(intent.txn));
        let (fired, turned) = (BTreeSet::new(), None);
        self.open = Some(Open { intent: intent.clone(), fired, turned });
    }

    fn end(
        &mut self,
        result: TxnResult,
        ends: &BTreeMap<DeviceName, DeviceEnd>,
        pending: &Option<Pending>,
    ) {
        let Some(Open { intent, turned, .. }) = self.open.take() else { return };
        let (plan_before, applied_before) = (self.plan_sha256.clone(), self.applied_sha256.clone());
        let devices_before = self.plan_devices.clone();
        for (device, end) in ends {
            self.end_device(&intent, result, turned.is_some(), device, end);
        }
        let undid = matches!(intent.cause, Cause::ConfirmTimeout(_) | Cause::Rollback(_));
        // An undo takes effect even if it left out devices.
        let took = result == TxnResult::Committed
            || (undid && result == TxnResult::Partial && turned.is_none());
        if undid && result == TxnResult::Partial {
            self.pending = None;
        }
        if matches!(result, TxnResult::Committed | TxnResult::Partial) {
            self.version += 1;
        }
        let stood_before = stood_before(&intent);
        let failed_before = self.failed.clone();
        if took {
            self.take_plan(&intent);
            self.take_applied(&intent);
            // A rollback ends the wait for a confirmation; a bypass does not.
            if !intent.cause.goes_on_top() {
                self.pending.clone_from(pending);
            }
            self.undo_history(&intent.cause, intent.txn);
            if let Some(failed) = &intent.failed {
                self.failed.clone_from(failed);
            }
            self.reported.retain(|part, _| !intent.resolves.contains(part));
            let follows = intent.cause.goes_on_top() || intent.cause == Cause::Phase;
            if !follows && self.plan_sha256 != plan_before {
                self.lease = None;
            }
        }
        let plan_devices_before = (devices_before != self.plan_devices).then_some(devices_before);
        self.keep_past(Past {
            txn: intent.txn,
            actor: intent.asked.actor,
            cause: intent.cause,
            plan_sha256: intent.plan_sha256,
            plan_before,
            applied_before,
            plan_devices_before,
            wall_ms: intent.wall_ms,
            result,
            ends: ends.clone(),
            stood_before,
            confirm_within: intent.confirm_within,
            confirmed_ms: None,
            undone_by: None,
            failed_before,
            failed_after: self.failed.clone(),
            phase: intent.phase,
        });
    }

    fn end_device(
        &mut self,
        intent: &Intent,
        result: TxnResult,
        has_turned: bool,
        device: &DeviceName,
        end: &DeviceEnd,
    ) {
        use crate::drive::Verdict;
        // A device in position but without light needs no operator: its fibre is listed as dark.
        let obeyed = end.unlit && !has_turned && intent.goal.contains_key(device);
        match end.verdict {
            Verdict::Failed if result == TxnResult::Partial && obeyed => {
                self.take_ownership(intent, device)
            }
            Verdict::Applied => self.take_ownership(intent, device),
            Verdict::Refused | Verdict::Failed | Verdict::Unknown
                if result == TxnResult::Partial =>
            {
                self.attention.insert(device.clone(), end.detail.clone());
                self.deferred.remove(device);
                let is_unknown = end.verdict == Verdict::Unknown;
                if !is_unknown && !has_turned && intent.cause.undoes() {
                    self.take_goal(intent, device);
                }
                let deferred = Deferred::after(intent, has_turned, device);
                self.deferred
                    .extend(deferred.filter(|_| is_unknown).map(|one| (device.clone(), one)));
            }
            _ => {}
        }
    }

    pub(crate) fn is_moving(&self, device: &DeviceName) -> bool {
        self.open.as_ref().is_some_and(|open| open.intent.after.contains_key(device))
    }

    pub(crate) fn is_at_rest(&self, device: &DeviceName) -> bool {
        !self.is_moving(device) && !self.attention.contains_key(device)
    }

    pub(crate) fn owns(&self, (device, slot, to): &FibreEnd) -> bool {
        self.owned.get(device).is_some_and(|owned| at(owned, *slot) == *to)
    }

    pub(crate) fn is_probed(&self, (device, slot, _): &FibreEnd) -> bool {
        self.probed.get(device).is_some_and(|slots| slots.contains(slot))
    }

    pub fn belongs(&self, device: &DeviceName) -> Cow<'_, Positions> {
        static NOTHING: Positions = Positions::new();
        let owned = self.owned.get(device).unwrap_or(&NOTHING);
        let Some(deferred) = self.deferred.get(device) else { return Cow::Borrowed(owned) };
        let mut positions = owned.clone();
        positions.extend(&deferred.to);
        positions.retain(|_, to| !to.is_dark());
        Cow::Owned(positions)
    }

    fn take_goal(&mut self, intent: &Intent, device: &DeviceName) {
        if let Some(goal) = intent.goal.get(device) {
            let mut lit = goal.clone();
            lit.retain(|_, to| !to.is_dark());
            self.owned.insert(device.clone(), lit);
        }
    }

    fn take_ownership(&mut self, intent: &Intent, device: &DeviceName) {
        self.take_goal(intent, device);
        self.take_probed(intent, device);
        self.attention.remove(device);
        self.deferred.remove(device);
    }

    fn keep_past(&mut self, past: Past) {
        self.history.push_back(past);
        let mut entries: usize = self.history.iter().map(Past::entries).sum();
        while self.history.len() > HISTORY_MAX || (entries > ENTRIES_MAX && self.history.len() > 1)
        {
            entries -= self.history.pop_front().as_ref().map_or(0, Past::entries);
        }
        self.drop_plans();
    }

    fn take_probed(&mut self, intent: &Intent, device: &DeviceName) {
        let mut probed = self.probed.remove(device).unwrap_or_default();
        match intent.cause {
            Cause::Probe => {
                for (slot, to) in intent.after.get(device).into_iter().flatten() {
                    match device.leads_out(*to) {
                        true => probed.insert(*slot),
                        false => probed.remove(slot),
                    };
                }
            }
            _ => probed.clear(),
        }
        if !probed.is_empty() {
            self.probed.insert(device.clone(), probed);
        }
    }

    fn undo_history(&mut self, cause: &Cause, by: Txn) {
        let (Cause::Rollback(first) | Cause::ConfirmTimeout(first)) = *cause else { return };
        for past in &mut self.history {
            if past.txn >= first {
                past.undone_by = Some(by);
            } else if past.undone_by.is_some_and(|undid| undid >= first) {
                past.undone_by = None;
            }
        }
    }

    /// Bypasses and repairs extend the plan's devices, because they leave out unreachable ones.
    /// Circuits on a device of the plan end the plan.
    fn take_plan(&mut self, intent: &Intent) {
        let named = intent.goal.keys().cloned();
        match intent.cause {
            Cause::Rollback(first) | Cause::ConfirmTimeout(first) => {
                self.plan_devices = self.plan_devices_before(first);
                self.plan_sha256.clone_from(&intent.plan_sha256);
                if self.plan_sha256.is_empty() {
                    self.plan_devices.clear();
                } else if self.plan_devices.is_empty() {
                    self.plan_devices.extend(named);
                }
            }
            Cause::Drift | Cause::Deferred(_) | Cause::Late(_) | Cause::Probe => {}
            Cause::Apply if !intent.plan_sha256.is_empty() => {
                self.plan_sha256.clone_from(&intent.plan_sha256);
                self.plan_devices = named.collect();
            }
            _ if !intent.plan_sha256.is_empty() => {
                self.plan_sha256.clone_from(&intent.plan_sha256);
                self.plan_devices.extend(named);
            }
            _ if intent.goal.keys().any(|device| self.plan_devices.contains(device)) => {
                self.plan_sha256.clear();
                self.plan_devices.clear();
            }
            _ => {}
        }
    }

    fn plan_devices_before(&self, first: Txn) -> BTreeSet<DeviceName> {
        let since = self.history.iter().filter(|past| past.txn >= first);
        let mut changed = since.filter_map(|past| past.plan_devices_before.as_ref());
        changed.next().unwrap_or(&self.plan_devices).clone()
    }

    fn take_applied(&mut self, intent: &Intent) {
        match intent.cause {
            Cause::Apply if !intent.plan_sha256.is_empty() => {
                self.applied_sha256.clone_from(&intent.plan_sha256);
            }
            Cause::Rollback(txn) | Cause::ConfirmTimeout(txn) => {
                let undone = self.history.iter().find(|past| past.txn == txn);
                self.applied_sha256 = undone.map(|p| p.applied_before.clone()).unwrap_or_default();
            }
            _ if self.plan_sha256.is_empty() => self.applied_sha256.clear(),
            _ => {}
        }
    }

    fn remember(&mut self, asked: &Asked, txn: Option<Txn>) {
        let digest = asked.digest.clone();
        if self.requests.insert(asked.request.clone(), (digest, txn)).is_none() {
            self.request_order.push_back(asked.request.clone());
        }
        if self.request_order.len() > HISTORY_MAX
            && let Some(oldest) = self.request_order.pop_front()
        {
            self.requests.remove(&oldest);
        }
    }

    /// A rollback keeps these parts, but not parts that only an undone plan contained.
    pub(crate) fn failed_since(&self, txn: Txn) -> BTreeMap<String, Failed> {
        let mut failed = BTreeMap::new();
        for past in self.history.iter().skip_while(|past| past.txn != txn) {
            let Past { failed_before: before, failed_after: after, .. } = past;
            failed.retain(|part, _| !before.contains_key(part) || after.contains_key(part));
            if past.cause == Cause::Bypass {
                let news = after.iter().filter(|(part, _)| !before.contains_key(*part));
                failed.extend(news.map(|(part, of)| (part.clone(), of.clone())));
            }
        }
        failed
    }

    pub(crate) fn stood_before(&self, txn: Txn) -> Option<SwitchState> {
        let from = self.history.iter().position(|past| past.txn == txn)?;
        let mut before = SwitchState::new();
        for past in self.history.range(from..) {
            for (device, positions) in &past.stood_before {
                before.entry(device.clone()).or_insert_with(|| positions.clone());
            }
        }
        Some(before)
    }
}

fn stood_before(intent: &Intent) -> SwitchState {
    let mut stood = intent.owned_before.clone();
    for (device, positions) in &intent.before {
        let stood = stood.entry(device.clone()).or_default();
        for (slot, position) in positions.iter().filter(|(_, position)| !position.is_dark()) {
            stood.entry(*slot).or_insert(*position);
        }
    }
    stood
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Mode;
    use crate::record::OnFailure;
    use crate::state::Now;

    fn pending(within_s: u64) -> Pending {
        let since = Now { mono: Micros::from_secs(100), wall_ms: 1_000_000, boot: "a".into() };
        Pending { txn: Txn(1), since, within: Micros::from_secs(within_s) }
    }

    fn committed(ledger: &mut Ledger, plan: &str, device: &str) {
        because(ledger, Cause::Apply, plan, device);
    }

    fn because(ledger: &mut Ledger, cause: Cause, plan: &str, device: &str) {
        knowing(ledger, cause, plan, device, None);
    }

    fn knowing(
        ledger: &mut Ledger,
        cause: Cause,
        plan: &str,
        device: &str,
        failed: Option<&[&str]>,
    ) {
        let txn = Txn(ledger.last_txn.0 + 1);
        let lit =
            SwitchState::from([(device.into(), [(Slot(0), crate::state::Position(1))].into())]);
        let request = format!("r{txn}");
        let intent = Intent {
            txn,
            asked: Asked { actor: "a".into(), digest: request.clone(), request },
            cause,
            plan_sha256: plan.into(),
            mode: Mode::Safe,
            before: SwitchState::new(),
            after: lit.clone(),
            goal: lit,
            owned_before: SwitchState::new(),
            confirm_within: None,
            on_failure: OnFailure::Rollback,
            wall_ms: 0,
            failed: failed.map(|parts| {
                parts.iter().map(|part| ((*part).to_owned(), Failed::default())).collect()
            }),
            phase: None,
            stages: Vec::new(),
            resolves: BTreeSet::new(),
        };
        ledger.apply(&Record::Intent(Box::new(intent)));
        let (result, ends) = (TxnResult::Committed, BTreeMap::new());
        ledger.apply(&Record::End { txn, result, ends, pending: None, wall_ms: 0 });
    }

    fn undo(ledger: &mut Ledger, first: u32) {
        because(ledger, Cause::Rollback(Txn(first)), "", "n0/b0");
    }

    #[test]
    fn change_stays_undone_until_its_rollback_is_undone() {
        let mut ledger = Ledger::default();
        committed(&mut ledger, "one", "n0/b0");
        committed(&mut ledger, "two", "n0/b0");
        undo(&mut ledger, 2);
        let undone = |ledger: &Ledger| -> Vec<Option<u32>> {
            ledger.history.iter().map(|past| past.undone_by.map(|txn| txn.0)).collect()
        };
        assert_eq!(undone(&ledger), [None, Some(3), None]);
        undo(&mut ledger, 3);
        assert_eq!(undone(&ledger), [None, None, Some(4), None]);
    }

    #[test]
    fn bypass_keeps_the_applied_plan_and_rollback_restores_it() {
        let mut ledger = Ledger::default();
        let mut next = |cause, plan| {
            because(&mut ledger, cause, plan, "n0/b0");
            ledger.applied_sha256.clone()
        };
        assert_eq!(next(Cause::Apply, "one"), "one");
        assert_eq!(next(Cause::Bypass, "around"), "one");
        assert_eq!(next(Cause::Repair, "back"), "one");
        assert_eq!(next(Cause::Apply, "two"), "two");
        assert_eq!(next(Cause::Rollback(Txn(4)), "back"), "one");
        assert_eq!(next(Cause::Rollback(Txn(5)), "two"), "two");
        assert_eq!(next(Cause::Apply, ""), "", "lit slot by slot");
    }

    #[test]
    fn found_faults_exclude_parts_named_by_the_plan() {
        let mut ledger = Ledger::default();
        let mut next = |cause, failed: &[&str]| {
            knowing(&mut ledger, cause, "plan", "n0/b0", Some(failed));
            let found =
                |txn| ledger.failed_since(Txn(txn)).into_keys().collect::<Vec<_>>().join(",");
            [found(1), found(3), found(99)]
        };
        assert_eq!(next(Cause::Apply, &["n5"]), ["", "", ""]);
        assert_eq!(next(Cause::Bypass, &["n5", "n9"]), ["n9", "", ""]);
        assert_eq!(next(Cause::Bypass, &["n5", "n7", "n9"]), ["n7,n9", "n7", ""]);
        assert_eq!(next(Cause::Repair, &["n7", "n9"]), ["n7,n9", "n7", ""]);
        assert_eq!(next(Cause::Repair, &["n9"]), ["n9", "", ""]);
        assert_eq!(next(Cause::Rollback(Txn(5)), &["n7", "n9"]), ["n9", "", ""]);
        assert_eq!(next(Cause::Apply, &[]), ["", "", ""], "forgotten, as asked");
    }

    #[test]
    fn circuits_outside_a_plan_keep_it_in_force() {
        let mut ledger = Ledger::default();
        committed(&mut ledger, "plan", "n0/b0");
        committed(&mut ledger, "", "ocs0");
        assert_eq!(ledger.plan_sha256, "plan");
        committed(&mut ledger, "", "n0/b0");
        assert_eq!(ledger.plan_sha256, "");
        assert_eq!(ledger.history.back().map(|past| &*past.plan_before), Some("plan"));
    }

    #[test]
    fn undo_outside_a_plan_never_joins_the_plan() {
        for undo in [Cause::Rollback(Txn(2)), Cause::ConfirmTimeout(Txn(2)), Cause::Drift] {
            let mut ledger = Ledger::default();
            committed(&mut ledger, "plan", "n0/b0");
            committed(&mut ledger, "", "ocs0");
            because(&mut ledger, undo.clone(), "plan", "ocs0");
            committed(&mut ledger, "", "ocs0");
            let known = (&*ledger.plan_sha256, &*ledger.applied_sha256);
            assert_eq!(known, ("plan", "plan"), "{undo:?}");
        }
        let mut ledger = Ledger::default();
        committed(&mut ledger, "one", "ocs0");
        committed(&mut ledger, "two", "n0/b0");
        committed(&mut ledger, "", "ocs0");
        assert_eq!(ledger.plan_sha256, "two", "another plan named it");
    }

    #[test]
    fn clock_jump_never_shifts_the_deadline_within_one_boot() {
        for wall_ms in [0, 1_000_000, u64::MAX] {
            let now = Now { mono: Micros::from_secs(101), wall_ms, boot: "a".into() };
            assert_eq!(pending(300).deadline(&now), Micros::from_secs(400));
        }
    }

    #[test]
    fn shown_deadline_stays_fixed_after_expiry() {
        let at = |mono_s: u64, wall_ms| {
            let now = Now { mono: Micros::from_secs(mono_s), wall_ms, boot: "a".into() };
            pending(60).until_unix_ms(&now)
        };
        assert_eq!([at(101, 1_001_000), at(160, 1_060_000), at(500, 1_400_000)], [1_060_000; 3]);
        let rebooted = |wall_ms| Now { mono: Micros::from_secs(5), wall_ms, boot: "b".into() };
        assert_eq!(pending(60).until_unix_ms(&rebooted(1_400_000)), 1_060_000);
    }

    #[test]
    fn wall_clock_after_a_reboot_only_shortens_the_wait() {
        let at = |wall_ms| Now { mono: Micros::from_secs(5), wall_ms, boot: "b".into() };
        assert_eq!(pending(300).deadline(&at(1_060_000)), Micros::from_secs(245));
        assert_eq!(pending(300).deadline(&at(0)), Micros::from_secs(305));
        assert_eq!(pending(300).deadline(&at(u64::MAX)), Micros::from_secs(5));
    }
}
