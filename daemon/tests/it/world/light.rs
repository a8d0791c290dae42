// SPDX-License-Identifier: Apache-2.0
//! Simulates the reports of modules about loss and return of light. A report arrives after debounce
//! and transmission, and sometimes only when it is repeated.

use std::collections::BTreeSet;

use lightloom_control::controller::{Event, Signal};
use lightloom_control::state::{DeviceName, Micros, Slot, at};
use rand::RngExt;

use super::{Happening, World};

const ARRIVES_AFTER: std::ops::Range<u64> = 400..1_500;
const AGAIN_AFTER: std::ops::Range<u64> = 10_000..70_000;
const LOST: f64 = 0.05;

impl World {
    pub(super) fn report_light(&mut self) {
        let reports = |device: &DeviceName| {
            self.inventory.devices.get(device).is_some_and(|d| d.limits.status_within.0 > 0)
        };
        let names: Vec<DeviceName> =
            self.devices.keys().filter(|device| reports(device)).cloned().collect();
        for device in names {
            let unlit = self.unlit(&device);
            let before = self.unlit_before.insert(device.clone(), unlit.clone());
            let before = before.unwrap_or_default();
            for slot in before.symmetric_difference(&unlit).copied().collect::<BTreeSet<Slot>>() {
                let life = self.life;
                let after = match self.rng.random_bool(LOST) {
                    true => AGAIN_AFTER,
                    false => ARRIVES_AFTER,
                };
                let after = Micros(self.rng.random_range(after));
                self.at(after, Happening::Signal { life, device: device.clone(), slot });
            }
        }
    }

    pub(super) fn signal(&mut self, device: DeviceName, slot: Slot) {
        let model = &self.devices[&device];
        if model.is_gone(self.now.mono) || self.disconnected.contains(&device) {
            return;
        }
        let position = at(&model.positions, slot);
        let signal = match self.unlit(&device).contains(&slot) {
            true => Signal::LightLost(slot, position),
            false => Signal::LightBack(slot),
        };
        self.counts.signals += 1;
        self.note(|| format!("{device} reports {signal:?}"));
        self.handle(Event::Signalled(device, signal));
    }
}
