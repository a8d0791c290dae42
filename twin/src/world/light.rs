// SPDX-License-Identifier: Apache-2.0
//! Determines the actual light of every device and compares it with the ledger.

use std::collections::BTreeSet;

use lightloom_control::desired;
use lightloom_control::state::{DeviceName, Position, Positions, Slot, at};
use lightloom_devices::AnyDevice;
use lightloom_emulator::shipped::Happened;
use lightloom_fabric::khop::Path;
use lightloom_units::SimTime;

use super::{World, WorldEvent};
use crate::setup::Installed;

impl World {
    pub(super) fn see(&mut self, index: usize) {
        let slot = self.devices[index].slot;
        let (_, AnyDevice::Transceiver(module)) = self.rack.device(slot) else {
            return self.see_switch(index);
        };
        let Installed::Module(bundle) = self.devices[index].installed else { return };
        let light = self.devices[index].light;
        let module = module.device();
        let path = module.true_path(self.now, 0).filter(|_| module.shines());
        let path = path.and_then(|path| match path.code() {
            1 => Some(Path::External1),
            2 => Some(Path::External2),
            15 => Some(Path::Loopback),
            _ => None,
        });
        let rests = module.rests_at(self.now, 0);
        self.look_again(index, rests);
        if path != light {
            self.devices[index].light = path;
            self.happened.push((self.now, Happened::Light(bundle, path)));
        }
    }

    fn see_switch(&mut self, index: usize) {
        let slot = self.devices[index].slot;
        let Some(light) = self.rack.device(slot).1.passes(self.now) else { return };
        self.look_again(index, light.more_at);
        if light.pairs != self.devices[index].passes {
            self.devices[index].passes = light.pairs;
            self.happened.extend(self.passes(index));
        }
    }

    fn passes(&self, index: usize) -> Option<(SimTime, Happened)> {
        let Installed::Switch(ocs, ports) = self.devices[index].installed else { return None };
        let ways: BTreeSet<(u32, u32)> = self.devices[index]
            .passes
            .iter()
            .map(|&(input, output)| (u32::from(input), u32::from(output)))
            .collect();
        let both =
            ways.iter().map(|&(input, output)| (input - ports.input(0), output - ports.output(0)));
        let both = both
            .filter(|(a, b)| a < b && ways.contains(&(ports.input(*b), ports.output(*a))))
            .collect();
        Some((self.now, Happened::Passes(ocs, both)))
    }

    pub(super) fn shows_light(&mut self) {
        let passes: Vec<_> =
            (0..self.devices.len()).filter_map(|index| self.passes(index)).collect();
        self.happened.extend(passes);
    }

    fn look_again(&mut self, index: usize, rests: Option<SimTime>) {
        let Some(rests) = rests else { return };
        if self.devices[index].wakes_at.is_none_or(|at| rests < at) {
            self.devices[index].wakes_at = Some(rests);
            self.at(rests, WorldEvent::Rests(index));
        }
    }

    pub(super) fn truth(&self, index: usize) -> Option<Positions> {
        let device = &self.devices[index];
        if let Installed::Module(_) = device.installed {
            return Some([(Slot(0), desired::position(device.light?))].into());
        }
        let ways = device.passes.iter();
        Some(ways.map(|&(input, output)| (Slot(input.into()), Position(output.into()))).collect())
    }

    /// Checks I2: settled light must match the ledger unless the device is listed as needing attention.
    pub(super) fn at_rest(&self, is_meant: impl Fn(&DeviceName) -> bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let Some(control) = self.daemon.control.as_ref().filter(|_| !self.daemon.is_busy()) else {
            return wrong;
        };
        let controller = control.controller();
        for (name, &index) in self.by_name.iter().filter(|(name, _)| is_meant(name)) {
            let seen = &controller.sightings().devices()[name];
            let listed = controller.ledger().attention.contains_key(name)
                || !seen.drift().is_empty()
                || !seen.is_reachable();
            let (Some(light), false) = (self.truth(index), listed) else { continue };
            let dark = Positions::new();
            let owned = controller.ledger().owned.get(name).unwrap_or(&dark);
            let slots: BTreeSet<Slot> = light.keys().chain(owned.keys()).copied().collect();
            if let Some(slot) = slots.into_iter().find(|slot| at(&light, *slot) != at(owned, *slot))
            {
                let (rests, owned) = (at(&light, slot), at(owned, slot));
                wrong.push(format!(
                    "I2: {name} slot {slot} rests at {rests}, but the ledger contains {owned}"
                ));
            }
        }
        wrong
    }
}
