// SPDX-License-Identifier: Apache-2.0
//! The open transaction. The controller converts the drive's commands to records and sends.

use std::collections::{BTreeMap, BTreeSet};

use super::strays::undoes_all_late;
use super::{Action, Controller, Note};
use crate::change::stages_back;
use crate::drive::{Command, Drive, PartEnd, Site, Start, Verdict};
use crate::inventory::Recovery;
use crate::ledger::Open;
use crate::mover::Limits;
use crate::record::{Cause, Intent, OnFailure, Pending, Record, TxnResult};
use crate::state::{DeviceName, Micros, Now, Observation, Op, SwitchState, at};

const READ_LATELY: Micros = Micros::from_secs(2);

/// After a restart, a bypass that started within this time is finished even if the journal does not
/// contain its moves, because the fault is recent.
const INTERRUPTED_LATELY: Micros = Micros::from_secs(10);

impl Controller {
    pub(super) fn recover(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let Some(open) = self.ledger.open.clone() else { return };
        let age = Micros::from_millis(now.wall_ms.saturating_sub(open.intent.wall_ms));
        let interrupted = open.intent.cause == Cause::Bypass && age <= INTERRUPTED_LATELY;
        let finish = self.inventory.recovery == Recovery::FinishForward
            && (interrupted || !open.fired.is_empty());
        let forward = open.turned.is_none() && (finish || open.intent.cause.undoes());
        if forward {
            let start = Start::WhatAnswers(self.long_silent(now));
            // A bypass need not wait for late commands of the previous daemon, which `strays`
            // undoes.
            self.wait_for_late(now, &open, |limits| !interrupted || !undoes_all_late(limits));
            self.run(now, open.intent.after.clone(), start, actions);
            self.wait_for_late(now, &open, |_| true);
        } else {
            self.wait_for_late(now, &open, |_| true);
            let all = open.intent.before.keys().cloned().collect();
            self.go_back(now, &open, &all, BTreeMap::new(), actions);
        }
    }

    fn wait_for_late(&mut self, now: &Now, open: &Open, waits: impl Fn(&Limits) -> bool) {
        for device in open.intent.after.keys() {
            let limits = self.inventory.limits(device);
            if let Some(seen) = self.devices.get_mut(device).filter(|_| waits(&limits)) {
                seen.late_until = now.mono + limits.late_within;
            }
        }
    }

    pub(super) fn run(
        &mut self,
        now: &Now,
        mut target: SwitchState,
        start: Start,
        actions: &mut Vec<Action>,
    ) {
        let Some(open) = &self.ledger.open else { return };
        if makes_up(&open.intent.cause) {
            // Restore the traffic that the deferred change drained, even if the device does not
            // move.
            let drains = |device: &DeviceName| {
                self.inventory.devices.get(device).is_some_and(|d| !d.levers.is_empty())
            };
            for (device, goal) in open.intent.goal.iter().filter(|(device, _)| drains(device)) {
                target.entry(device.clone()).or_default().extend(goal);
            }
        }
        let (txn, held) = (open.intent.txn, self.ledger.held.clone());
        let standing = self.standing_opposite(&target);
        let neighbours = self.neighbours.clone();
        let turned = open.turned.is_some();
        let intent = &open.intent;
        let stages = match turned {
            true => stages_back(&intent.before, &intent.stages),
            false => intent.stages.clone(),
        };
        let known = self.known_to_stand(now, intent, &start);
        let mut drive = Drive::new(txn, target, start, neighbours, held, standing);
        drive.in_stages(stages);
        if turned || matches!(intent.cause, Cause::Late(_)) {
            drive.go_back();
        } else if intent.cause == Cause::Probe {
            drive.probe(intent.goal.keys().cloned().collect());
        }
        let late = self.devices.iter().filter(|(_, seen)| seen.late_until > now.mono);
        drive.wait_for_late(late.map(|(device, seen)| (device.clone(), seen.late_until)).collect());
        drive.knows(known);
        let commands = drive.begin(now.mono, &self.inventory);
        self.drive = Some(drive);
        self.execute(now, commands, actions);
    }

    fn known_to_stand(
        &self,
        now: &Now,
        intent: &Intent,
        start: &Start,
    ) -> BTreeMap<DeviceName, Observation> {
        let Start::AllOrNothing(expected) = start else { return BTreeMap::new() };
        let turned = self.ledger.open.as_ref().is_none_or(|open| open.turned.is_some());
        if intent.cause != Cause::Bypass || turned {
            return BTreeMap::new();
        }
        let known = |device: &DeviceName| {
            let goes = self.inventory.devices.get(device)?.goes;
            let seen = self.devices.get(device).filter(|seen| seen.up && goes)?;
            let read = seen.observed.as_ref().filter(|read| read.tuning.is_empty())?;
            let lately = seen.read_at + READ_LATELY >= now.mono && seen.late_until <= now.mono;
            let attended = self.ledger.attention.contains_key(device);
            let mut expected = expected.get(device).into_iter().flatten();
            let stands = expected.all(|(slot, to)| at(&read.positions, *slot) == *to);
            (lately && stands && !attended).then(|| (device.clone(), read.clone()))
        };
        intent.after.keys().filter_map(known).collect()
    }

    fn standing_opposite(&self, target: &SwitchState) -> SwitchState {
        let ends = target.iter().flat_map(|(device, slots)| {
            slots.iter().filter_map(|(&slot, &to)| self.inventory.far_end(device, slot, to))
        });
        let opposite: BTreeSet<&DeviceName> =
            ends.map(|(far, ..)| far).filter(|far| !target.contains_key(*far)).collect();
        let seen =
            |far: &&DeviceName| self.devices.get(*far).filter(|seen| seen.up)?.observed.as_ref();
        let stands = opposite.iter().filter_map(|far| Some(((*far).clone(), seen(far)?)));
        let sends = |seen: &Observation| {
            let mut positions = seen.positions.clone();
            positions.retain(|slot, _| !seen.is_shut(*slot));
            positions
        };
        stands.map(|(far, seen)| (far, sends(seen))).collect()
    }

    pub(super) fn execute(&mut self, now: &Now, commands: Vec<Command>, actions: &mut Vec<Action>) {
        for command in commands {
            match command {
                Command::Send(device, op) => {
                    let drives = !matches!(op, Op::Disarm { .. });
                    self.send(now, &device, op, drives, actions);
                }
                Command::Fire(wave) => {
                    let Some(txn) = self.ledger.open.as_ref().map(|o| o.intent.txn) else {
                        continue;
                    };
                    self.append(Record::Fire { txn, wave, wall_ms: now.wall_ms }, actions);
                    actions.push(Action::Note(Note::Fired(txn)));
                }
                Command::End(parts) => self.drive_ended(now, parts, actions),
            }
        }
    }

    fn drive_ended(
        &mut self,
        now: &Now,
        parts: BTreeMap<DeviceName, PartEnd>,
        actions: &mut Vec<Action>,
    ) {
        self.drive = None;
        let Some(open) = self.ledger.open.clone() else { return };
        let mut parts = parts;
        self.look_again(&open, &mut parts);
        let applied = parts.values().all(|part| part.verdict == Verdict::Applied);
        match &open.turned {
            None if applied => self.end(now, TxnResult::Committed, parts, actions),
            None if open.intent.cause.undoes() => {
                owe(&mut parts);
                self.end(now, TxnResult::Partial, parts, actions);
            }
            None if open.fired.is_empty() => self.end(now, TxnResult::Aborted, parts, actions),
            None if open.intent.on_failure == OnFailure::Hold => {
                self.end(now, TxnResult::Partial, parts, actions);
            }
            None => self.go_back(now, &open, &open.fired, parts, actions),
            Some(forward) => {
                let back = applied && !open.fired.is_empty();
                owe(&mut parts);
                let parts = merge(forward, parts, &open.fired);
                let result = match (applied, back) {
                    (true, true) => TxnResult::RolledBack,
                    (true, false) => TxnResult::Aborted,
                    _ => TxnResult::Partial,
                };
                self.end(now, result, parts, actions);
            }
        }
    }

    fn look_again(&self, open: &Open, parts: &mut BTreeMap<DeviceName, PartEnd>) {
        let target = if open.turned.is_some() { &open.intent.before } else { &open.intent.after };
        for (device, part) in parts.iter_mut().filter(|(_, p)| p.verdict == Verdict::Applied) {
            let Some(want) = target.get(device) else { continue };
            let Some(seen) = self.devices.get(device).and_then(|d| d.observed.as_ref()) else {
                continue;
            };
            let moved = want.iter().find(|(slot, to)| at(&seen.positions, **slot) != **to);
            if let Some((slot, to)) = moved {
                part.verdict = Verdict::Failed;
                let (slot, to) = (device.slot(*slot), device.place(*to));
                part.detail = format!("{slot} was read at {to} and has moved since");
            }
        }
    }

    fn go_back(
        &mut self,
        now: &Now,
        open: &Open,
        devices: &BTreeSet<DeviceName>,
        parts: BTreeMap<DeviceName, PartEnd>,
        actions: &mut Vec<Action>,
    ) {
        if open.turned.is_none() {
            let turn = Record::Turn { txn: open.intent.txn, parts, wall_ms: now.wall_ms };
            self.append(turn, actions);
        }
        let mut target = open.intent.before.clone();
        target.retain(|device, _| devices.contains(device));
        self.neighbours.clear();
        let start = Start::WhatAnswers(self.long_silent(now));
        self.run(now, target, start, actions);
    }

    fn end(
        &mut self,
        now: &Now,
        result: TxnResult,
        parts: BTreeMap<DeviceName, PartEnd>,
        actions: &mut Vec<Action>,
    ) {
        let Some(open) = self.ledger.open.clone() else { return };
        let (txn, within) = (open.intent.txn, open.intent.confirm_within);
        let committed = result == TxnResult::Committed;
        let pending = within.filter(|_| committed);
        let pending = pending.map(|within| Pending { txn, since: now.clone(), within });
        // The daemon now owns all devices in the target, even those that did not move.
        let mut parts = parts;
        let undone = result == TxnResult::Partial && open.intent.cause.undoes();
        if committed || undone {
            for device in open.intent.goal.keys() {
                let applied = PartEnd::new(Verdict::Applied, String::new());
                parts.entry(device.clone()).or_insert(applied);
            }
        }
        let devices: Vec<DeviceName> = parts.keys().cloned().collect();
        if committed && makes_up(&open.intent.cause) {
            let settled = open.intent.goal.keys();
            let settled: Vec<DeviceName> = settled.cloned().collect();
            self.forget_tries(&settled);
        }
        self.around = None;
        self.count_own_change(now, result, &parts);
        let wall_ms = now.wall_ms;
        self.append(Record::End { txn, result, parts, pending, wall_ms }, actions);
        actions.push(Action::Note(Note::Ended(txn, result)));
        self.count_restore(now, &open, actions);
        self.count_late(&open);
        if !committed {
            // After an undo, light that was missing before the change may still be missing.
            for device in open.intent.after.keys() {
                self.look_within(device, Micros(0));
            }
        }
        for device in devices {
            self.note_drift(&device, actions);
        }
    }
}

fn makes_up(cause: &Cause) -> bool {
    matches!(cause, Cause::Deferred(_))
}

fn owe(parts: &mut BTreeMap<DeviceName, PartEnd>) {
    for part in parts.values_mut().filter(|part| part.verdict == Verdict::Unknown) {
        part.detail += "; it is restored automatically when it answers";
    }
}

fn merge(
    forward: &BTreeMap<DeviceName, PartEnd>,
    back: BTreeMap<DeviceName, PartEnd>,
    fired: &BTreeSet<DeviceName>,
) -> BTreeMap<DeviceName, PartEnd> {
    let mut parts = forward.clone();
    for part in parts.values_mut().filter(|part| part.verdict == Verdict::Applied) {
        part.verdict = Verdict::Untouched;
    }
    for (device, back) in back {
        let before = parts.get(&device).filter(|part| !part.detail.is_empty());
        let (why, unlit) = before.map(|part| (part.detail.clone(), part.unlit)).unwrap_or_default();
        let part = match back.verdict {
            Verdict::Applied if fired.contains(&device) => {
                PartEnd { verdict: Verdict::RolledBack, detail: why, unlit }
            }
            Verdict::Applied | Verdict::Untouched => {
                PartEnd { verdict: Verdict::Untouched, detail: why, unlit }
            }
            verdict => {
                let detail = if why.is_empty() {
                    format!("rolling back: {}", back.detail)
                } else {
                    format!("{why}; rolling back: {}", back.detail)
                };
                PartEnd { verdict, detail, unlit: back.unlit && (why.is_empty() || unlit) }
            }
        };
        parts.insert(device, part);
    }
    parts
}
