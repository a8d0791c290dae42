// SPDX-License-Identifier: Apache-2.0
//! What is installed, for the daemon and for the emulated rack: every bundle of the fabric is a transceiver, cabled as
//! the fabric says.

use std::collections::BTreeMap;

use lightloom_control::inventory::{Device, Inventory, OnDrift, Recovery};
use lightloom_control::management::Management;
use lightloom_control::mover::Follows;
use lightloom_control::policy::{OnFault, Setup};
use lightloom_control::record::OnFailure;
use lightloom_control::state::{DeviceName, Micros, Position, Sharing, Slot};
use lightloom_devices::{AnyDevice, Faulty, Rack, RackSlot, Transceiver, TransceiverSpec};
use lightloom_emulator::shipped::DaemonSetup;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::Port;
use lightloom_firmware_api::message::Capabilities;
use lightloom_units::Picoseconds;
use lightloom_units::id::{BundleId, NodeId};
use lightloom_units::seed::Seed;

/// Dark links at once that the daemon may make: the default of its file.
const DARK_LINKS_MAX: usize = 1024;

pub(crate) fn micros(time: Picoseconds) -> Micros {
    Micros((time.get() / 1_000_000).max(1))
}

/// Every bundle of a fabric.
pub(crate) fn bundles(fabric: &Fabric) -> Vec<BundleId> {
    let nodes = (0..fabric.hbd.nodes()).map(NodeId);
    nodes
        .flat_map(|node| (0..fabric.hbd.k()).map(move |bundle| BundleId { node, bundle }))
        .collect()
}

/// What the daemon's file would come to.
pub(crate) fn inventory(fabric: &Fabric, daemon: &DaemonSetup) -> (Inventory, Setup) {
    let mut inventory = Inventory {
        devices: BTreeMap::new(),
        fibres: BTreeMap::new(),
        hosts: BTreeMap::new(),
        management: Management::default(),
        dark_links_max: DARK_LINKS_MAX,
        poll_every: micros(daemon.poll_every),
        on_failure: OnFailure::default(),
        recovery: Recovery::default(),
        on_drift: OnDrift::default(),
    };
    let mut modules = BTreeMap::new();
    for bundle in bundles(fabric) {
        let name = DeviceName::from(bundle.to_string().as_str());
        inventory.devices.insert(name.clone(), device(bundle, daemon));
        modules.insert(bundle, name);
    }
    let end = |port: Port| {
        let device = modules.get(&port.bundle)?.clone();
        Some((device, Slot(0), Position(u32::from(port.path))))
    };
    for (a, b) in fabric.hbd.fibres().map(|fibre| fabric.hbd.ports(fibre)) {
        if let (Some(a), Some(b)) = (end(a), end(b)) {
            inventory.fibres.extend([(a.clone(), b.clone()), (b, a)]);
        }
    }
    let setup = Setup {
        installed: Some(fabric.clone()),
        modules,
        on_fault: OnFault::Bypass,
        heartbeat: micros(daemon.heartbeat),
        ..Setup::default()
    };
    (inventory, setup)
}

fn device(bundle: BundleId, daemon: &DaemonSetup) -> Device {
    let mut device = Device::new(Sharing::Independent);
    let limits = &mut device.limits;
    if let Some(within) = daemon.reply_within.map(micros) {
        (limits.reply_within, limits.read_within, limits.switch_within) = (within, within, within);
    }
    if let Some(within) = daemon.settle_within.map(micros) {
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

/// The emulated transceivers, lit in loopback, and the fibres between them.
pub(crate) fn rack(
    fabric: &Fabric,
    daemon: &DaemonSetup,
    seed: Seed,
) -> (Rack, Vec<(BundleId, RackSlot)>) {
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
    (rack, slots.into_iter().collect())
}
