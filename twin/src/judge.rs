// SPDX-License-Identifier: Apache-2.0
//! Checks the daemon against the invariants I1 to I9 in docs/reliability.md, using the actual
//! faults and the actual light, independently of the daemon's policies.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_control::ledger::Ledger;
use lightloom_control::record::{Record, TxnResult};
use lightloom_control::state::{DeviceName, Op, Positions, SwitchState, Txn, at};
use lightloom_units::{Picoseconds, SimTime};

const LISTED_MAX: usize = 20;

/// Maximum time between the intent and the end of a change. The daemon waits up to 30 s for a
/// device when it applies a change, and again when it rolls the change back.
const OVER_WITHIN: Picoseconds = Picoseconds::from_millis(90_000);

#[derive(Default)]
pub(crate) struct Judge {
    durable: Ledger,
    intents: BTreeMap<String, u32>,
    pub(crate) committed: Vec<SwitchState>,
    pub(crate) undone: Vec<SwitchState>,
    open: Option<(Txn, SimTime)>,
    /// Devices whose last operation has an unknown outcome and that have not been read since then.
    unknown: BTreeSet<DeviceName>,
    violations: Vec<String>,
}

impl Judge {
    pub(crate) fn note(&mut self, what: String) {
        if self.violations.len() < LISTED_MAX {
            self.violations.push(what);
        }
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    pub(crate) fn restarted(&mut self, read: &Ledger, now: SimTime) {
        let durable = &self.durable;
        if read.version < durable.version || read.last_txn < durable.last_txn {
            self.note(format!("I3: at {now} an acknowledged record is gone after the crash"));
        }
        self.durable = read.clone();
        self.open = read.open.as_ref().map(|open| (open.intent.txn, now));
        self.unknown.clear();
    }

    pub(crate) fn overdue(&self, now: SimTime) -> Option<String> {
        let (txn, since) = self.open.filter(|(_, since)| now > *since + OVER_WITHIN)?;
        Some(format!("I7: {txn}, begun at {since}, has not ended by {now}"))
    }

    pub(crate) fn is_unknown(&mut self, device: &DeviceName) {
        self.unknown.insert(device.clone());
    }

    /// Checks I6, I7 and I8, and collects changes to be checked against the light.
    pub(crate) fn written(&mut self, records: &[Record], now: SimTime) {
        for record in records {
            match record {
                Record::Intent(intent) => {
                    if intent.asked.actor.as_str().is_empty() {
                        self.note(format!("I8: {} has no actor", intent.txn));
                    }
                    self.open = Some((intent.txn, now));
                    let count = self.intents.entry(intent.asked.request.clone()).or_default();
                    *count += 1;
                    if *count > 1 {
                        self.note(format!(
                            "I6: request {} took effect twice",
                            intent.asked.request
                        ));
                    }
                }
                Record::End { result, .. } => {
                    if let Some(late) = self.overdue(now) {
                        self.note(late);
                    }
                    self.open = None;
                    let open = self.durable.open.as_ref().map(|open| open.intent.after.clone());
                    match result {
                        TxnResult::Committed => self.committed.extend(open),
                        _ => self.undone.extend(open),
                    }
                }
                _ => {}
            }
            self.durable.apply(record);
        }
    }

    /// Checks that each command was journalled first and is not a blind retry, and checks I1, I4 and I5.
    pub(crate) fn sends(&mut self, device: &DeviceName, op: &Op, now: SimTime) {
        let Op::Switch { txn, moves } = op else {
            // Arming a device also reads it.
            if matches!(op, Op::Observe { .. } | Op::Arm { .. }) {
                self.unknown.remove(device);
            }
            return;
        };
        if self.unknown.contains(device) {
            self.note(format!("no blind retry: at {now} {device} moves without having been read"));
        }
        let Some(open) = &self.durable.open else {
            return self.note(format!("I5: at {now} {device} moves without a transaction"));
        };
        let named = open.intent.after.get(device).filter(|_| open.intent.txn == *txn);
        let Some(named) = named else {
            return self
                .note(format!("write-ahead: at {now} {device} moves without a journal record"));
        };
        let unnamed = moves.iter().find(|one| !named.contains_key(&one.slot)).map(|one| one.slot);
        let slots: BTreeSet<_> = moves.iter().map(|one| one.slot).collect();
        if slots.len() != moves.len() {
            self.note(format!("I1: at {now} {device} receives two requests for a slot"));
        }
        if let Some(slot) = unnamed {
            self.note(format!("I4: at {now} {device} slot {slot} is not part of the change"));
        }
    }

    /// Checks I3: a committed change must be in effect wherever the light is known.
    pub(crate) fn holds(&mut self, goal: &SwitchState, truths: &BTreeMap<DeviceName, Positions>) {
        for (device, wanted) in goal {
            let Some(true_one) = truths.get(device) else { continue };
            if let Some((slot, to)) = wanted.iter().find(|(slot, to)| at(true_one, **slot) != **to)
            {
                self.note(format!(
                    "I3: {device} slot {slot} is not at {to}, although its change is committed"
                ));
            }
        }
    }
}
