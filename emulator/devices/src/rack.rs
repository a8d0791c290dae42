// SPDX-License-Identifier: Apache-2.0
//! A rack of emulated devices under one clock: who is called when, and which fault happens when.
//!
//! The rack is still pure: lines are opened, fed and closed from outside, and time is handed in.

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

/// Any emulated device.
#[derive(Clone, Debug)]
pub enum AnyDevice {
    /// A module with a switch inside.
    Transceiver(Box<Faulty<Transceiver>>),
    /// An optical circuit switch.
    Switch(Box<Faulty<OpticalSwitch>>),
    /// An optical circuit switch with the OCP model.
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

    fn next_wakeup(&self) -> Option<SimTime> {
        match self {
            Self::Transceiver(device) => device.next_wakeup(),
            Self::Switch(device) => device.next_wakeup(),
            Self::Gnmi(device) => device.next_wakeup(),
        }
    }

    fn apply(&mut self, now: SimTime, fault: DeviceFault, out: &mut Vec<Output>) {
        match self {
            Self::Transceiver(device) => device.apply(now, fault, out),
            Self::Switch(device) => device.apply(now, fault, out),
            Self::Gnmi(device) => device.apply(now, fault, out),
        }
    }

    /// Along which connections an optical switch passes light; `None` of a transceiver.
    #[must_use]
    pub fn passes(&self, now: SimTime) -> Option<PassedLight> {
        match self {
            Self::Transceiver(_) => None,
            Self::Switch(device) => Some(device.device().light(now)),
            Self::Gnmi(device) => Some(device.device().light(now)),
        }
    }

    /// What shines on an ingress port of an optical switch from now on, in dBm; nothing of a transceiver.
    pub fn set_input_dbm(&mut self, ingress: u16, dbm: f64) {
        match self {
            Self::Transceiver(_) => {}
            Self::Switch(device) => device.device_mut().set_input_dbm(ingress, dbm),
            Self::Gnmi(device) => device.device_mut().set_input_dbm(ingress, dbm),
        }
    }

    /// What kind of device it is, in one word.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Transceiver(_) => "transceiver",
            Self::Switch(_) => "switch",
            Self::Gnmi(_) => "gnmi-switch",
        }
    }
}

/// The position of a device in its rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RackSlot(pub usize);

/// Devices by name and slot.
#[derive(Clone, Debug, Default)]
pub struct Rack {
    devices: Vec<(String, AnyDevice)>,
    by_name: BTreeMap<String, RackSlot>,
    woken_at: Vec<Option<SimTime>>,
    wakeups: BTreeSet<(SimTime, RackSlot)>,
    faults: BTreeMap<SimTime, Vec<(RackSlot, DeviceFault)>>,
    /// Both directions of every fibre between two transceivers: external path to external path.
    pub(super) fibres: BTreeMap<(RackSlot, u8), (RackSlot, u8)>,
    /// Devices that were called since the light was last read. `None` if it is not watched.
    pub(super) watched: Option<LightWatchers>,
}

impl Rack {
    /// Adds a device; `None` if the name is taken.
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

    /// The device called `name`.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<RackSlot> {
        self.by_name.get(name).copied()
    }

    /// The device called `name`, or else all devices of the node of that name: `n17` is `n17/b0`,
    /// `n17/b1` and so on.
    #[must_use]
    pub fn slots_of(&self, name: &str) -> Vec<RackSlot> {
        let of_node = |of: &str| of.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        let named = self.by_name.iter().filter(|(of, _)| *of == name || of_node(of));
        named.map(|(_, slot)| *slot).collect()
    }

    /// Names and devices in slot order.
    pub fn devices(&self) -> impl Iterator<Item = (&str, &AnyDevice)> {
        self.devices.iter().map(|(name, device)| (name.as_str(), device))
    }

    /// Name and device in `slot`.
    #[must_use]
    pub fn device(&self, slot: RackSlot) -> (&str, &AnyDevice) {
        let (name, device) = &self.devices[slot.0];
        (name, device)
    }

    /// The device in `slot`.
    #[must_use]
    pub fn device_mut(&mut self, slot: RackSlot) -> &mut AnyDevice {
        &mut self.devices[slot.0].1
    }

    /// Joins two transceivers: light arrives at one end only while the other sends it.
    pub fn join(&mut self, a: (RackSlot, u8), b: (RackSlot, u8)) {
        self.fibres.extend([(a, b), (b, a)]);
        for slot in [a.0, b.0] {
            self.spread_light(SimTime::START, slot);
        }
    }

    /// Lets the light of `slot` arrive at the far ends of its fibres, or not; says where that is otherwise than
    /// before. A module is called at the latest when its light has come to rest, so it arrives in time.
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

    /// Schedules a fault.
    pub fn schedule(&mut self, at: SimTime, slot: RackSlot, fault: DeviceFault) {
        self.faults.entry(at).or_default().push((slot, fault));
    }

    /// Why `fault` cannot be applied to the device in `slot`.
    #[must_use]
    pub fn objection(&self, slot: RackSlot, fault: DeviceFault) -> Option<String> {
        let (name, device) = &self.devices[slot.0];
        if matches!(fault, DeviceFault::Defer(_)) && device.kind() == "transceiver" {
            return Some(format!(
                "{name} is a transceiver, and its firmware carries out no command that was given up: `defer` is \
                 for switches"
            ));
        }
        if fault == DeviceFault::WarmRestart && !matches!(device, AnyDevice::Gnmi(_)) {
            return Some(format!("{name} has one kind of restart only: write `reboot`"));
        }
        if let DeviceFault::Misbehave(which) = fault
            && which.family().device_kind() != device.kind()
        {
            let (family, kind) = (which.family().word(), device.kind());
            return Some(format!(
                "{name} is a {kind}, and `{which}` is of devices asked in {family}"
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
            .then(|| format!("{other} is an end of the same fibre"))
    }

    fn end(&self, port: KhopPort) -> Option<(RackSlot, u8)> {
        Some((self.slot(&port.bundle.to_string())?, port.path))
    }

    /// Swaps the far ends of two fibres, as if two cables were plugged in crossed. A second call undoes
    /// it. No effect if [`Rack::objection`] has one.
    fn cross(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        (number, other): (u8, KhopPort),
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

    /// Applies a fault now.
    pub fn apply(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        fault: DeviceFault,
        out: &mut Vec<Output>,
    ) {
        if let DeviceFault::Cross(number, other) = fault {
            return self.cross(now, slot, (number, other), out);
        }
        self.devices[slot.0].1.apply(now, fault, out);
        // Its own comparators may see the fault.
        self.devices[slot.0].1.as_device().on_time(now, out);
        self.called(now, slot, out);
    }

    /// A client opened `line` of the device in `slot`.
    pub fn open(
        &mut self,
        now: SimTime,
        slot: RackSlot,
        (line, port): (Line, Port),
        out: &mut Vec<Output>,
    ) {
        self.devices[slot.0].1.as_device().open(now, line, port, out);
        self.called(now, slot, out);
    }

    /// Bytes arrived on `line` of the device in `slot`.
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

    /// Lets the driver of a module's memory do what is due on its bus. An optical switch has no such memory.
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

    /// The client of `line` is gone.
    pub fn close(&mut self, now: SimTime, slot: RackSlot, line: Line) {
        self.devices[slot.0].1.as_device().close(now, line);
        self.plan_wakeup(slot);
    }

    /// Time has come to `now`: faults happen and devices do what is due.
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

    /// When [`Rack::on_time`] should next be called.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<SimTime> {
        let device = self.wakeups.first().map(|(at, _)| *at);
        device.into_iter().chain(self.faults.keys().next().copied()).min()
    }

    /// Devices that [`Rack::on_time`] calls at `now`.
    pub fn due(&self, now: SimTime) -> impl Iterator<Item = RackSlot> + '_ {
        let last = (now, RackSlot(usize::MAX));
        let faulted = self.faults.range(..=now).flat_map(|(_, faults)| faults);
        let woken = self.wakeups.range(..=last).map(|(_, slot)| *slot);
        woken.chain(faulted.map(|(slot, _)| *slot))
    }

    /// A device was called: who misses its light from now on, or sees it again, is called by its comparator.
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
        if let Some(at) = self.devices[slot.0].1.next_wakeup() {
            self.woken_at[slot.0] = Some(at);
            self.wakeups.insert((at, slot));
        }
    }
}
