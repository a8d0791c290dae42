// SPDX-License-Identifier: Apache-2.0
//! Detects drift, which the policy may correct, and light from an unexpected end.

use std::collections::BTreeSet;

use super::{Action, Apply, Controller, Drift, Note, Seen};
use crate::actor::Policy;
use crate::change::Mode;
use crate::drive::Site;
use crate::inventory::OnDrift;
use crate::record::{Asked, Cause, Record};
use crate::state::{
    DeviceName, FibreEnd, Micros, Neighbours, Now, Positions, Slot, SwitchState, at,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossed {
    pub end: FibreEnd,
    pub lit_by: String,
    pub should_be: FibreEnd,
}

#[derive(Clone, Debug, Default)]
pub struct Planned {
    pub plan_sha256: String,
    pub positions: SwitchState,
}

impl Controller {
    pub fn plans(&mut self, planned: Planned) {
        self.planned = planned;
    }

    #[must_use]
    pub fn planned(&self, device: &DeviceName) -> &Positions {
        static NOTHING: Positions = Positions::new();
        let known = self.planned.plan_sha256 == self.ledger.plan_sha256;
        self.planned.positions.get(device).filter(|_| known).unwrap_or(&NOTHING)
    }

    #[must_use]
    pub fn wanted(&self, device: &DeviceName) -> Positions {
        let mut wanted = self.ledger.owned.get(device).cloned().unwrap_or_default();
        wanted.extend(self.planned(device));
        wanted
    }

    #[must_use]
    pub fn taken_by_adopting(&self, devices: &[DeviceName]) -> Vec<(DeviceName, Drift)> {
        let of = |device: &DeviceName| {
            let known = self.known(device)?;
            let read = &known.observed?.positions;
            let planned = self.planned(device).iter();
            let taken = planned.filter(|(slot, wanted)| at(known.owned, **slot) == **wanted);
            let taken =
                taken.map(|(&slot, &wanted)| Drift { slot, wanted, observed: at(read, slot) });
            Some(taken.filter(|drift| drift.wanted != drift.observed).collect::<Vec<_>>())
        };
        let all = devices.iter().filter_map(|device| Some((device, of(device)?)));
        all.flat_map(|(device, taken)| taken.into_iter().map(|drift| (device.clone(), drift)))
            .collect()
    }

    fn take_planned(&mut self, device: &DeviceName, actions: &mut Vec<Action>) {
        let ledger = &self.ledger;
        let left = ledger.attention.contains_key(device) || ledger.deferred.contains_key(device);
        if self.only_reads || left || ledger.open.is_some() {
            return;
        }
        let Some(known) = self.known(device) else { return };
        let Some(read) = known.observed else { return };
        let planned = self.planned(device).iter().filter(|(slot, wanted)| {
            at(&read.positions, **slot) == **wanted && at(known.owned, **slot) != **wanted
        });
        let planned: Positions = planned.map(|(slot, wanted)| (*slot, *wanted)).collect();
        if planned.is_empty() {
            return;
        }
        let mut owned = known.owned.clone();
        owned.extend(planned);
        let asked = own(Policy::Drift, format!("planned-{}-{device}", ledger.version));
        let positions = [(device.clone(), owned)].into();
        self.append(Record::Adopted { asked, positions, wall_ms: 0 }, actions);
    }

    /// Returns the ends of a device that receive light from the wrong end. Empty while the device
    /// moves or is unreachable. Each read rechecks wrong names; correct names may be up to
    /// [`crate::state::NEIGHBOURS_EVERY`] reads old.
    #[must_use]
    pub fn crossed(&self, device: &DeviceName) -> Vec<Crossed> {
        let seen = self.devices.get(device).filter(|seen| seen.up && !self.is_moving(device));
        let Some(read) = seen.and_then(|seen| seen.observed.as_ref()) else { return Vec::new() };
        let settled = read.neighbours.iter().filter(|(slot, _)| !read.tuning.contains(slot));
        let crossed = settled.filter_map(|(&slot, lit_by)| {
            let end = (device.clone(), slot, at(&read.positions, slot));
            let should_be = self.inventory.far_end(&end.0, slot, end.2)?;
            let crossed = *lit_by != end_name(should_be);
            crossed.then(|| Crossed { end, lit_by: lit_by.clone(), should_be: should_be.clone() })
        });
        crossed.collect()
    }

    pub(super) fn note_crossed(&mut self, device: &DeviceName, actions: &mut Vec<Action>) {
        let crossed = self.crossed(device);
        let moving = self.is_moving(device);
        let Some(seen) = self.devices.get_mut(device).filter(|_| !moving) else { return };
        if crossed != seen.crossed {
            seen.crossed.clone_from(&crossed);
            actions.push(Action::Note(Note::Crossed(device.clone(), crossed)));
        }
    }

    /// Returns whether the next read requests the neighbours. It does so after a wrong neighbour,
    /// to notice the repair early, and if light is missing at the other end of a fibre. If the node
    /// may have failed, it requests only the status, which has the shortest promised reply time.
    pub(super) fn asks_for_neighbours(&mut self, device: &DeviceName) -> Neighbours {
        let Some(seen) = self.devices.get_mut(device) else { return Neighbours::Usual };
        if seen.signalled.is_suspected() {
            return Neighbours::Never;
        }
        match std::mem::take(&mut seen.missed_opposite) || !seen.crossed.is_empty() {
            true => Neighbours::Always,
            false => Neighbours::Usual,
        }
    }

    pub(super) fn note_drift(&mut self, device: &DeviceName, actions: &mut Vec<Action>) {
        if self.is_lever(device) || self.is_moving(device) {
            return;
        }
        self.take_planned(device, actions);
        let Some(known) = self.known(device) else { return };
        let Some(observed) = known.observed else { return };
        let mut drift = drift(known.owned, &observed.positions);
        let planned = self.planned(device);
        // The default path of a module is loopback, where it does not light any other module.
        let rests = |drift: &Drift| {
            self.ledger.version > 0 && drift.wanted.is_dark() && !device.leads_out(drift.observed)
        };
        drift.retain(|drift| planned.get(&drift.slot) != Some(&drift.observed) && !rests(drift));
        let Some(seen) = self.devices.get_mut(device) else { return };
        if drift != seen.drift {
            seen.drift.clone_from(&drift);
            actions.push(Action::Note(Note::Drift(device.clone(), drift)));
        }
    }

    pub(super) fn restore_drift(&mut self, now: &Now, actions: &mut Vec<Action>) {
        let off = self.inventory.on_drift == OnDrift::Report;
        if off || self.busy(now).is_some() || !self.may_act_alone(now) {
            return;
        }
        let drifted = self
            .devices
            .iter()
            .filter(|(device, seen)| is_ours(seen) && !self.ledger.attention.contains_key(*device))
            .filter(|(device, _)| self.may_restore(device, now));
        let target: SwitchState = drifted
            .filter_map(|(device, _)| {
                Some((device.clone(), self.ledger.owned.get(device)?.clone()))
            })
            .collect();
        if target.is_empty() {
            return;
        }
        self.own_not_before = now.mono + Micros::from_secs(1);
        let request = format!("drift-{}", self.ledger.last_txn.0 + 1);
        let apply = self.put_back(target);
        self.apply(now, own(Policy::Drift, request), apply, actions);
    }

    fn put_back(&self, target: SwitchState) -> Apply {
        let plan_sha256 = self.ledger.plan_sha256.clone();
        let (mode, cause) = (Mode::Update, Some(Cause::Drift));
        Apply { target, mode, cause, plan_sha256, ..Default::default() }
    }

    pub fn way_home(&self) -> Result<Apply, Vec<String>> {
        let answers =
            self.devices.iter().filter(|(device, seen)| seen.up && !self.is_lever(device));
        let mut is_foreign = false;
        let target = answers.filter_map(|(device, seen)| {
            let (wanted, read) = (self.wanted(device), seen.observed.as_ref()?);
            let elsewhere = drift(&wanted, &read.positions);
            is_foreign |= !elsewhere.is_empty();
            let is_ours = elsewhere.iter().any(|drift| !drift.wanted.is_dark());
            is_ours.then(|| (device.clone(), wanted))
        });
        let target: SwitchState = target.collect();
        if target.is_empty() && is_foreign {
            let why = "no reachable device is missing a circuit that the daemon set; foreign circuits are \
                not restored";
            return Err(vec![why.into()]);
        }
        Ok(self.put_back(target))
    }

    #[must_use]
    pub fn has_restarted(&self, device: &DeviceName) -> bool {
        let seen = self.devices.get(device).filter(|seen| is_ours(seen));
        seen.and_then(|seen| seen.observed.as_ref()?.generation) == Some(0)
    }
}

#[must_use]
pub fn end_name((device, _, position): &FibreEnd) -> String {
    format!("{device}.{}", position.0)
}

fn is_ours(seen: &Seen) -> bool {
    seen.up && seen.drift.iter().any(|d| !d.wanted.is_dark())
}

pub(crate) fn own(policy: Policy, request: String) -> Asked {
    Asked { actor: policy.into(), digest: request.clone(), request }
}

fn drift(owned: &Positions, observed: &Positions) -> Vec<Drift> {
    let slots: BTreeSet<Slot> = owned.keys().chain(observed.keys()).copied().collect();
    slots
        .into_iter()
        .map(|slot| Drift { slot, wanted: at(owned, slot), observed: at(observed, slot) })
        .filter(|d| d.wanted != d.observed)
        .collect()
}
