//! Modules joined to a ring, for tests of what happens to fibres.
#![allow(clippy::unwrap_used, reason = "a test")]

use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, Request};
use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::record::TxnResult;
use lightloom_control::state::{DeviceName, Micros, Position, Sharing, Slot};

use super::World;
use super::device::Faults;

/// The modules joined to a ring: path 1 of each leads to path 2 of the next.
pub fn with_fibres(mut inventory: Inventory) -> Inventory {
    let modules = inventory.devices.keys().filter(|name| name.as_str().starts_with('n'));
    let modules: Vec<DeviceName> = modules.cloned().collect();
    for (index, device) in modules.iter().enumerate() {
        let next = modules[(index + 1) % modules.len()].clone();
        let a = (device.clone(), Slot(1), Position(1));
        let b = (next, Slot(1), Position(2));
        inventory.fibres.extend([(a.clone(), b.clone()), (b, a)]);
    }
    inventory
}

pub fn module(node: u32) -> DeviceName {
    DeviceName::from(format!("n{node}/b0").as_str())
}

/// Four modules, n0 lit to n1 and n2 to n3, each read ten times a second.
pub fn two_fibres(seed: u64) -> World {
    let mut inventory = Inventory { poll_every: Micros::from_millis(100), ..Inventory::default() };
    for node in 0..4 {
        inventory.devices.insert(module(node), Device::new(Sharing::Independent));
    }
    let mut world = World::new(seed, with_fibres(inventory), Faults::default());
    let lit = paths(&[(0, 1), (1, 2), (2, 1), (3, 2)]);
    world.ask(Micros::from_millis(10), "alice", "lit", Request::Apply(lit));
    world.run_for(Micros::from_secs(3));
    assert_eq!(world.ended.last().map(|end| end.1), Some(TxnResult::Committed));
    world
}

pub fn paths(paths: &[(u32, u32)]) -> Apply {
    let of = |&(node, path): &(u32, u32)| (module(node), [(Slot(1), Position(path))].into());
    Apply { target: paths.iter().map(of).collect(), mode: Mode::Update, ..Apply::default() }
}
