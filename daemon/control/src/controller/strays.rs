// SPDX-License-Identifier: Apache-2.0
//! Undoes late commands: the last commands of a former leader or of a timed-out change, which the
//! network delayed and devices without epochs still execute.
//!
//! Such a command leaves a slot at its position before the transaction, at its target, or dark. If
//! a slot is read at one of these positions within
//! [`restore_late_within`](crate::mover::Limits::restore_late_within), the controller restores it
//! and records the transaction as the cause. All other deviations are treated as drift.

use std::collections::BTreeMap;

use super::drift::own;
use super::{Action, Answer, Apply, Controller, Drift};
use crate::actor::Policy;
use crate::change::Mode;
use crate::drive::Site;
use crate::ledger::Open;
use crate::mover::Limits;
use crate::record::Cause;
use crate::state::{DeviceName, Micros, Now, Position, Positions, Slot, SwitchState, Txn};

/// Poll interval while a late command may arrive, short enough to undo it within 2 s.
const READ_EVERY: Micros = Micros::from_millis(500);
/// Maximum number of restores per slot and transaction, which may move a slot twice.
const TIMES_MAX: u8 = 2;

pub(super) type Strays = BTreeMap<DeviceName, Vec<Stray>>;

#[derive(Clone, Debug)]
pub(super) struct Stray {
    txn: Txn,
    until: Micros,
    /// Positions that a late command may set, by slot, and the number of remaining restores.
    slots: BTreeMap<Slot, ([Position; 3], u8)>,
}

impl Stray {
    fn of(txn: Txn, until: Micros, before: &Positions, after: &Positions) -> Self {
        let slots = after.iter().map(|(&slot, &to)| {
            let from = before.get(&slot).copied().unwrap_or(Position::DARK);
            (slot, ([from, to, Position::DARK], TIMES_MAX))
        });
        Self { txn, until, slots: slots.collect() }
    }
}

pub(super) fn undoes_all_late(limits: &Limits) -> bool {
    limits.restore_late_within >= limits.late_within + READ_EVERY + READ_EVERY
}

impl Controller {
    pub(super) fn expect_late(&mut self, now: &Now) {
        let open = self.ledger.open.as_ref().map(|open| &open.intent);
        let open = open.map(|intent| (intent.txn, &intent.before, &intent.after, now.wall_ms));
        let ended = self.ledger.sent_last.iter();
        let ended = ended.map(|sent| (sent.txn, &sent.before, &sent.after, sent.wall_ms));
        let mut strays = Vec::new();
        for (txn, before, after, wall_ms) in ended.chain(open) {
            let age = Micros::from_millis(now.wall_ms.saturating_sub(wall_ms));
            for (device, after) in after {
                let within = self.late_within(device);
                if let Some(before) = before.get(device).filter(|_| age < within) {
                    strays.push((device.clone(), Stray::of(txn, now.mono + within, before, after)));
                }
            }
        }
        strays.into_iter().for_each(|(device, stray)| self.add_stray(&device, stray));
    }

    pub(super) fn gave_up(&mut self, now: &Now, device: &DeviceName) {
        let (within, open) = (self.late_within(device), self.ledger.open.as_ref());
        let Some(intent) = open.map(|open| &open.intent).filter(|_| within > Micros(0)) else {
            return;
        };
        if let (Some(before), Some(after)) = (intent.before.get(device), intent.after.get(device)) {
            let stray = Stray::of(intent.txn, now.mono + within, before, after);
            self.add_stray(device, stray);
        }
    }

    fn late_within(&self, device: &DeviceName) -> Micros {
        match self.is_lever(device) {
            true => Micros(0),
            false => self.inventory.limits(device).restore_late_within,
        }
    }

    fn add_stray(&mut self, device: &DeviceName, stray: Stray) {
        let known = self.strays.entry(device.clone()).or_default();
        known.retain(|known| known.txn != stray.txn);
        known.push(stray);
    }

    pub(super) fn expect_nothing_late(&mut self, device: &DeviceName) {
        self.strays.remove(device);
    }

    pub(super) fn next_poll_after(&self, device: &DeviceName, is_poll: bool) -> Micros {
        let every = match self.strays.contains_key(device) {
            true => self.inventory.poll_every.min(READ_EVERY),
            false => self.inventory.poll_every,
        };
        if is_poll { every } else { self.inventory.first_poll_after(device, every) }
    }

    pub(super) fn restore_late(&mut self, now: &Now, actions: &mut Vec<Action>) {
        self.strays.retain(|_, strays| {
            strays.retain(|stray| now.mono < stray.until);
            !strays.is_empty()
        });
        if self.strays.is_empty() || self.ledger.open.is_some() {
            return;
        }
        let changed = self.strays.keys().filter_map(|device| self.changed_late(device));
        let changed: Vec<(DeviceName, Txn, Positions)> = changed.collect();
        let Some(txn) = changed.iter().map(|(_, txn, _)| *txn).max() else { return };
        let target: SwitchState =
            changed.into_iter().map(|(device, _, goal)| (device, goal)).collect();
        self.own_not_before = now.mono + Micros::from_secs(1);
        let asked = own(Policy::Late, format!("late-{}", self.ledger.last_txn.0 + 1));
        let plan_sha256 = self.ledger.plan_sha256.clone();
        let (mode, cause) = (Mode::Update, Some(Cause::Late(txn)));
        let apply = Apply { target, mode, cause, plan_sha256, ..Apply::default() };
        if let Answer::Refused { reasons } = self.apply(now, asked, apply, actions) {
            debug_assert!(reasons.is_empty(), "drift of a device that was read: {reasons:?}");
        }
    }

    fn changed_late(&self, device: &DeviceName) -> Option<(DeviceName, Txn, Positions)> {
        let seen = self.devices.get(device).filter(|seen| seen.up && !seen.drift.is_empty())?;
        let read = seen.observed.as_ref().filter(|read| read.tuning.is_empty())?;
        if self.ledger.attention.contains_key(device) || self.has_restarted(device) {
            return None;
        }
        let mut goal = self.ledger.owned.get(device).cloned().unwrap_or_default();
        let mut last = None;
        for drift in &seen.drift {
            match self.sent_there(device, drift) {
                Some(txn) => {
                    goal.insert(drift.slot, drift.wanted);
                    last = last.max(Some(txn));
                }
                None if drift.wanted.is_dark() => {}
                None => return None,
            }
        }
        let is_taken = |(slot, to): (&Slot, &Position)| {
            !goal.contains_key(slot) && goal.values().any(|wanted| wanted == to)
        };
        let exclusive = self.known(device)?.sharing == crate::state::Sharing::Exclusive;
        let by_another = exclusive && read.positions.iter().any(is_taken);
        last.filter(|_| !by_another).map(|txn| (device.clone(), txn, goal))
    }

    fn sent_there(&self, device: &DeviceName, drift: &Drift) -> Option<Txn> {
        let sent = self.strays.get(device)?.iter().rev();
        let mut there = sent.filter(|stray| {
            let slot = stray.slots.get(&drift.slot);
            slot.is_some_and(|(places, left)| *left > 0 && places.contains(&drift.observed))
        });
        there.next().map(|stray| stray.txn)
    }

    pub(super) fn count_late(&mut self, open: &Open) {
        if !matches!(open.intent.cause, Cause::Late(_)) {
            return;
        }
        for (device, slots) in &open.intent.after {
            let strays = self.strays.get_mut(device).into_iter().flatten();
            for (slot, (_, left)) in strays.flat_map(|stray| &mut stray.slots) {
                *left -= u8::from(slots.contains_key(slot) && *left > 0);
            }
        }
    }
}
