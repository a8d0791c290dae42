//! What happens without being asked: drift is seen, missing light is counted, and what the policy
//! allows is put back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Action, Apply, Controller, Drift, Note, OWN_CHANGES_MAX, OWN_CHANGES_WINDOW, Seen};
use crate::change::Mode;
use crate::drive::Site;
use crate::inventory::{FibreEnd, OnDrift};
use crate::record::{Asked, Cause, Ledger, Open, Past};
use crate::state::{DeviceName, Fabric, Micros, Now, Observation, Position, Positions, Slot, at};

impl Controller {
    pub(super) fn note_drift(&mut self, device: &DeviceName, actions: &mut Vec<Action>) {
        let involved = |open: &Open| open.intent.after.contains_key(device);
        if self.is_lever(device) || self.ledger.open.as_ref().is_some_and(involved) {
            return;
        }
        let Some(known) = self.known(device) else { return };
        let Some(observed) = known.observed else { return };
        let drift = drift(known.owned, &observed.positions);
        let Some(seen) = self.devices.get_mut(device) else { return };
        if drift != seen.drift {
            seen.drift.clone_from(&drift);
            actions.push(Action::Note(Note::Drift(device.clone(), drift)));
        }
    }

    /// Counts the reads in which a slot saw no light that should. The first makes the daemon look
    /// again at once, here and at the far end. What a change is moving, at either end, is dark by intent.
    pub(super) fn note_darkness(&mut self, now: &Now, device: &DeviceName) {
        let limits = self.inventory.limits(device);
        let Some(seen) = self.devices.get(device) else { return };
        let Some(observed) = &seen.observed else { return };
        let owned = self.ledger.owned.get(device);
        let resting = |device: &DeviceName| {
            let involved = |open: &Open| open.intent.after.contains_key(device);
            !self.ledger.open.as_ref().is_some_and(involved)
        };
        let near_rests = resting(device);
        let stands =
            owned.into_iter().flatten().filter(|_| near_rests).filter_map(|(&slot, &to)| {
                let there = at(&observed.positions, slot) == to && !observed.tuning.contains(&slot);
                let power = *observed.power_mdbm.get(&slot).filter(|_| there)?;
                let far = self.inventory.far_end(device, slot, to)?;
                let sends = self.ledger.owned.get(&far.0).is_some_and(|p| at(p, far.1) == far.2);
                let is_dark = sends && power < limits.power_min_mdbm && resting(&far.0);
                is_dark.then(|| (slot, far.0.clone()))
            });
        let dark: BTreeMap<Slot, DeviceName> = stands.collect();
        let Some(seen) = self.devices.get_mut(device) else { return };
        seen.dark.retain(|slot, _| dark.contains_key(slot));
        for (slot, far) in dark {
            let Some(seen) = self.devices.get_mut(device) else { return };
            let (reads, _) = seen.dark.entry(slot).or_insert((0, now.mono));
            *reads = reads.saturating_add(1);
            if *reads < limits.power_samples {
                seen.next_poll = now.mono + limits.settle_poll;
                if let Some(far) = self.devices.get_mut(&far) {
                    far.next_poll = now.mono;
                }
            }
        }
    }

    /// Fibres that are known to carry no light, by the end that misses it: it has been looked at
    /// again, and the far end stands where it should or cannot be talked to.
    #[must_use]
    pub fn dark_fibres(&self) -> Vec<(FibreEnd, FibreEnd)> {
        let mut dark = Vec::new();
        for (device, seen) in self.devices.iter().filter(|(_, seen)| seen.up) {
            let sure = self.inventory.limits(device).power_samples;
            let dark_for_sure = seen.dark.iter().filter(|(_, (reads, _))| *reads >= sure);
            for (&slot, &(_, since)) in dark_for_sure {
                let to = self.ledger.owned.get(device).map_or(Position::DARK, |p| at(p, slot));
                let Some(far) = self.inventory.far_end(device, slot, to) else { continue };
                let Some(other) = self.devices.get(&far.0) else { continue };
                let faces = |seen: &Observation| at(&seen.positions, far.1) == far.2;
                let read_since = other.observed.as_ref().filter(|_| other.read_at >= since);
                if !other.up || read_since.is_some_and(faces) {
                    dark.push(((device.clone(), slot, to), far.clone()));
                }
            }
        }
        dark
    }

    /// Whether the daemon may change anything without being asked: not when it has done so
    /// [`OWN_CHANGES_MAX`] times within the last hour, for then something keeps coming and going.
    #[must_use]
    pub fn may_act_alone(&self, now: &Now) -> bool {
        let recent = |at: &&Micros| **at + OWN_CHANGES_WINDOW > now.mono;
        self.own_changes.iter().filter(recent).count() < OWN_CHANGES_MAX
    }

    pub(super) fn restore_drift(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let off = self.inventory.on_drift == OnDrift::Report;
        if off || self.busy().is_some() || !self.may_act_alone(now) {
            return;
        }
        let ours = |seen: &Seen| seen.up && seen.drift.iter().any(|d| !d.wanted.is_dark());
        let drifted = self
            .devices
            .iter()
            .filter(|(device, seen)| ours(seen) && !self.ledger.attention.contains_key(*device));
        let target: Fabric = drifted
            .filter_map(|(device, _)| {
                Some((device.clone(), self.ledger.owned.get(device)?.clone()))
            })
            .collect();
        if target.is_empty() {
            return;
        }
        self.own_not_before = now.mono + Micros::from_secs(1);
        let request = format!("drift-{}", self.ledger.last_txn.0 + 1);
        let asked = own("policy:drift", request);
        let plan_sha256 = self.ledger.plan_sha256.clone();
        let (mode, cause) = (Mode::Update, Some(Cause::Drift));
        let apply = Apply { target, mode, cause, plan_sha256, ..Default::default() };
        self.apply(now, asked, apply, actions);
    }
}

/// Whether the daemon makes this change without being asked, and not to undo something.
pub(super) fn is_own_change(actor: &str, cause: Option<&Cause>) -> bool {
    matches!(cause, Some(Cause::Bypass | Cause::Drift)) && actor.starts_with("policy:")
}

/// When a former life of the daemon last changed something without being asked, on the monotonic
/// clock of `now`; never longer ago than that clock runs.
pub(super) fn own_changes(ledger: &Ledger, now: &Now) -> VecDeque<Micros> {
    let own = |past: &&Past| is_own_change(&past.actor, Some(&past.cause));
    let own: Vec<&Past> = ledger.history.iter().rev().filter(own).take(OWN_CHANGES_MAX).collect();
    let age = |past: &&Past| Micros::from_millis(now.wall_ms.saturating_sub(past.wall_ms));
    let recent = own.iter().rev().map(age).filter(|age| *age < OWN_CHANGES_WINDOW);
    recent.map(|age| now.mono - age).collect()
}

/// Who asks when the daemon itself does.
pub(super) fn own(actor: &str, request: String) -> Asked {
    Asked { actor: actor.into(), digest: request.clone(), request }
}

fn drift(owned: &Positions, observed: &Positions) -> Vec<Drift> {
    let slots: BTreeSet<Slot> = owned.keys().chain(observed.keys()).copied().collect();
    slots
        .into_iter()
        .map(|slot| Drift { slot, wanted: at(owned, slot), observed: at(observed, slot) })
        .filter(|d| d.wanted != d.observed)
        .collect()
}
