// SPDX-License-Identifier: Apache-2.0
//! Translates a scenario's faults to faults of devices, the daemon and its disk.

use lightloom_devices::{DeviceFault, RackSlot};
use lightloom_emulator::scenario::Effect;
use lightloom_fabric::fault::Part;
use lightloom_units::id::{NodeId, OcsId};

use super::World;
use crate::setup::Installed;

/// Power entering a port, in dBm: without light, and with normal light.
const DARK_DBM: f64 = -60.0;
const LIT_DBM: f64 = -3.0;

impl World {
    /// If `towards` is set, only light that arrives at this node fails.
    pub(super) fn faults_of(
        &self,
        part: Part,
        effect: &Effect,
        towards: Option<NodeId>,
    ) -> Vec<(RackSlot, DeviceFault)> {
        if let Some(node) = towards {
            return self.dark_towards(part, node);
        }
        let fault = match effect {
            Effect::Down | Effect::Flapping(_) => DeviceFault::Dead,
            Effect::Stuck => DeviceFault::Stuck(None),
            Effect::Lies => DeviceFault::Lie,
            Effect::Late(by) => DeviceFault::Late(by.0),
            _ => return Vec::new(),
        };
        match part {
            Part::Node(node) => {
                let slots = self.rack.slots_of(&node.to_string()).into_iter();
                slots.map(|slot| (slot, fault)).collect()
            }
            Part::Bundle(bundle) => {
                let slot = self.rack.slot(&bundle.to_string());
                slot.map(|slot| (slot, fault)).into_iter().collect()
            }
            Part::Fibre(port) => {
                let ends = [Some(port), self.fabric.hbd.peer(port)].into_iter().flatten();
                let unplugged = ends.filter_map(|end| {
                    let slot = self.rack.slot(&end.bundle.to_string())?;
                    Some((slot, DeviceFault::Unplug(end.path)))
                });
                unplugged.collect()
            }
            Part::Ocs(ocs) => {
                let slot = self.rack.slot(&ocs.to_string());
                slot.map(|slot| (slot, fault)).into_iter().collect()
            }
            // These faults affect only the light at the port (see `shine`).
            Part::OcsPort(_) | Part::Uplink(_) => Vec::new(),
        }
    }

    fn dark_towards(&self, part: Part, node: NodeId) -> Vec<(RackSlot, DeviceFault)> {
        let hbd = &self.fabric.hbd;
        let fibres = hbd.fibres().map(|fibre| hbd.ports(fibre));
        let of = fibres.map(|(a, b)| [a, b]).filter(|ends| {
            ends.iter().any(|port| match part {
                Part::Node(node) => port.bundle.node == node,
                Part::Bundle(bundle) => port.bundle == bundle,
                Part::Fibre(fibre) => *port == fibre,
                Part::Ocs(_) | Part::OcsPort(_) | Part::Uplink(_) => false,
            })
        });
        let arrives = of.flatten().filter(|port| port.bundle.node == node);
        let dark = arrives.filter_map(|port| {
            let slot = self.rack.slot(&port.bundle.to_string())?;
            Some((slot, DeviceFault::Dark(port.path)))
        });
        dark.collect()
    }

    pub(super) fn shine(&mut self, ports: &[(OcsId, u32)], effect: &Effect, begins: bool) {
        for &(ocs, port) in ports {
            let Some(slot) = self.rack.slot(&ocs.to_string()) else { continue };
            let Installed::Switch(_, numbers) = self.devices[self.by_slot[&slot]].installed else {
                continue;
            };
            let input = numbers.input(port) as u16;
            match effect {
                Effect::Down | Effect::Flapping(_) => {
                    let dbm = if begins { DARK_DBM } else { LIT_DBM };
                    self.rack.device_mut(slot).set_input_dbm(input, dbm);
                }
                Effect::Stuck => {
                    let fault = DeviceFault::Stuck(Some(input));
                    match begins {
                        true => self.begin_faults(vec![(slot, fault)]),
                        false => self.end_faults(vec![(slot, fault)]),
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn begin_faults(&mut self, faults: Vec<(RackSlot, DeviceFault)>) {
        for (slot, fault) in faults {
            self.active.push((slot, fault));
            self.apply(slot, fault);
        }
    }

    /// Ends faults without ending other faults of the same devices. Devices that had no power restart.
    pub(super) fn end_faults(&mut self, faults: Vec<(RackSlot, DeviceFault)>) {
        for (slot, fault) in faults {
            let Some(at) = self.active.iter().position(|one| *one == (slot, fault)) else {
                continue;
            };
            self.active.remove(at);
            self.apply(slot, DeviceFault::Clear);
            if fault == DeviceFault::Dead {
                self.apply(slot, DeviceFault::Reboot);
            }
            let rest: Vec<DeviceFault> =
                self.active.iter().filter(|(of, _)| *of == slot).map(|(_, fault)| *fault).collect();
            for fault in rest {
                self.apply(slot, fault);
            }
        }
    }

    fn apply(&mut self, slot: RackSlot, fault: DeviceFault) {
        let mut out = Vec::new();
        self.rack.apply(self.now, slot, fault, &mut out);
        self.spread(out);
        let index = self.by_slot[&slot];
        self.see(index);
    }

    pub(super) fn fault_of_control(&mut self, effect: &Effect, begins: bool) {
        match (effect, begins) {
            (Effect::Down, true) => self.kill(),
            (Effect::Down, false) => {
                if let Err(why) = self.start() {
                    self.daemon.judge.note(format!("I3: the daemon does not start again: {why}"));
                }
            }
            (Effect::SlowDisk(flush), true) => self.daemon.flush = flush.0,
            (Effect::SlowDisk(_), false) => self.daemon.flush = self.settings.flush.0,
            _ => {}
        }
    }
}
