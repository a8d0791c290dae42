// SPDX-License-Identifier: Apache-2.0
//! Another controller sets the same circuits. The daemon reports this with evidence and does not
//! fight the other controller, which restores its own circuit after each change of the daemon.

use crate::world;
use lightloom_control::controller::{
    Apply, Contended, Event, Foreign, QUIET, RESTORES_MAX, Request,
};
use lightloom_control::inventory::{Device, Inventory, OnDrift};
use lightloom_control::state::{
    DeviceName, Micros, Position, Positions, Sharing, Slot, SwitchState,
};
use world::World;
use world::device::Faults;

fn ocs() -> DeviceName {
    "ocs0".into()
}

fn ours() -> Positions {
    [(Slot(1), Position(101)), (Slot(2), Position(102))].into()
}

fn theirs() -> Positions {
    [(Slot(1), Position(105)), (Slot(2), Position(102))].into()
}

fn world(seed: u64) -> World {
    let mut inventory = Inventory { on_drift: OnDrift::Restore, ..Inventory::default() };
    inventory.poll_every = Micros::from_millis(100);
    inventory.devices.insert(ocs(), Device::new(Sharing::Exclusive));
    let mut world = World::new(seed, inventory, Faults::default());
    apply(&mut world, "first");
    world
}

fn apply(world: &mut World, id: &str) {
    let target = SwitchState::from([(ocs(), ours())]);
    let mode = lightloom_control::change::Mode::Update;
    let request = Request::Apply(Apply { target, mode, ..Apply::default() });
    world.ask(Micros::from_millis(10), "alice", id, request);
    world.run_for(Micros::from_secs(2));
}

fn restores(world: &World) -> u32 {
    let history = &world.controller().unwrap().ledger().history;
    history.iter().filter(|past| past.actor == "policy:drift").count() as u32
}

/// Runs the other controller for `time`, and returns how often the daemon reverted its changes.
fn fight(world: &mut World, time: Micros) -> u32 {
    let (until, before) = (world.now.mono + time, restores(world));
    while world.now.mono < until {
        let model = world.devices.get_mut(&ocs()).unwrap();
        if model.positions == ours() {
            model.positions = theirs();
            model.tampered = true;
        }
        world.run_for(Micros::from_millis(100));
    }
    restores(world) - before
}

fn contended(world: &World) -> Option<Contended> {
    world.controller().unwrap().sightings().contended(&ocs(), &world.now)
}

#[test]
fn detects_another_controller_and_stops_restoring() {
    for seed in 0..20 {
        let mut world = world(seed);
        assert_eq!(contended(&world), None);
        let first_second = fight(&mut world, Micros::from_secs(1));
        assert_eq!(first_second, 1, "the second restore waits");
        let all = first_second + fight(&mut world, Micros::from_secs(1800));
        assert_eq!(all, RESTORES_MAX, "seed {seed}");
        let known = contended(&world).unwrap();
        assert_eq!(known.times, RESTORES_MAX);
        let drift = known.drift.unwrap();
        assert_eq!(
            (drift.slot, drift.wanted, drift.observed),
            (Slot(1), Position(101), Position(105))
        );
        assert!(known.first_ms < known.last_ms && known.last_ms < world.now.wall_ms);
        assert!(known.stopped_for.is_some_and(|left| left < QUIET));
    }
    println!("20 fights of half an hour: {RESTORES_MAX} restores each, then none");
}

#[test]
fn retries_one_restore_after_an_hour_and_all_after_a_decision() {
    let mut world = world(1);
    fight(&mut world, Micros::from_secs(60));
    let hour = fight(&mut world, Micros::from_secs(3600));
    assert_eq!(hour, 1, "one try after the quiet hour");
    assert_eq!(fight(&mut world, Micros::from_secs(7000)), 0, "the next quiet time is two hours");
    assert_eq!(fight(&mut world, Micros::from_secs(300)), 1);

    apply(&mut world, "again");
    assert_eq!(contended(&world), None, "an operator has decided");
    assert_eq!(fight(&mut world, Micros::from_secs(600)), RESTORES_MAX);
    world.ask(Micros(1), "alice", "adopt", Request::Adopt(vec![ocs()].into()));
    world.run_for(Micros::from_secs(1));
    assert_eq!(contended(&world), None);
}

#[test]
fn restart_does_not_resume_contention() {
    let mut world = world(2);
    let mut set = 0;
    for _ in 0..12 {
        set += fight(&mut world, Micros::from_secs(20));
        world.kill();
        world.run_for(Micros::from_secs(1));
    }
    assert_eq!(set, RESTORES_MAX, "over 12 restarts");
    assert!(contended(&world).unwrap().stopped_for.is_some());
}

#[test]
fn occasional_drift_is_not_another_controller() {
    let mut world = world(3);
    for _ in 0..5 {
        world.devices.get_mut(&ocs()).unwrap().positions = theirs();
        world.run_for(Micros::from_secs(300));
        assert_eq!(world.devices[&ocs()].positions, ours());
        assert_eq!(contended(&world), None);
    }
}

#[test]
fn does_not_restore_devices_claimed_by_others() {
    let mut world = world(4);
    let claim = |by: Option<&str>| Foreign::Claimed(by.map(Into::into));
    world.happens(Event::Foreign(ocs(), claim(Some("lightloomd@other"))));
    world.devices.get_mut(&ocs()).unwrap().positions = theirs();
    world.run_for(Micros::from_secs(60));
    assert_eq!(world.devices[&ocs()].positions, theirs());
    let known = contended(&world).unwrap();
    assert_eq!(known.claimed_by.as_deref(), Some("lightloomd@other"));
    world.happens(Event::Foreign(ocs(), claim(None)));
    world.run_for(Micros::from_secs(10));
    assert_eq!(world.devices[&ocs()].positions, ours());
    assert_eq!(contended(&world), None);
}

#[test]
fn reads_a_device_immediately_after_it_reports_a_change() {
    let mut world = world(5);
    world.inventory.poll_every = Micros::from_secs(10);
    let drifts = world.counts.drifts;
    world.devices.get_mut(&ocs()).unwrap().positions = theirs();
    world.happens(Event::Foreign(ocs(), Foreign::Changed("`1,105 JOINED`".into())));
    world.run_for(Micros::from_millis(60));
    assert!(world.counts.drifts > drifts, "within 60 ms of the report");
}
