// SPDX-License-Identifier: Apache-2.0
//! The schedule of due work: reads and time limits, without a scan of all devices for each event.
//!
//! The due time of a device usually depends only on its own evidence, and is recomputed when that
//! evidence changes. Due times that also depend on other devices are recomputed for each query.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::ledger::Ledger;
use crate::sightings::Sightings;
use crate::state::{DeviceName, Micros};

#[derive(Clone, Default)]
pub struct Schedule {
    times: BTreeMap<DeviceName, Micros>,
    due: BTreeSet<(Micros, DeviceName)>,
    overdue: BTreeSet<DeviceName>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schedule")
    }
}

impl Schedule {
    pub(crate) fn update(&mut self, sightings: &mut Sightings, ledger: &Ledger) {
        for device in sightings.take_changed() {
            let Some(seen) = sightings.devices().get(&device) else { continue };
            let due = match seen.is_overdue() {
                true => None,
                false => sightings.due_at(&device, seen, ledger),
            };
            match seen.is_overdue() {
                true => _ = self.overdue.insert(device.clone()),
                false => _ = self.overdue.remove(&device),
            }
            self.put(device, due);
        }
    }

    fn put(&mut self, device: DeviceName, due: Option<Micros>) {
        let before = self.times.get(&device).copied();
        if before == due {
            return;
        }
        if let Some(at) = before {
            self.due.remove(&(at, device.clone()));
        }
        match due {
            Some(at) => {
                self.due.insert((at, device.clone()));
                self.times.insert(device, at);
            }
            None => _ = self.times.remove(&device),
        }
    }

    pub(crate) fn first_due(&self, sightings: &Sightings, ledger: &Ledger) -> Option<Micros> {
        let known = self.due.iter().find(|(_, device)| !sightings.is_changed(device));
        let changed = sightings.with_changed(&self.overdue);
        let others = changed.filter_map(|(device, seen)| sightings.due_at(device, seen, ledger));
        others.chain(known.map(|(at, _)| *at)).min()
    }

    pub(crate) fn all_due(
        &self,
        now: Micros,
        sightings: &Sightings,
        ledger: &Ledger,
    ) -> Vec<DeviceName> {
        let known = self.due.iter().take_while(|(at, _)| *at <= now);
        let others = sightings.with_changed(&self.overdue).filter(|(device, seen)| {
            sightings.due_at(device, seen, ledger).is_some_and(|at| at <= now)
        });
        let all: BTreeSet<&DeviceName> =
            known.map(|(_, device)| device).chain(others.map(|(device, _)| device)).collect();
        all.into_iter().cloned().collect()
    }
}
