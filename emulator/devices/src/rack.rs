// SPDX-License-Identifier: Apache-2.0
//! Emulated devices under one clock, with scheduled faults and without I/O.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_fabric::khop::Port as KhopPort;
use lightloom_firmware_api::message::Neighbour;
use lightloom_units::SimTime;

use super::fault::DeviceFault;
use super::gnmi::GnmiSwitch;
use super::light::LightWatchers;
use super::line::Faulty;
use super::optoe::{AccessDone, Failed, Optoe};
use super::switch::{OpticalSwitch, PassedLight};
use super::transceiver::Transceiver;
use super::{EmulatedDevice, Line, Output, Port};

#[derive(Debug)]
pub enum AnyDevice {
    Transceiver(Box<Faulty<Transceiver>>),
    Switch(Box<Faulty<OpticalSwitch>>),
    Gnmi(Box<Faulty<GnmiSwitch>>),
}

impl AnyDevice {
    fn as_device(&mut self) -> &mut dyn EmulatedDevice {
        match self {
            Self::Transceiver(device) => device.as_mut(),
            Self::Switch(device) => device.as_mut(),
            Self::Gnmi(device) => device.as_mut(),
        }
    }

    pub fn passes(&self, now: SimTime) -> Option<PassedLight> {
        match self {
            Self::Transceiver(_) => None,
            Self::Switch(device) => Some(device.device().light(now)),
            Self::Gnmi(device) => Some(device.device().light(now)),
        }
    }

    pub fn set_input_dbm(&mut self, ingress: u16, dbm: f64) {
        match self {
            Self::Transceiver(_) => {}
            Self::Switch(device) => device.device_mut().set_input_dbm(ingress, dbm),
            Self::Gnmi(device) => device.device_mut().set_input_dbm(ingress, dbm),
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Transceiver(_) => "transceiver",
            Self::Switch(_) => "switch",
            Self::Gnmi(_) => "gnmi-switch",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RackSlot(pub usize);

#[derive(Debug, Default)]
pub struct Rack {
    devices: Vec<(String, AnyDevice)>,
    by_name: BTreeMap<String, RackSlot>,
    woken_at: Vec<Option<SimTime>>,
    wakeups: BTreeSet<(SimTime, RackSlot)>,
    faults: BTreeMap<SimTime, Vec<(RackSlot, DeviceFault)>>,
    pub(super) fibres: BTreeMap<(RackSlot, u8), (RackSlot, u8)>,
    pub(super) watched: Option<LightWatchers>,
}

impl Rack {
    pub fn add(&mut self, name: &str, device: AnyDevice) -> Option<RackSlot> {
        let slot = RackSlot(self.devices.len());
        if self.by_name.contains_key(name) {
            return None;
        }
        self.by_name.insert(name.to_owned(), slot);
        self.devices.push((name.to_owned(), device));
        self.woken_at.push(None);
        self.plan_wakeup(slot);
        Some(slot)
    }

    pub fn slot(&self, name: &str) -> Option<RackSlot> {
        self.by_name.get(name).copied()
    }

    /// Returns the slots of a device, or of all devices in a node: `n17` means `n17/b0`, `n17/b1` and so on.
    pub fn slots_of(&self, name: &str) -> Vec<RackSlot> {
        let named = self.by_name.iter().filter(|(of, _)| {
            of.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        named.map(|(_, slot)| *slot).collect()
    }

    pub fn devices(&self) -> impl Iterator<Item = (&str, &AnyDevice)> {
        self.devices.iter().map(|(name, device)| (name.as_str(), device))
    }

    pub fn device(&self, slot: RackSlot) -> (&str, &AnyDevice) {
        let (name, device) = &self.devices[slot.0];
        (name, device)
    }

    pub fn device_mut(&mut self, slot: RackSlot) -> &mut AnyDevice {
        &mut self.devices[slot.0].1
    }

    pub fn join(&mut self, a: (RackSlot, u8), b: (RackSlot, u8)) {
        self.fibres.extend([(a, b), (b, a)]);
        for slot in [a.0, b.0] {
            self.spread_light(SimTime::START, slot);
        }
    }

    /// Returns the far ends that changed. A module advances no later than its light settles, so no update is late.
    fn spread_light(&mut self, now: SimTime, slot: RackSlot) -> Vec<RackSlot> {
        let mut changed = Vec::new();
        for number in 1..=2 {
            let Some(&(far_slot, far_number)) = self.fibres.get(&(slot, number)) else { continue };
            let AnyDevice::Transceiver(near) = &self.devices[slot.0].1 else { return changed };
            let sends = near.device().sends(now, number);
            let name = near.device().link_name();
            if let AnyDevice::Transceiver(far) = &mut self.devices[far_slot.0].1 {
                let near = Neighbour { name, path: number };
                if far.device_mut().optics_mut().set_far_end(far_number, sends, near) {
                    changed.push(far_slot);
                }
            }
        }
        changed
    }

    pub fn schedule(&mut self, at: SimTime, slot: RackSlot, fault: DeviceFault) {
        self.faults.entry(at).or_default().push((slot, fault));
    }

    pub fn objection(&self, slot: RackSlot, fault: DeviceFault) -> Option<String> {
        let (name, device) = &self.devices[slot.0];
        if matches!(fault, DeviceFault::Defer(_)) && device.kind() == "transceiver" {
            return Some(format!(
                "`defer` applies only to switches, but {name} is a transceiver, which does not execute an abandoned \
                 command"
            ));
        }
        if fault == DeviceFault::WarmRestart && !matches!(device, AnyDevice::Gnmi(_)) {
            return Some(format!("{name} supports only one kind of restart: use `reboot`"));
        }
        if let DeviceFault::Misbehave(which) = fault
            && which.family().device_kind() != device.kind()
        {
            let (family, kind) = (which.family().word(), device.kind());
            return Some(format!(
                "`{which}` applies only to {family} devices, but {name} is a {kind}"
            ));
        }
        let DeviceFault::Cross(number, other) = fault else { return None };
        let Some(near) = self.fibres.get(&(slot, number)) else {
            return Some(format!("no fibre is plugged into path {number} of {name}"));
        };
        let Some(end) = self.end(other).filter(|end| self.fibres.contains_key(end)) else {
            return Some(format!("no fibre is plugged into {other}"));
        };
        (end == (slot, number) || end == *near)
            .then(|| format!("{other} is at the other end of the same fibre"))
    }

    fn end(&self, port: KhopPort) -> Option<(RackSlot, u8)> {
        Some((self.slot(&port.bundle.to_string())?, port.path))
    }

    /// A second call reverts the swap. Has no effect if [`Rack::objection`] returns a reason.
    fn cross(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        number: u8,
        other: KhopPort,
        out: &mut Vec<Output>,
    ) {
        if self.objection(slot, DeviceFault::Cross(number, other)).is_some() {
            return;
        }
        let Some(end) = self.end(other) else { return };
        let (near_far, end_far) = (self.fibres[&(slot, number)], self.fibres[&end]);
        for (a, b) in [((slot, number), end_far), (end, near_far)] {
            self.fibres.extend([(a, b), (b, a)]);
        }
        for (slot, _) in [(slot, number), end, near_far, end_far] {
            self.called(now, slot, out);
        }
    }

    pub fn apply(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        fault: DeviceFault,
        out: &mut Vec<Output>,
    ) {
        if let DeviceFault::Cross(number, other) = fault {
            return self.cross(now, slot, number, other, out);
        }
        self.devices[slot.0].1.as_device().apply(now, fault, out);
        self.devices[slot.0].1.as_device().on_time(now, out);
        self.called(now, slot, out);
    }

    pub fn open(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        line: Line,
        port: Port,
        out: &mut Vec<Output>,
    ) {
        self.devices[slot.0].1.as_device().open(now, line, port, out);
        self.called(now, slot, out);
    }

    pub fn on_bytes(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        line: Line,
        input: &[u8],
        out: &mut Vec<Output>,
    ) {
        self.devices[slot.0].1.as_device().on_bytes(now, line, input, out);
        self.called(now, slot, out);
    }

    pub fn on_bus(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        driver: &mut Optoe,
        out: &mut Vec<Output>,
        on: impl FnMut(u64, Result<AccessDone, Failed>),
    ) {
        let AnyDevice::Transceiver(module) = &mut self.devices[slot.0].1 else { return };
        module.on_time(now, out);
        driver.advance(now, module.bus_delay(), module.as_mut(), on);
        module.on_time(now, out);
        self.called(now, slot, out);
    }

    pub fn close(&mut self, now: SimTime, slot: RackSlot, line: Line) {
        self.devices[slot.0].1.as_device().close(now, line);
        self.plan_wakeup(slot);
    }

    pub fn on_time(&mut self, now: SimTime, out: &mut Vec<Output>) {
        while let Some(entry) = self.faults.first_entry().filter(|entry| *entry.key() <= now) {
            for (slot, fault) in entry.remove() {
                self.apply(now, slot, fault, out);
            }
        }
        while let Some(&(at, slot)) = self.wakeups.first().filter(|(at, _)| *at <= now) {
            self.devices[slot.0].1.as_device().on_time(now.max(at), out);
            self.called(now, slot, out);
        }
    }

    pub fn next_wakeup(&self) -> Option<SimTime> {
        let device = self.wakeups.first().map(|(at, _)| *at);
        device.into_iter().chain(self.faults.keys().next().copied()).min()
    }

    pub fn due(&self, now: SimTime) -> impl Iterator<Item = RackSlot> + '_ {
        let last = (now, RackSlot(usize::MAX));
        let faulted = self.faults.range(..=now).flat_map(|(_, faults)| faults);
        let woken = self.wakeups.range(..=last).map(|(_, slot)| *slot);
        woken.chain(faulted.map(|(slot, _)| *slot))
    }

    /// Also runs devices whose received light has changed, because their comparators react to it.
    fn called(&mut self, now: SimTime, slot: RackSlot, out: &mut Vec<Output>) {
        let mut called = vec![slot];
        while let Some(slot) = called.pop() {
            if let Some(watched) = &mut self.watched {
                watched.called.insert(slot);
            }
            for far in self.spread_light(now, slot) {
                self.devices[far.0].1.as_device().on_time(now, out);
                called.push(far);
            }
            self.plan_wakeup(slot);
        }
    }

    fn plan_wakeup(&mut self, slot: RackSlot) {
        if let Some(at) = self.woken_at[slot.0].take() {
            self.wakeups.remove(&(at, slot));
        }
        if let Some(at) = self.devices[slot.0].1.as_device().next_wakeup() {
            self.woken_at[slot.0] = Some(at);
            self.wakeups.insert((at, slot));
        }
    }
}
