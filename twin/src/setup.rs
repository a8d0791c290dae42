// SPDX-License-Identifier: Apache-2.0
//! Sets up the installation, both for the daemon and as an emulated rack. Each bundle in the fabric
//! becomes a transceiver with the fabric's cabling.

use std::collections::BTreeMap;

use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::mover::{Follows, Limits};
use lightloom_control::policy::{OnFault, Setup};
use lightloom_control::state::{DeviceName, Micros, Sharing, Slot};
use lightloom_devices::{
    AnyDevice, Faulty, GnmiSpec, GnmiSwitch, OpticalSwitch, Rack, RackSlot, SwitchSpec,
    Transceiver, TransceiverSpec,
};
use lightloom_drivers::gnmi::{self, Gnmi};
use lightloom_drivers::ocstrx::OcsTrx;
use lightloom_drivers::scpi::Scpi;
use lightloom_drivers::tender::Tender;
use lightloom_drivers::tl1::Tl1;
use lightloom_emulator::shipped::{DaemonSetup, SwitchLanguage};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fat_tree::device_ports::DevicePorts;
use lightloom_firmware_api::message::Capabilities;
use lightloom_firmware_api::path::DataPathPolicy;
use lightloom_units::id::{BundleId, NodeId, OcsId};
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};

use super::cost::COST;

/// Number of commands and command transfers in a stage before the mirrors move. The same number of
/// commands qualifies the circuits while their links train.
const COMMANDS_OF_HALF: u64 = 8;
const LINES_OF_HALF: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    Module(BundleId),
    Switch(OcsId, DevicePorts),
}

impl Installed {
    pub(crate) fn name(self) -> DeviceName {
        match self {
            Self::Module(bundle) => DeviceName::from(bundle.to_string().as_str()),
            Self::Switch(ocs, _) => DeviceName::from(ocs.to_string().as_str()),
        }
    }

    pub(crate) fn tender(
        self,
        index: usize,
        now: SimTime,
        life: u64,
        language: SwitchLanguage,
    ) -> Tender {
        let begins = crate::daemon::mono(now) + Micros(20 * index as u64);
        let name = self.name();
        match (self, language) {
            (Self::Module(_), _) => {
                let sequence = (index as u64 * 257 + life * 4_099) as u16;
                let dialect = OcsTrx::new(DataPathPolicy::Hot, sequence).called(name.as_str());
                Tender::speaking(name, dialect, begins)
            }
            (Self::Switch(_, ports), SwitchLanguage::Scpi) => {
                Tender::speaking(name, Scpi::new(true).wired_as(Some(ports)), begins)
            }
            (Self::Switch(_, ports), SwitchLanguage::Tl1) => {
                let (user, password) = SwitchSpec::default().login;
                let dialect = Tl1::new(&user, &password, true).wired_as(Some(ports));
                Tender::speaking(name, dialect, begins)
            }
            (Self::Switch(_, ports), SwitchLanguage::Gnmi) => {
                let settings = gnmi::Settings::plain(name.as_str());
                Tender::speaking(name, Gnmi::new(settings).wired_as(Some(ports)), begins)
            }
        }
    }

    pub(crate) fn port(self, language: SwitchLanguage) -> lightloom_devices::Port {
        match (self, language) {
            (Self::Module(_), _) => lightloom_devices::Port::Frames,
            (_, SwitchLanguage::Scpi) => lightloom_devices::Port::Scpi,
            (_, SwitchLanguage::Tl1) => lightloom_devices::Port::Tl1,
            (_, SwitchLanguage::Gnmi) => lightloom_devices::Port::Gnmi,
        }
    }
}

pub(crate) fn micros(time: Picoseconds) -> Micros {
    Micros((time.get() / 1_000_000).max(1))
}

pub(crate) fn bundles(fabric: &Fabric) -> Vec<BundleId> {
    let nodes = (0..fabric.hbd.nodes()).map(NodeId);
    nodes
        .flat_map(|node| (0..fabric.hbd.k()).map(move |bundle| BundleId { node, bundle }))
        .collect()
}

pub(crate) fn inventory(fabric: &Fabric, daemon: &DaemonSetup) -> (Inventory, Setup) {
    let mut inventory =
        Inventory { poll_every: micros(daemon.poll_every.0), ..Inventory::default() };
    let mut modules = BTreeMap::new();
    for bundle in bundles(fabric) {
        let name = DeviceName::from(bundle.to_string().as_str());
        inventory.devices.insert(name.clone(), device(bundle, daemon));
        modules.insert(bundle, name);
    }
    inventory.cable(fabric, &modules);
    let mut switches = BTreeMap::new();
    for (ocs, ports) in optical_switches(fabric) {
        let name = Installed::Switch(ocs, ports).name();
        let mut device = Device::new(Sharing::Exclusive);
        device.limits = Limits::configured(Sharing::Exclusive);
        device.limits.power_samples = daemon.power_samples;
        device.duplex = Some(ports.output_offset());
        inventory.devices.insert(name.clone(), device);
        switches.insert(ocs, (name, ports));
    }
    let setup = Setup {
        installed: Some(fabric.clone()),
        modules,
        switches,
        on_fault: OnFault::Bypass,
        heartbeat: micros(daemon.heartbeat.0),
        ..Setup::default()
    };
    (inventory, setup)
}

fn device(bundle: BundleId, daemon: &DaemonSetup) -> Device {
    let mut device = Device::new(Sharing::Independent);
    let limits = &mut device.limits;
    if let Some(within) = daemon.reply_within.map(|within| micros(within.0)) {
        (limits.reply_within, limits.read_within, limits.switch_within) = (within, within, within);
    }
    if let Some(within) = daemon.settle_within.map(|within| micros(within.0)) {
        (limits.settle_within, limits.dark_within) = (within, within);
    }
    limits.power_samples = daemon.power_samples;
    device.follows = Some(Follows {
        bits_per_second: daemon.bits_per_second,
        reply_written: daemon.reply_within.is_some(),
        settle_written: daemon.settle_within.is_some(),
    });
    device.domains.insert(Slot(0), bundle.node.to_string());
    device
}

fn optical_switches(fabric: &Fabric) -> Vec<(OcsId, DevicePorts)> {
    let Some(network) = fabric.dcn.circuits() else { return Vec::new() };
    let switches = (0..network.switches()).map(OcsId::from_index);
    let switches = switches.map(|ocs| {
        let ingress = network.bank(ocs).ports_per_switch;
        (ocs, DevicePorts::IngressThenEgress { ingress })
    });
    switches.collect()
}

fn switch(
    fabric: &Fabric,
    ocs: OcsId,
    ports: DevicePorts,
    daemon: &DaemonSetup,
    seed: Seed,
) -> AnyDevice {
    let count = ports.output_offset() as u16;
    let timing = fabric.dcn.circuits().map(|network| network.spec().timing);
    let [switching, control, bring_up] = timing.map_or([Picoseconds::ZERO; 3], |timing| {
        [timing.switching, timing.control, timing.bring_up]
    });
    // An emulated mirror takes up to a tenth longer or shorter; the slowest one takes the stated time.
    let switching = Picoseconds(switching.get() / 110 * 100);
    // A command takes the fabric's control time less the time that the daemon itself needs.
    let line = COST.per_input + COST.handoff + Picoseconds(COST.jitter.get() / 2);
    let half = daemon.flush.0 + line * LINES_OF_HALF;
    let until_moved = control.saturating_sub(half).get() / COMMANDS_OF_HALF;
    let in_all = (control + bring_up).saturating_sub(half * 2).get() / (2 * COMMANDS_OF_HALF);
    let command = Picoseconds(until_moved.min(in_all));
    let index = u64::from(ocs.0);
    if daemon.switches == SwitchLanguage::Gnmi {
        let spec =
            GnmiSpec { ingress: count, egress: count, switching, command, ..GnmiSpec::default() };
        let device = GnmiSwitch::new(spec, seed, index);
        return AnyDevice::Gnmi(Box::new(Faulty::new(device, seed, index)));
    }
    let name = ocs.to_string();
    let (ingress, egress) = (count, count);
    let spec = SwitchSpec { name, ingress, egress, switching, command, ..SwitchSpec::default() };
    let device = OpticalSwitch::new(spec, seed, index);
    AnyDevice::Switch(Box::new(Faulty::new(device, seed, index)))
}

/// Creates the emulated transceivers (lit, in loopback), the fibres between them, and the optical switches (dark).
pub(crate) fn rack(
    fabric: &Fabric,
    daemon: &DaemonSetup,
    seed: Seed,
) -> (Rack, Vec<(Installed, RackSlot)>) {
    let mut spec = TransceiverSpec {
        powered_for: Picoseconds::from_millis(2_000),
        ..TransceiverSpec::default()
    };
    if !daemon.events {
        let both = Capabilities::EVENTS.and(Capabilities::GO);
        spec.profile.capabilities = spec.profile.capabilities.without(both);
    }
    let mut rack = Rack::default();
    let mut slots = BTreeMap::new();
    for (index, bundle) in bundles(fabric).into_iter().enumerate() {
        let module = Transceiver::new(&spec, seed, index as u64);
        let module = AnyDevice::Transceiver(Box::new(Faulty::new(module, seed, index as u64)));
        if let Some(slot) = rack.add(&bundle.to_string(), module) {
            slots.insert(bundle, slot);
        }
    }
    for (a, b) in fabric.hbd.fibres().map(|fibre| fabric.hbd.ports(fibre)) {
        rack.join((slots[&a.bundle], a.path), (slots[&b.bundle], b.path));
    }
    let mut installed: Vec<(Installed, RackSlot)> =
        slots.into_iter().map(|(bundle, slot)| (Installed::Module(bundle), slot)).collect();
    for (ocs, ports) in optical_switches(fabric) {
        let device = switch(fabric, ocs, ports, daemon, seed);
        if let Some(slot) = rack.add(&ocs.to_string(), device) {
            installed.push((Installed::Switch(ocs, ports), slot));
        }
    }
    (rack, installed)
}
