// SPDX-License-Identifier: Apache-2.0

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Answer, Apply, Controller, Drift, Request, Rollback};
use crate::change::Mode;
use crate::drive::{IN_USE, Site, Start};
use crate::kept_plan::FollowingPlan;
use crate::record::{Asked, Broken, Cause, Intent, Lease, Record};
use crate::state::{
    DeviceName, Move, Neighbours, Now, Op, Position, Positions, Slot, SwitchState, Txn,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopt {
    pub devices: Vec<DeviceName>,
    pub leave_out_silent: bool,
    pub against_plan: bool,
}

impl From<Vec<DeviceName>> for Adopt {
    fn from(devices: Vec<DeviceName>) -> Self {
        Self { devices, ..Self::default() }
    }
}

impl Controller {
    pub(super) fn request(
        &mut self,
        now: &Now,
        asked: Asked,
        request: Request,
        actions: &mut Vec<Action>,
    ) -> Answer {
        if let Some((digest, txn)) = self.ledger.requests.get(&asked.request) {
            if *digest != asked.digest {
                let reason = format!(
                    "request id `{}` has already been used for a different \
                    request",
                    asked.request
                );
                return Answer::Conflict { reason };
            }
            return txn.map_or(Answer::Done, |txn| Answer::Accepted { txn });
        }
        match request {
            Request::Apply(apply) => self.apply(now, asked, apply, actions),
            Request::Confirm(txn) => self.confirm(now, asked, txn, actions),
            Request::Rollback(rollback) => self.rollback(now, asked, rollback, actions),
            Request::Adopt(adopt) => self.adopt(now, asked, &adopt, actions),
            Request::Hold { slots, drained } => self.hold(now, asked, &slots, drained, actions),
            Request::Resume => {
                self.own_changes.clear();
                self.append(Record::Resumed { asked, wall_ms: now.wall_ms }, actions);
                Answer::Done
            }
        }
    }

    pub(super) fn busy(&self, now: &Now) -> Option<Answer> {
        let conflict = |reason| Some(Answer::Conflict { reason });
        if let Some(on_its_way) = self.on_its_way(now) {
            return conflict(on_its_way);
        }
        let txn = self.ledger.pending.as_ref()?.txn;
        conflict(format!(
            "transaction {txn} awaits confirmation: first `lightloom ctl confirm {txn}` or \
                `lightloom ctl rollback {txn}`"
        ))
    }

    pub(super) fn apply(
        &mut self,
        now: &Now,
        asked: Asked,
        apply: Apply,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let on_top = apply.cause.as_ref().is_some_and(Cause::goes_on_top);
        if let Some(conflict) = self.busy(now).filter(|_| !on_top || self.ledger.open.is_some()) {
            return conflict;
        }
        if let Some(version) = apply.version.filter(|v| *v != self.ledger.version) {
            let reason = format!(
                "planned against version {version}, but the current version is {}",
                self.ledger.version
            );
            return Answer::Conflict { reason };
        }
        if apply.cause == Some(Cause::Drift) && apply.target.is_empty() {
            let reason = "all reachable devices are at the positions in plan and journal";
            return Answer::NothingToDo { reasons: vec![reason.into()] };
        }
        match self.preview(&apply) {
            Err(reasons) => Answer::Refused { reasons },
            Ok(preview) => self.begin(now, asked, apply, preview.changes, actions),
        }
    }

    pub(super) fn begin(
        &mut self,
        now: &Now,
        asked: Asked,
        apply: Apply,
        changes: BTreeMap<DeviceName, Vec<Move>>,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let txn = Txn(self.ledger.last_txn.0 + 1);
        let side = |pick: fn(&Move) -> Position| -> SwitchState {
            let of = |moves: &Vec<Move>| moves.iter().map(|m| (m.slot, pick(m))).collect();
            changes.iter().map(|(device, moves)| (device.clone(), of(moves))).collect()
        };
        let (before, after) = (side(|m| m.from), side(|m| m.to));
        let owned =
            |device: &DeviceName| self.ledger.owned.get(device).cloned().unwrap_or_default();
        let belongs = |device: &DeviceName| self.ledger.belongs(device).into_owned();
        let owned_before = apply.target.keys().map(|d| (d.clone(), belongs(d))).collect();
        let mut goal = apply.target;
        if apply.mode == Mode::Probe {
            for (device, slots) in &mut goal {
                let named = std::mem::replace(slots, owned(device));
                slots.extend(named);
            }
        }
        let usual = if apply.mode == Mode::Probe { Cause::Probe } else { Cause::Apply };
        let (phase, stages) = apply.phase.map(|phase| phase.order(&changes)).unzip();
        let intent = Intent {
            txn,
            asked,
            cause: apply.cause.unwrap_or(usual),
            plan_sha256: apply.plan_sha256,
            mode: apply.mode,
            before: before.clone(),
            after: after.clone(),
            goal,
            owned_before,
            confirm_within: apply.confirm_within,
            on_failure: apply.on_failure.unwrap_or(self.inventory.on_failure),
            wall_ms: now.wall_ms,
            broken: apply.broken,
            phase,
            stages: stages.unwrap_or_default(),
            settles: apply.settles,
        };
        self.neighbours = apply.neighbours;
        let start = match intent.cause.undoes() {
            true => Start::WhatAnswers(self.long_silent(now)),
            false => Start::AllOrNothing(before),
        };
        let plan = apply.plan.filter(|plan| !self.ledger.plans.contains_key(plan.sha256()));
        if let Some(plan) = plan {
            let before = self.ledger.plans.get(&self.ledger.plan_sha256);
            let before = before.filter(|_| intent.cause.goes_on_top());
            let record = match before {
                Some(before) => Record::PlanAfter(FollowingPlan::new(&plan, before).into()),
                None => Record::Plan(*plan),
            };
            self.append(record, actions);
        }
        self.append(Record::Intent(Box::new(intent)), actions);
        self.run(now, after, start, actions);
        Answer::Accepted { txn }
    }

    pub(crate) fn report(
        &mut self,
        now: &Now,
        asked: Asked,
        parts: BTreeMap<String, Broken>,
        actions: &mut Vec<Action>,
    ) {
        self.append(Record::Reported { asked, parts, wall_ms: now.wall_ms }, actions);
    }

    pub(crate) fn lease(
        &mut self,
        now: &Now,
        asked: Asked,
        lease: Option<Lease>,
        actions: &mut Vec<Action>,
    ) {
        self.append(Record::Leased { asked, lease, wall_ms: now.wall_ms }, actions);
    }

    fn confirm(&mut self, now: &Now, asked: Asked, txn: Txn, actions: &mut Vec<Action>) -> Answer {
        let undoes = self.ledger.open.as_ref().filter(|open| open.intent.cause.undoes());
        let reason = match (&self.ledger.pending, undoes) {
            (Some(pending), _) if pending.txn != txn => {
                format!("transaction {} awaits confirmation, not {txn}", pending.txn)
            }
            (Some(_), Some(open)) => format!("transaction {} already undoes it", open.intent.txn),
            (Some(_), None) => {
                self.append(Record::Confirmed { txn, asked, wall_ms: now.wall_ms }, actions);
                return Answer::Done;
            }
            (None, _) => "no transaction awaits confirmation".into(),
        };
        Answer::Conflict { reason }
    }

    fn rollback(
        &mut self,
        now: &Now,
        asked: Asked,
        rollback: Rollback,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let Rollback { txn, confirm_within, around } = rollback;
        if self.ledger.open.is_some() {
            return self.busy(now).unwrap_or(Answer::Done);
        }
        let pending = self.ledger.pending.as_ref().map(|pending| pending.txn);
        if let Some(pending) = pending.filter(|pending| *pending < txn) {
            let reason = format!("transaction {pending} awaits confirmation");
            return Answer::Conflict { reason };
        }
        if let Some(pending) = pending.filter(|_| confirm_within.is_some()) {
            let reason = format!(
                "transaction {pending} awaits confirmation, and its undo cannot wait for \
                    another one: omit `--confirm-within`"
            );
            return Answer::Conflict { reason };
        }
        let back = || self.led_back(txn, Cause::Rollback(txn));
        match around.map_or_else(back, |around| Ok(*around)) {
            Err(reasons) => Answer::Refused { reasons },
            Ok(back) => self.undo(now, asked, Apply { confirm_within, ..back }, actions),
        }
    }

    pub fn way_back(&self, txn: Txn, cause: Cause) -> Result<Apply, Vec<String>> {
        let Some(target) = self.ledger.stood_before(txn) else {
            return Err(vec![format!("transaction {txn} is not in the history")]);
        };
        // Restore the earlier plan, so that the bypass of a later fault starts from it.
        let past = self.ledger.history.iter().find(|past| past.txn == txn);
        if past.is_some_and(|past| past.cause == Cause::Probe) {
            let reason = format!(
                "transaction {txn} is one of several probes: roll back the change before them, or \
                    restore the modules with `lightloom ctl commission`"
            );
            return Err(vec![reason]);
        }
        let plan_sha256 = past.map(|past| past.plan_before.clone()).unwrap_or_default();
        let mut broken = past.map(|past| past.broken_before.clone()).unwrap_or_default();
        broken.extend(self.ledger.found_since(txn));
        let (mode, cause, broken) = (Mode::Update, Some(cause), Some(broken));
        Ok(Apply { target, mode, cause, plan_sha256, broken, ..Apply::default() })
    }

    pub fn lead_back_around(&mut self, txn: Txn, back: Apply) {
        self.around = Some((txn, back));
    }

    pub(super) fn led_back(&self, txn: Txn, cause: Cause) -> Result<Apply, Vec<String>> {
        match self.around.as_ref().filter(|(led, _)| *led == txn) {
            Some((_, back)) => Ok(Apply { cause: Some(cause), ..back.clone() }),
            None => self.way_back(txn, cause),
        }
    }

    pub(super) fn undo(
        &mut self,
        now: &Now,
        asked: Asked,
        back: Apply,
        actions: &mut Vec<Action>,
    ) -> Answer {
        let mut back = back;
        match self.changes_back(&mut back) {
            Err(reasons) => Answer::Refused { reasons },
            Ok(changes) => self.begin(now, asked, back, changes, actions),
        }
    }

    fn adopt(
        &mut self,
        now: &Now,
        asked: Asked,
        adopt: &Adopt,
        actions: &mut Vec<Action>,
    ) -> Answer {
        if let Some(conflict) = self.busy(now) {
            return conflict;
        }
        let mut positions = SwitchState::new();
        let mut reasons = Vec::new();
        for device in &adopt.devices {
            match self.devices.get(device).and_then(|d| d.observed.as_ref().filter(|_| d.up)) {
                Some(seen) => {
                    positions.insert(device.clone(), seen.positions.clone());
                }
                None if !self.devices.contains_key(device) => {
                    reasons.push(format!("{device}: no such device is configured here"));
                }
                None => reasons.push(format!(
                    "{device}: cannot be read now, so its lit slots are unknown; `wait` until it \
                        answers again"
                )),
            }
        }
        let silent = reasons.len();
        if silent > 0 && (positions.is_empty() || !adopt.leave_out_silent) {
            return Answer::Refused { reasons };
        }
        let devices: Vec<DeviceName> = positions.keys().cloned().collect();
        let taken = self.taken_by_adopting(&devices);
        if !taken.is_empty() && !adopt.against_plan {
            return Answer::Refused { reasons: against_plan(&taken) };
        }
        let slots = positions.values().map(Positions::len).sum();
        self.append(Record::Adopted { asked, positions, wall_ms: now.wall_ms }, actions);
        self.forget_contention(now, &devices, actions);
        for device in &devices {
            self.note_drift(device, actions);
        }
        Answer::Adopted { devices: devices.len(), slots, silent }
    }

    /// Switches drain controls outside any transaction, because they move traffic and not light.
    /// The record is written first, so a crash before the commands appears as drift.
    fn hold(
        &mut self,
        now: &Now,
        asked: Asked,
        slots: &[(DeviceName, Slot)],
        drained: bool,
        actions: &mut Vec<Action>,
    ) -> Answer {
        if let Some(reason) = self.on_its_way(now) {
            return Answer::Conflict { reason };
        }
        let lever = |(device, slot): &(DeviceName, Slot)| {
            if self.is_lever(device) {
                return Some((device.clone(), *slot));
            }
            self.inventory.lever(device, *slot)
        };
        let levers: BTreeSet<_> = slots.iter().filter_map(lever).collect();
        if levers.is_empty() {
            let reasons = vec!["no drain control is configured for these devices".into()];
            return Answer::Refused { reasons };
        }
        let record = Record::Held { asked, levers: levers.clone(), drained, wall_ms: now.wall_ms };
        self.append(record, actions);
        let (from, to) = if drained { (IN_USE, Position::DARK) } else { (Position::DARK, IN_USE) };
        let txn = self.ledger.last_txn;
        for (device, slot) in levers {
            let op = Op::Switch { txn, moves: vec![Move { slot, from, to }] };
            self.send(now, &device, op, false, actions);
            let observe = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
            self.send(now, &device, observe, false, actions);
        }
        Answer::Done
    }
}

fn against_plan(taken: &[(DeviceName, Drift)]) -> Vec<String> {
    let one = |(device, drift): &(DeviceName, Drift)| {
        let [observed, wanted] = [drift.observed, drift.wanted].map(|at| device.place(at));
        let slot = device.slot(drift.slot);
        format!(
            "{device}: this moves {wanted} of {slot} away from the plan; it is at {observed} now"
        )
    };
    let ways = "restore the plan's position with `lightloom ctl apply --restore`, or keep this \
        one with `--against-plan`";
    taken.iter().map(one).chain([ways.to_owned()]).collect()
}
