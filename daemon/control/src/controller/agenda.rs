// SPDX-License-Identifier: Apache-2.0
//! An agenda of due reads, which avoids a scan of all devices after each event.
//!
//! The due time of a read usually depends on a single device, and is recomputed when that device
//! changes. Due times that also depend on other devices are recomputed for each query.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use super::{Controller, Seen};
use crate::state::{DeviceName, Micros};

#[derive(Clone)]
pub(super) struct Devices {
    all: BTreeMap<DeviceName, Seen>,
    changed: BTreeSet<DeviceName>,
    due: BTreeSet<(Micros, DeviceName)>,
    places: BTreeMap<DeviceName, Place>,
    dark: BTreeSet<DeviceName>,
    down: BTreeSet<DeviceName>,
    entangled: BTreeSet<DeviceName>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    due: Option<Micros>,
    is_dark: bool,
    is_down: bool,
    is_entangled: bool,
}

impl Deref for Devices {
    type Target = BTreeMap<DeviceName, Seen>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl std::fmt::Debug for Devices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.all.fmt(f)
    }
}

impl Devices {
    pub(super) fn new(all: BTreeMap<DeviceName, Seen>) -> Self {
        let changed = all.keys().cloned().collect();
        let (places, due) = (BTreeMap::new(), BTreeSet::new());
        let [dark, down, entangled] = [const { BTreeSet::new() }; 3];
        Self { all, changed, due, places, dark, down, entangled }
    }

    pub(super) fn get_mut(&mut self, device: &DeviceName) -> Option<&mut Seen> {
        let seen = self.all.get_mut(device)?;
        if !self.changed.contains(device) {
            self.changed.insert(device.clone());
        }
        Some(seen)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Seen> {
        self.changed.extend(self.all.keys().cloned());
        self.all.values_mut()
    }

    pub(super) fn is_changed(&mut self, device: &DeviceName) {
        self.get_mut(device);
    }

    fn put(&mut self, device: DeviceName, place: Place) {
        let before = self.places.insert(device.clone(), place).unwrap_or_default();
        if before.due != place.due {
            if let Some(at) = before.due {
                self.due.remove(&(at, device.clone()));
            }
            self.due.extend(place.due.map(|at| (at, device.clone())));
        }
        let sets = [
            (&mut self.dark, before.is_dark, place.is_dark),
            (&mut self.down, before.is_down, place.is_down),
            (&mut self.entangled, before.is_entangled, place.is_entangled),
        ];
        for (set, was, is) in sets {
            match (was, is) {
                (false, true) => _ = set.insert(device.clone()),
                (true, false) => _ = set.remove(&device),
                _ => {}
            }
        }
    }

    fn with_changed<'a>(
        &'a self,
        known: &'a BTreeSet<DeviceName>,
    ) -> impl Iterator<Item = (&'a DeviceName, &'a Seen)> {
        known.union(&self.changed).filter_map(|device| self.all.get_key_value(device))
    }

    pub(super) fn dark(&self) -> impl Iterator<Item = (&DeviceName, &Seen)> {
        self.with_changed(&self.dark).filter(|(_, seen)| !seen.dark.is_empty())
    }

    pub(super) fn down(&self) -> impl Iterator<Item = (&DeviceName, &Seen)> {
        self.with_changed(&self.down).filter(|(_, seen)| !seen.up)
    }
}

impl Controller {
    pub(super) fn settle_agenda(&mut self) {
        for device in std::mem::take(&mut self.devices.changed) {
            let Some(seen) = self.devices.get(&device) else { continue };
            let is_entangled = seen.is_entangled();
            let place = Place {
                due: if is_entangled { None } else { self.read_due(&device, seen) },
                is_dark: !seen.dark.is_empty(),
                is_down: !seen.up,
                is_entangled,
            };
            if self.devices.places.get(&device) != Some(&place) {
                self.devices.put(device, place);
            }
        }
    }

    fn read_due(&self, device: &DeviceName, seen: &Seen) -> Option<Micros> {
        let poll = self.may_be_asked(device, seen).then_some(seen.next_poll);
        self.due_at(device, seen).into_iter().chain(poll).min()
    }

    pub(super) fn first_due(&self) -> Option<Micros> {
        let Self { devices, .. } = self;
        let known = devices.due.iter().find(|(_, device)| !devices.changed.contains(device));
        let others = devices.with_changed(&devices.entangled);
        let others = others.filter_map(|(device, seen)| self.read_due(device, seen));
        others.chain(known.map(|(at, _)| *at)).min()
    }

    pub(super) fn all_due(&self, now: Micros) -> Vec<DeviceName> {
        let known = self.devices.due.iter().take_while(|(at, _)| *at <= now);
        let others = self.devices.with_changed(&self.devices.entangled);
        let is_due = |device: &DeviceName, seen: &Seen| {
            self.read_due(device, seen).is_some_and(|at| at <= now)
        };
        let others = others.filter(|(device, seen)| is_due(device, seen));
        let all: BTreeSet<&DeviceName> =
            known.map(|(_, device)| device).chain(others.map(|(device, _)| device)).collect();
        all.into_iter().cloned().collect()
    }
}

impl Seen {
    fn is_entangled(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|f| f.is_late || f.unanswered.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{Event, Signal, Ticket};
    use crate::inventory::{Device, Inventory};
    use crate::ledger::Ledger;
    use crate::management::Trouble;
    use crate::mover::{Follows, Promise};
    use crate::record::{Asked, Record};
    use crate::state::{Now, Observation, Outcome, Position, Sharing, Slot};
    use lightloom_units::seed::Seed;
    use rand::RngExt;

    fn ring(nodes: u32) -> (Controller, Vec<DeviceName>) {
        let name = |node: u32, bundle: u32| -> DeviceName {
            format!("n{}/b{bundle}", node % nodes).as_str().into()
        };
        let names: Vec<DeviceName> =
            (0..nodes).flat_map(|node| [name(node, 0), name(node, 1)]).collect();
        let follows =
            Follows { bits_per_second: 921_600, reply_written: false, settle_written: false };
        let device = Device { follows: Some(follows), ..Device::new(Sharing::Independent) };
        let mut inventory = Inventory {
            devices: names.iter().map(|name| (name.clone(), device.clone())).collect(),
            poll_every: Micros::from_millis(40),
            ..Inventory::default()
        };
        let end = |name: DeviceName| (name, Slot(0), Position(1));
        for (a, b) in (0..nodes).map(|node| (end(name(node, 1)), end(name(node + 1, 0)))) {
            inventory.fibres.extend([(a.clone(), b.clone()), (b, a)]);
        }
        let positions = names.iter().map(|name| (name.clone(), [(Slot(0), Position(1))].into()));
        let asked = Asked { actor: "alice".into(), request: "a".into(), digest: "a".into() };
        let record = Record::Adopted { asked, positions: positions.collect(), wall_ms: 0 };
        let now = Now { mono: Micros(0), wall_ms: 0, boot: "1".into() };
        (Controller::start(inventory, Ledger::fold([&record]), &now).0, names)
    }

    #[test]
    fn agenda_matches_a_scan_of_all_devices() {
        let mut entangled = 0;
        for seed in 0..40 {
            let (mut controller, names) = ring(6);
            let mut draws = Seed(seed).stream("agenda", 0);
            let mut now = Now { mono: Micros(0), wall_ms: 0, boot: "1".into() };
            for step in 0..600_u64 {
                now.mono = now.mono + Micros(draws.random_range(0..4_000));
                let device = names[draws.random_range(0..names.len())].clone();
                let flight = controller.devices[&device].in_flight.as_ref().map(|f| f.ticket);
                let power = if draws.random_bool(0.7) { -3_000 } else { -40_000 };
                let read = Observation {
                    positions: [(Slot(0), Position(1))].into(),
                    power_mdbm: [(Slot(0), power)].into(),
                    ..Observation::default()
                };
                let answer = Some(Micros(300));
                let (commit, settle, dwell) = (Micros(1_000), Micros(30), Micros(0));
                let promise =
                    Promise { commit, settle, dwell, answer, goes: true, refuses_late: false };
                let event = match draws.random_range(0..16) {
                    0 => Event::Down(device, Trouble::from("gone")),
                    1 => Event::Promised(device, promise),
                    2 => Event::Signalled(device, Signal::LightLost(Slot(0), Position(1))),
                    3 => Event::Signalled(device, Signal::LightBack(Slot(0))),
                    4 => Event::Occupied(device, step % 2 == 0),
                    5 | 6 => Event::Tick,
                    7 => {
                        controller.ask_all(&now);
                        Event::Tick
                    }
                    8..=10 => Event::Up(device),
                    _ => Event::Reply {
                        device,
                        ticket: flight.unwrap_or(Ticket(0)),
                        outcome: Outcome::Done(Some(read)),
                    },
                };
                controller.handle(&now, event);
                let all = || controller.devices.iter();
                let walked = all().filter_map(|(name, seen)| controller.read_due(name, seen)).min();
                assert_eq!(controller.first_due(), walked, "seed {seed}, step {step}");
                let due = |(name, seen): &(&DeviceName, &Seen)| {
                    controller.read_due(name, seen).is_some_and(|at| at <= now.mono)
                };
                let walked: Vec<_> = all().filter(due).map(|(name, _)| name.clone()).collect();
                assert_eq!(controller.all_due(now.mono), walked, "seed {seed}, step {step}");
                let dark = all().filter(|(_, seen)| !seen.dark.is_empty()).map(|(name, _)| name);
                assert!(controller.devices.dark().map(|(name, _)| name).eq(dark));
                let down = all().filter(|(_, seen)| !seen.up).map(|(name, _)| name);
                assert!(controller.devices.down().map(|(name, _)| name).eq(down));
                entangled += controller.devices.entangled.len();
            }
        }
        assert!(entangled > 100, "the runs include late answers: {entangled}");
    }
}
