// SPDX-License-Identifier: Apache-2.0
//! Tests the daemon's guarantees in a simulated world with crashes at every point, torn writes,
//! wrong replies and storms. Each scenario of docs/reliability.md is a test that prints its counts.

mod clients;
mod crash;
mod darkness;
mod stages;
mod storm;

use crate::world;
use std::collections::BTreeMap;
use std::io::ErrorKind;

use lightloom_control::change::Mode;
use lightloom_control::controller::{
    Adopt, Answer, Apply, OWN_CHANGES_MAX, OWN_CHANGES_WINDOW, Request, Rollback,
};
use lightloom_control::inventory::{Device, Inventory, OnDrift, Recovery};
use lightloom_control::ledger::Ledger;
use lightloom_control::mover::{Follows, Limits, Promise};
use lightloom_control::policy::Setup;
use lightloom_control::record::{Record, TxnResult};
use lightloom_control::state::{
    DeviceName, FibreEnd, Micros, NEIGHBOURS_EVERY, Position, Positions, Sharing, Shut, Slot,
    SwitchState, Txn, at,
};
use lightloom_daemon::journal::{Journal, read_all};
use lightloom_fabric::fault::Part;
use lightloom_testkit::cases;
use lightloom_units::seed::{Seed, Stream};
use rand::RngExt;
use rand::seq::SliceRandom;
use world::device::Faults;
use world::disk::Disk;
use world::ring::{SLOT, module, paths, plan_around, ring, stand, two_fibres};
use world::{CrashAt, Reboot, World};

const PORTS: u32 = 8;

fn add_switches(inventory: &mut Inventory) {
    for name in ["ocs0", "ocs1"] {
        inventory.devices.insert(name.into(), Device::new(Sharing::Exclusive));
    }
    let mut lever = Device::new(Sharing::Independent);
    lever.is_lever = true;
    inventory.devices.insert("switch0".into(), lever);
    inventory.dark_links_max = 5;
}

fn inventory() -> Inventory {
    let mut inventory = Inventory::default();
    add_switches(&mut inventory);
    for node in 0..3 {
        let mut device = Device::new(Sharing::Independent);
        device.levers.insert(SLOT, ("switch0".into(), Slot(node)));
        inventory.devices.insert(module(node), device);
    }
    inventory
}

fn target(seed: u64) -> SwitchState {
    let mut rng = Seed(seed).stream("target", 0);
    let mut target = SwitchState::new();
    for name in ["ocs0", "ocs1"] {
        let mut egress: Vec<u32> = (101..=100 + PORTS).collect();
        egress.shuffle(&mut rng);
        let circuits = (1..=PORTS).zip(egress).filter(|_| rng.random_bool(0.9));
        let circuits = circuits.map(|(i, e)| (Slot(i), Position(e))).collect();
        target.insert(name.into(), circuits);
    }
    for node in 0..3 {
        let path = Position([1, 2, 15][rng.random_range(0..3)]);
        target.insert(module(node), Positions::from([(SLOT, path)]));
    }
    target
}

fn apply(seed: u64) -> Apply {
    Apply { target: target(seed), plan_sha256: format!("plan-{seed}"), ..Apply::default() }
}

fn lit(world: &World) -> SwitchState {
    let plain = world.devices.iter().filter(|(name, _)| name.as_str() != "switch0");
    plain.map(|(name, model)| (name.clone(), model.positions.clone())).collect()
}

/// Returns the seed in `LIGHTLOOM_SEED`, else `LIGHTLOOM_STORM_SEEDS` or `count` seeds.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LIGHTLOOM_SEED") {
        return vec![seed];
    }
    (0..number("LIGHTLOOM_STORM_SEEDS").unwrap_or(count)).collect()
}

struct Replay(&'static str, u64);
impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(test, seed) = self;
            eprintln!(
                "again: LIGHTLOOM_SEED={seed} cargo test -p lightloom-daemon --test it simulation:: {test}"
            );
        }
    }
}

fn promise_their_times(inventory: &mut Inventory) {
    promise_times(inventory, None);
}

fn promise_reports(inventory: &mut Inventory) {
    promise_times(inventory, Some(Micros(300)));
}

fn promise_times(inventory: &mut Inventory, answer: Option<Micros>) {
    let follows = Follows { bits_per_second: 921_600, reply_written: false, settle_written: false };
    let promise = Promise {
        commit: Micros(1_000),
        settle: Micros(30),
        dwell: Micros(0),
        answer,
        goes: answer.is_some(),
        refuses_late: false,
    };
    let modules: Vec<DeviceName> =
        inventory.devices.keys().filter(|name| name.as_str().starts_with('n')).cloned().collect();
    for name in modules {
        inventory.devices.get_mut(&name).unwrap().follows = Some(follows);
        inventory.promised(&name, &promise);
    }
}

/// Returns two switches and a ring of eight nodes. The first three nodes have drain controls.
fn switches_and_ring() -> (Inventory, Setup) {
    let (mut inventory, setup) = ring(8, 2);
    add_switches(&mut inventory);
    for node in 0..3 {
        let device = inventory.devices.get_mut(&module(node)).unwrap();
        device.levers.insert(SLOT, ("switch0".into(), Slot(node)));
    }
    (inventory, setup)
}
