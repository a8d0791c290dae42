// SPDX-License-Identifier: Apache-2.0
//! Requests of clients and policies: what they change, or why they are refused.

use std::collections::{BTreeMap, BTreeSet};

use super::{Context, Transactions};
use crate::change::Mode;
use crate::drive::{Command, IN_USE, Site, Start};
use crate::inventory::Inventory;
use crate::kept_plan::FollowingPlan;
use crate::messages::{Adopt, Answer, Apply, Request, Rollback};
use crate::record::{Asked, Cause, Intent, Record};
use crate::state::{
    DeviceName, Drift, Move, Neighbours, Op, Position, Positions, Slot, SwitchState, Txn,
};

pub(crate) enum Decision {
    Answered(Answer),
    Begun(Txn, Vec<Command>),
    Adopted(Answer, Vec<DeviceName>),
    Held(Vec<(DeviceName, Op)>),
    Resumed,
}

impl Decision {
    fn conflict(reason: impl Into<String>) -> Self {
        Self::Answered(Answer::Conflict { reason: reason.into() })
    }

    fn refused(reasons: Vec<String>) -> Self {
        Self::Answered(Answer::Refused { reasons })
    }
}

impl Transactions {
    pub(crate) fn request(
        &mut self,
        cx: &mut Context<'_>,
        asked: Asked,
        request: Request,
    ) -> Decision {
        if let Some((digest, txn)) = self.ledger.requests.get(&asked.request) {
            if *digest != asked.digest {
                return Decision::conflict(format!(
                    "request id `{}` has already been used for a different \
                    request",
                    asked.request
                ));
            }
            return Decision::Answered(txn.map_or(Answer::Done, |txn| Answer::Accepted { txn }));
        }
        match request {
            Request::Apply(apply) => self.apply(cx, asked, apply),
            Request::Confirm(txn) => self.confirm(cx, asked, txn),
            Request::Rollback(rollback) => self.rollback(cx, asked, rollback),
            Request::Adopt(adopt) => self.adopt(cx, asked, &adopt),
            Request::Hold { slots, drained } => self.hold(cx, asked, &slots, drained),
            Request::Resume => {
                self.append(Record::Resumed { asked, wall_ms: cx.now.wall_ms }, cx.out);
                Decision::Resumed
            }
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.ledger.open.is_none() && self.ledger.pending.is_none()
    }

    fn busy(&self, cx: &Context<'_>) -> Option<Decision> {
        if let Some(on_its_way) = self.on_its_way(cx) {
            return Some(Decision::conflict(on_its_way));
        }
        let txn = self.ledger.pending.as_ref()?.txn;
        Some(Decision::conflict(format!(
            "transaction {txn} awaits confirmation: first `lightloom ctl confirm {txn}` or \
                `lightloom ctl rollback {txn}`"
        )))
    }

    pub(crate) fn apply(&mut self, cx: &mut Context<'_>, asked: Asked, apply: Apply) -> Decision {
        let on_top = apply.cause.as_ref().is_some_and(Cause::goes_on_top);
        if let Some(conflict) = self.busy(cx).filter(|_| !on_top || self.ledger.open.is_some()) {
            return conflict;
        }
        let version = self.ledger.version;
        if let Some(planned) = apply.version.filter(|planned| *planned != version) {
            return Decision::conflict(format!(
                "planned against version {planned}, but the current version is {version}"
            ));
        }
        if apply.cause == Some(Cause::Drift) && apply.target.is_empty() {
            let reason = "all reachable devices are at the positions in plan and journal";
            return Decision::Answered(Answer::NothingToDo { reasons: vec![reason.into()] });
        }
        match self.preview(&apply, cx.sightings) {
            Err(reasons) => Decision::refused(reasons),
            Ok(preview) => self.begin(cx, asked, apply, preview.changes),
        }
    }

    pub(super) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        asked: Asked,
        apply: Apply,
        changes: BTreeMap<DeviceName, Vec<Move>>,
    ) -> Decision {
        let txn = Txn(self.ledger.last_txn.0 + 1);
        let (mut before, mut after) = (SwitchState::new(), SwitchState::new());
        for (device, moves) in &changes {
            before.insert(device.clone(), moves.iter().map(|m| (m.slot, m.from)).collect());
            after.insert(device.clone(), moves.iter().map(|m| (m.slot, m.to)).collect());
        }
        let devices = apply.target.keys();
        let owned_before =
            devices.map(|d| (d.clone(), self.ledger.belongs(d).into_owned())).collect();
        let mut goal = apply.target;
        if apply.mode == Mode::Probe {
            for (device, slots) in &mut goal {
                let owned = self.ledger.owned.get(device).cloned().unwrap_or_default();
                let named = std::mem::replace(slots, owned);
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
            on_failure: apply.on_failure.unwrap_or(cx.sightings.inventory().on_failure),
            wall_ms: cx.now.wall_ms,
            failed: apply.failed,
            phase,
            stages: stages.unwrap_or_default(),
            resolves: apply.resolves,
        };
        self.neighbours = apply.neighbours;
        let start = match intent.cause.undoes() {
            true => Start::Reachable(cx.sightings.long_unread(cx.now)),
            false => Start::AllOrNothing(before),
        };
        let plan = apply.plan.filter(|plan| !self.ledger.plans.contains_key(plan.sha256()));
        if let Some(plan) = plan {
            let in_force = self.ledger.plans.get(&self.ledger.plan_sha256);
            let before = in_force.filter(|_| intent.cause.goes_on_top());
            let record = match before {
                Some(before) => Record::PlanAfter(FollowingPlan::new(&plan, before).into()),
                None => Record::Plan(*plan),
            };
            self.append(record, cx.out);
        }
        self.append(Record::Intent(Box::new(intent)), cx.out);
        Decision::Begun(txn, self.run(cx, after, start))
    }

    fn confirm(&mut self, cx: &mut Context<'_>, asked: Asked, txn: Txn) -> Decision {
        let undoes = self.ledger.open.as_ref().filter(|open| open.intent.cause.undoes());
        Decision::conflict(match (&self.ledger.pending, undoes) {
            (Some(pending), _) if pending.txn != txn => {
                format!("transaction {} awaits confirmation, not {txn}", pending.txn)
            }
            (Some(_), Some(open)) => format!("transaction {} already undoes it", open.intent.txn),
            (Some(_), None) => {
                self.append(Record::Confirmed { txn, asked, wall_ms: cx.now.wall_ms }, cx.out);
                return Decision::Answered(Answer::Done);
            }
            (None, _) => "no transaction awaits confirmation".into(),
        })
    }

    fn rollback(&mut self, cx: &mut Context<'_>, asked: Asked, rollback: Rollback) -> Decision {
        let Rollback { txn, confirm_within, avoiding } = rollback;
        if self.ledger.open.is_some() {
            return self.busy(cx).unwrap_or(Decision::Answered(Answer::Done));
        }
        let pending = self.ledger.pending.as_ref().map(|pending| pending.txn);
        if let Some(pending) = pending.filter(|pending| *pending < txn) {
            return Decision::conflict(format!("transaction {pending} awaits confirmation"));
        }
        if let Some(pending) = pending.filter(|_| confirm_within.is_some()) {
            return Decision::conflict(format!(
                "transaction {pending} awaits confirmation, and its undo cannot wait for \
                    another one: omit `--confirm-within`"
            ));
        }
        let back = match avoiding {
            Some(back) => Ok(*back),
            None => self.led_back(txn, Cause::Rollback(txn)),
        };
        match back {
            Err(reasons) => Decision::refused(reasons),
            Ok(back) => self.undo(cx, asked, Apply { confirm_within, ..back }),
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
        let mut failed = past.map(|past| past.failed_before.clone()).unwrap_or_default();
        failed.extend(self.ledger.failed_since(txn));
        let (mode, cause, failed) = (Mode::Update, Some(cause), Some(failed));
        Ok(Apply { target, mode, cause, plan_sha256, failed, ..Apply::default() })
    }

    pub(crate) fn lead_back_to(&mut self, txn: Txn, back: Apply) {
        self.lead_back = Some((txn, back));
    }

    pub(super) fn led_back(&self, txn: Txn, cause: Cause) -> Result<Apply, Vec<String>> {
        match self.lead_back.as_ref().filter(|(led, _)| *led == txn) {
            Some((_, back)) => Ok(Apply { cause: Some(cause), ..back.clone() }),
            None => self.way_back(txn, cause),
        }
    }

    pub(crate) fn undo(&mut self, cx: &mut Context<'_>, asked: Asked, mut back: Apply) -> Decision {
        match self.changes_back(&mut back, cx.sightings) {
            Err(reasons) => Decision::refused(reasons),
            Ok(changes) => self.begin(cx, asked, back, changes),
        }
    }

    fn adopt(&mut self, cx: &mut Context<'_>, asked: Asked, adopt: &Adopt) -> Decision {
        if let Some(conflict) = self.busy(cx) {
            return conflict;
        }
        let mut positions = SwitchState::new();
        let mut reasons = Vec::new();
        for device in &adopt.devices {
            match cx.sightings.reading(device) {
                Some(read) => {
                    positions.insert(device.clone(), read.positions.clone());
                }
                None if !cx.sightings.devices().contains_key(device) => {
                    reasons.push(format!("{device}: no such device is configured here"));
                }
                None => reasons.push(format!(
                    "{device}: cannot be read now, so its lit slots are unknown; `wait` until it \
                        answers again"
                )),
            }
        }
        let unreachable = reasons.len();
        if unreachable > 0 && (positions.is_empty() || !adopt.leave_out_unreachable) {
            return Decision::refused(reasons);
        }
        let devices: Vec<DeviceName> = positions.keys().cloned().collect();
        let taken = self.taken_by_adopting(&devices, cx.sightings);
        if !taken.is_empty() && !adopt.against_plan {
            return Decision::refused(against_plan(&taken));
        }
        let slots = positions.values().map(Positions::len).sum();
        self.append(Record::Adopted { asked, positions, wall_ms: cx.now.wall_ms }, cx.out);
        let answer = Answer::Adopted { devices: devices.len(), slots, unreachable };
        Decision::Adopted(answer, devices)
    }

    /// Switches drain controls outside any transaction, because they move traffic and not light.
    /// The record is written first, so a crash before the commands appears as drift.
    fn hold(
        &mut self,
        cx: &mut Context<'_>,
        asked: Asked,
        slots: &[(DeviceName, Slot)],
        drained: bool,
    ) -> Decision {
        if let Some(reason) = self.on_its_way(cx) {
            return Decision::conflict(reason);
        }
        let levers = levers(slots, cx.sightings.inventory());
        if levers.is_empty() {
            return Decision::refused(vec![
                "no drain control is configured for these devices".into(),
            ]);
        }
        let wall_ms = cx.now.wall_ms;
        self.append(Record::Held { asked, levers: levers.clone(), drained, wall_ms }, cx.out);
        let (from, to) = if drained { (IN_USE, Position::DARK) } else { (Position::DARK, IN_USE) };
        let txn = self.ledger.last_txn;
        let operations = levers.into_iter().flat_map(|(device, slot)| {
            let switch = Op::Switch { txn, moves: vec![Move { slot, from, to }] };
            let observe = Op::Observe { power: Vec::new(), neighbours: Neighbours::Usual };
            [(device.clone(), switch), (device, observe)]
        });
        Decision::Held(operations.collect())
    }
}

fn levers(slots: &[(DeviceName, Slot)], inventory: &Inventory) -> BTreeSet<(DeviceName, Slot)> {
    let levers = slots.iter().filter_map(|(device, slot)| match inventory.is_lever(device) {
        true => Some((device.clone(), *slot)),
        false => inventory.lever(device, *slot),
    });
    levers.collect()
}

fn against_plan(taken: &[(DeviceName, Drift)]) -> Vec<String> {
    let moves = taken.iter().map(|(device, drift)| {
        let [observed, wanted] = [drift.observed, drift.wanted].map(|at| device.place(at));
        let slot = device.slot(drift.slot);
        format!(
            "{device}: this moves {wanted} of {slot} away from the plan; it is at {observed} now"
        )
    });
    let ways = "restore the plan's position with `lightloom ctl apply --restore`, or keep this \
        one with `--against-plan`";
    moves.chain([ways.to_owned()]).collect()
}
