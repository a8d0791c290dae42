// SPDX-License-Identifier: Apache-2.0
//! Fibres of the world, and the delivery of commands and replies.

use super::*;

impl World {
    // ---- devices -------------------------------------------------------------------------------

    pub(super) fn up(&mut self, device: DeviceName) {
        self.light_changed = true;
        if self.devices[&device].is_gone(self.now.mono) {
            let life = self.life;
            self.at(Micros::from_secs(1), Happening::Up { life, device: device.clone() });
            if self.disconnected.insert(device.clone()) {
                self.handle(Event::Unreachable(device, "no answer to a hello".into()));
            }
            return;
        }
        self.disconnected.remove(&device);
        self.handle(Event::Reachable(device));
    }

    pub(crate) fn cut(&mut self, end: &FibreEnd, cut: bool) {
        let far = self.inventory.fibres[end].clone();
        for end in [end.clone(), far] {
            if cut {
                self.cut.insert(end);
            } else if self.cut.remove(&end) {
                self.mended.insert(end, self.now.mono);
            }
        }
        self.counts.cuts += u64::from(cut);
    }

    /// Cuts the fibre in one direction: only this end loses its light.
    pub(crate) fn cut_towards(&mut self, end: &FibreEnd) {
        self.cut.insert(end.clone());
        self.counts.cuts += 1;
    }

    pub(crate) fn swap(&mut self, one: &FibreEnd, other: &FibreEnd) {
        let [far, other_far] = [one, other].map(|end| self.cables[end].clone());
        let joined = [(one, &other_far), (other, &far)];
        for (near, far) in joined {
            self.cables.insert(near.clone(), far.clone());
            self.cables.insert(far.clone(), near.clone());
        }
    }

    pub(super) fn neighbours(
        &self,
        device: &DeviceName,
        unlit: &BTreeSet<Slot>,
    ) -> BTreeMap<Slot, String> {
        let lit = self.devices[device].positions.iter().filter(|(slot, _)| !unlit.contains(slot));
        let named = lit.filter_map(|(&slot, &to)| {
            let far = self.cables.get(&(device.clone(), slot, to))?;
            Some((slot, end_name(far)))
        });
        named.collect()
    }

    /// Returns the slots without light, because the far end selects another fibre, has failed or
    /// has just been switched, or because the fibre is cut.
    pub(super) fn unlit(&self, device: &DeviceName) -> BTreeSet<Slot> {
        let now = self.now.mono;
        let arrives = |slot: Slot, to: Position| {
            let end = (device.clone(), slot, to);
            let Some((far, far_slot, far_to)) = self.cables.get(&end) else {
                return true;
            };
            let model = &self.devices[far];
            at(&model.positions, *far_slot) == *far_to
                && !model.is_gone(now)
                && !model.shut.contains(far_slot)
                && self.lit_from.get(far).is_none_or(|from| *from <= now)
                && !self.cut.contains(&end)
        };
        let positions = self.devices[device].positions.iter();
        positions.filter(|(slot, to)| !arrives(**slot, **to)).map(|(slot, _)| *slot).collect()
    }

    pub(super) fn send(&mut self, device: DeviceName, ticket: Ticket, op: Op) {
        self.check_send(&device, &op);
        let life = self.life;
        let faults = *self.faults_of.get(&device).unwrap_or(&self.faults);
        let fate = faults.fate(&mut self.rng, &op);
        self.last_op.insert((device.clone(), ticket), op.clone());
        if matches!(op, Op::Switch { .. }) {
            self.counts.switches += 1;
        }
        if !fate.reply {
            self.erred.insert(device.clone(), self.now.mono);
        }
        self.note(|| format!("send {device} {op:?} fate {fate:?}"));
        if self.disconnected.contains(&device) {
            let outcome = Outcome::Unknown("not connected".into());
            return self.at(Micros(20), Happening::Reply { life, device, ticket, outcome });
        }
        if let Some(after) = fate.execute_after {
            let (reply, late) = (fate.reply, after >= Micros::from_millis(1000));
            self.at(after, Happening::Execute { life, device, ticket, op, reply, late });
        }
    }

    pub(super) fn execute(
        &mut self,
        life: u32,
        device: DeviceName,
        ticket: Ticket,
        op: &Op,
        reply: bool,
    ) {
        let unlit = self.unlit(&device);
        let neighbours = self.neighbours(&device, &unlit);
        let Some(model) = self.devices.get_mut(&device) else { return };
        if let Some(reboot) = self.reboots.as_mut().filter(|reboot| reboot.device == device) {
            reboot.operation = reboot.operation.saturating_sub(1);
            if reboot.operation == 0 {
                model.reboot(self.now.mono + reboot.boot, reboot.keeps);
                self.reboots = None;
            }
        }
        if model.is_gone(self.now.mono) {
            return;
        }
        if matches!(op, Op::Switch { .. }) {
            self.light_changed = true;
            self.switched_at.insert(device.clone(), self.now.mono);
        }
        let faults = *self.faults_of.get(&device).unwrap_or(&self.faults);
        (model.unlit, model.neighbours) = (unlit, neighbours);
        let outcome = model.execute(op, &faults, &mut self.rng);
        if std::mem::take(&mut model.erred) {
            self.erred.insert(device.clone(), self.now.mono);
        }
        if matches!(op, Op::Switch { .. }) && self.settles_within > Micros::default() {
            let settled = Micros(self.rng.random_range(0..self.settles_within.0));
            self.lit_from.insert(device.clone(), self.now.mono + settled);
        }
        let line = || format!("{device} does {op:?}: {outcome:?}");
        self.note(line);
        if reply {
            let after = Micros(self.rng.random_range(20..200));
            self.at(after, Happening::Reply { life, device, ticket, outcome });
        }
    }

    pub(super) fn reply(&mut self, device: DeviceName, ticket: Ticket, outcome: Outcome) {
        if let Some(Op::Observe { .. } | Op::Arm { .. }) =
            self.last_op.remove(&(device.clone(), ticket))
            && matches!(outcome, Outcome::Done(Some(_)))
        {
            self.unread.remove(&device);
        }
        self.handle(Event::Reply { device, ticket, outcome });
    }
}
