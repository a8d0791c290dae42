// SPDX-License-Identifier: Apache-2.0
//! Late commands: the last commands of a former leader or of a timed-out change, which the network
//! delayed and devices without epochs still execute.
//!
//! Such a command leaves a slot at its position before the transaction, at its target, or dark. If
//! a slot is read at one of these positions within
//! [`restore_late_within`](crate::mover::Limits::restore_late_within), the controller restores it
//! and records the transaction as the cause. All other deviations are treated as drift.

use std::collections::BTreeMap;

use crate::change::Mode;
use crate::drive::Site;
use crate::inventory::Inventory;
use crate::ledger::{Ledger, Open};
use crate::messages::Apply;
use crate::mover::Limits;
use crate::record::{Cause, Intent};
use crate::sightings::Sightings;
use crate::state::{
    DeviceName, Drift, Micros, Now, Position, Positions, Sharing, Slot, SwitchState, Txn,
};

/// Poll interval while a late command may arrive, short enough to undo it within 2 s.
const READ_EVERY: Micros = Micros::from_millis(500);
/// Maximum number of restores per slot and transaction, which may move a slot twice.
const TIMES_MAX: u8 = 2;

#[derive(Clone, Debug, Default)]
pub struct Strays {
    commands: BTreeMap<DeviceName, Vec<Stray>>,
    /// When a device can no longer execute a command whose reply was lost.
    late_until: BTreeMap<DeviceName, Micros>,
}

#[derive(Clone, Debug)]
struct Stray {
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

impl Strays {
    /// Expects the last commands in the journal, which a former leader sent.
    pub(crate) fn recall(&mut self, now: &Now, ledger: &Ledger, inventory: &Inventory) {
        let intent = ledger.open.as_ref().map(|open| &open.intent);
        let open = intent.map(|intent| (intent.txn, &intent.before, &intent.after, now.wall_ms));
        let sent = ledger.sent_last.iter();
        let ended = sent.map(|sent| (sent.txn, &sent.before, &sent.after, sent.wall_ms));
        for (txn, before, after, wall_ms) in ended.chain(open) {
            let age = Micros::from_millis(now.wall_ms.saturating_sub(wall_ms));
            for (device, after) in after {
                let within = late_within(device, inventory);
                if let Some(before) = before.get(device).filter(|_| age < within) {
                    self.add(device, Stray::of(txn, now.mono + within, before, after));
                }
            }
        }
    }

    pub(crate) fn gave_up(
        &mut self,
        now: &Now,
        device: &DeviceName,
        ledger: &Ledger,
        inventory: &Inventory,
    ) {
        self.late_until.insert(device.clone(), now.mono + inventory.limits(device).late_within);
        let within = late_within(device, inventory);
        let open = ledger.open.as_ref().filter(|_| within > Micros(0));
        let Some(intent) = open.map(|open| &open.intent) else { return };
        if let (Some(before), Some(after)) = (intent.before.get(device), intent.after.get(device)) {
            self.add(device, Stray::of(intent.txn, now.mono + within, before, after));
        }
    }

    pub(crate) fn wait_for(
        &mut self,
        now: &Now,
        intent: &Intent,
        inventory: &Inventory,
        waits: impl Fn(&Limits) -> bool,
    ) {
        let known = intent.after.keys().filter(|device| inventory.devices.contains_key(*device));
        for device in known {
            let limits = inventory.limits(device);
            if waits(&limits) {
                self.late_until.insert(device.clone(), now.mono + limits.late_within);
            }
        }
    }

    pub(crate) fn is_late(&self, device: &DeviceName, now: &Now) -> bool {
        self.late_until.get(device).is_some_and(|until| *until > now.mono)
    }

    pub(crate) fn still_late(&self, now: &Now) -> BTreeMap<DeviceName, Micros> {
        let late = self.late_until.iter().filter(|(_, until)| **until > now.mono);
        late.map(|(device, until)| (device.clone(), *until)).collect()
    }

    fn add(&mut self, device: &DeviceName, stray: Stray) {
        let known = self.commands.entry(device.clone()).or_default();
        known.retain(|known| known.txn != stray.txn);
        known.push(stray);
    }

    pub(crate) fn expect_none(&mut self, device: &DeviceName) {
        self.commands.remove(device);
    }

    pub(crate) fn poll_every(&self, device: &DeviceName, inventory: &Inventory) -> Micros {
        match self.commands.contains_key(device) {
            true => inventory.poll_every.min(READ_EVERY),
            false => inventory.poll_every,
        }
    }

    pub(crate) fn undo(
        &mut self,
        now: &Now,
        sightings: &Sightings,
        ledger: &Ledger,
    ) -> Option<Apply> {
        self.commands.retain(|_, strays| {
            strays.retain(|stray| now.mono < stray.until);
            !strays.is_empty()
        });
        if ledger.open.is_some() {
            return None;
        }
        let (mut target, mut last) = (SwitchState::new(), None);
        for device in self.commands.keys() {
            if let Some((txn, goal)) = self.changed_late(device, sightings, ledger) {
                target.insert(device.clone(), goal);
                last = last.max(Some(txn));
            }
        }
        let (mode, cause) = (Mode::Update, Some(Cause::Late(last?)));
        let plan_sha256 = ledger.plan_sha256.clone();
        Some(Apply { target, mode, cause, plan_sha256, ..Apply::default() })
    }

    fn changed_late(
        &self,
        device: &DeviceName,
        sightings: &Sightings,
        ledger: &Ledger,
    ) -> Option<(Txn, Positions)> {
        let read = sightings.reading(device).filter(|read| read.tuning.is_empty())?;
        if ledger.attention.contains_key(device) || sightings.has_restarted(device) {
            return None;
        }
        let mut goal = ledger.owned.get(device).cloned().unwrap_or_default();
        let mut last = None;
        for drift in sightings.devices().get(device)?.drift() {
            match self.sent_there(device, drift) {
                Some(txn) => {
                    goal.insert(drift.slot, drift.wanted);
                    last = last.max(Some(txn));
                }
                None if drift.wanted.is_dark() => {}
                None => return None,
            }
        }
        let exclusive = sightings.inventory().devices.get(device)?.sharing == Sharing::Exclusive;
        let mut others = read.positions.iter().filter(|(slot, _)| !goal.contains_key(slot));
        let by_another =
            exclusive && others.any(|(_, to)| goal.values().any(|wanted| wanted == to));
        last.filter(|_| !by_another).map(|txn| (txn, goal))
    }

    fn sent_there(&self, device: &DeviceName, drift: &Drift) -> Option<Txn> {
        let sent = self.commands.get(device)?.iter().rev();
        let mut there = sent.filter(|stray| {
            let slot = stray.slots.get(&drift.slot);
            slot.is_some_and(|(places, left)| *left > 0 && places.contains(&drift.observed))
        });
        there.next().map(|stray| stray.txn)
    }

    pub(crate) fn ended(&mut self, open: &Open) {
        if !matches!(open.intent.cause, Cause::Late(_)) {
            return;
        }
        for (device, slots) in &open.intent.after {
            let strays = self.commands.get_mut(device).into_iter().flatten();
            for (slot, (_, left)) in strays.flat_map(|stray| &mut stray.slots) {
                *left -= u8::from(slots.contains_key(slot) && *left > 0);
            }
        }
    }
}

/// Returns whether late commands of a device are always undone, so that nothing must wait for them.
pub(crate) fn undoes_all_late(limits: &Limits) -> bool {
    limits.restore_late_within >= limits.late_within + READ_EVERY + READ_EVERY
}

fn late_within(device: &DeviceName, inventory: &Inventory) -> Micros {
    match inventory.is_lever(device) {
        true => Micros(0),
        false => inventory.limits(device).restore_late_within,
    }
}
