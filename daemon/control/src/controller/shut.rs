// SPDX-License-Identifier: Apache-2.0
//! Handles ports that were shut down. They report that they send no light, which is not a fault.

use super::Controller;
use crate::drive::Site;
use crate::state::{DeviceName, FibreEnd, Micros, Now, Observation, Shut, Slot};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShutEnd {
    pub end: FibreEnd,
    pub far: FibreEnd,
    pub why: Shut,
    pub since: Micros,
}

impl Controller {
    pub(super) fn note_shut(&mut self, now: &Now, device: &DeviceName, read: &Observation) {
        let Some(seen) = self.devices.get_mut(device) else { return };
        let was = std::mem::take(&mut seen.shut);
        let since = |slot: &Slot, why: Shut| {
            let known = was.get(slot).filter(|(was, _)| *was == why);
            known.map_or(now.mono, |(_, since)| *since)
        };
        seen.shut =
            read.shut.iter().map(|(slot, why)| (*slot, (*why, since(slot, *why)))).collect();
    }

    pub(super) fn is_shut(&self, device: &DeviceName, slot: Slot) -> bool {
        self.devices.get(device).is_some_and(|seen| seen.shut.contains_key(&slot))
    }

    #[must_use]
    pub fn shut_ends(&self) -> Vec<ShutEnd> {
        let up = self.devices.iter().filter(|(_, seen)| seen.up);
        let shut = up.flat_map(|(device, seen)| {
            let slots = seen.shut.iter();
            slots.map(move |(slot, (why, since))| (device, *slot, *why, *since))
        });
        let ends = shut.filter_map(|(device, slot, why, since)| {
            let to = *self.ledger.owned.get(device)?.get(&slot)?;
            let far = self.inventory.far_end(device, slot, to)?.clone();
            Some(ShutEnd { end: (device.clone(), slot, to), far, why, since })
        });
        ends.collect()
    }
}
