// SPDX-License-Identifier: Apache-2.0
//! A daemon crashes during a change, and a switch without epochs executes a command of this change
//! up to a minute after the takeover. The test uses a minimal SCPI switch instead of a driver.

use crate::world;
use lightloom_control::change::Mode;
use lightloom_control::controller::{Apply, Request};
use lightloom_control::inventory::{Device, Inventory};
use lightloom_control::record::Cause;
use lightloom_control::state::{
    DeviceName, Micros, Position, Positions, Sharing, Slot, SwitchState, at,
};
use lightloom_testkit::cases;
use lightloom_units::seed::Seed;
use rand::RngExt;
use world::World;
use world::device::Faults;

const LATE_WITHIN: Micros = Micros::from_secs(2);
const WITHIN: Micros = Micros::from_secs(60);

fn ocs() -> DeviceName {
    "ocs0".into()
}

fn circuits(pairs: &[(u32, u32)]) -> Positions {
    pairs.iter().map(|&(slot, to)| (Slot(slot), Position(to))).collect()
}

fn world(seed: u64) -> World {
    world_that_restores(seed, WITHIN)
}

fn world_that_restores(seed: u64, within: Micros) -> World {
    let mut device = Device::new(Sharing::Exclusive);
    device.limits.late_within = LATE_WITHIN;
    device.limits.restore_late_within = within;
    let mut inventory = Inventory::default();
    inventory.devices.insert(ocs(), device);
    let mut world = World::new(seed, inventory, Faults::default());
    ask(&mut world, "first", &[(1, 101), (2, 102), (3, 103)], Micros::from_millis(10));
    world.run_for(Micros::from_secs(2));
    world
}

fn ask(world: &mut World, id: &str, pairs: &[(u32, u32)], after: Micros) {
    world.ask(after, "alice", id, Request::Apply(to(pairs)));
}

fn to(pairs: &[(u32, u32)]) -> Apply {
    let target = SwitchState::from([(ocs(), circuits(pairs))]);
    Apply { target, mode: Mode::Update, ..Apply::default() }
}

/// Executes a command as an SCPI switch does, and returns whether the command changed a circuit.
fn carry_out(world: &mut World, slot: u32, port: u32, adds: bool) -> bool {
    let positions = &mut world.devices.get_mut(&ocs()).unwrap().positions;
    let (slot, port) = (Slot(slot), Position(port));
    let is_free = !positions.contains_key(&slot) && !positions.values().any(|held| *held == port);
    match adds {
        true if is_free => drop(positions.insert(slot, port)),
        false if at(positions, slot) == port => drop(positions.remove(&slot)),
        _ => return false,
    }
    world.devices.get_mut(&ocs()).unwrap().tampered = true;
    true
}

fn stands(world: &World) -> bool {
    let owned = &world.controller().unwrap().ledger().owned[&ocs()];
    world.devices[&ocs()].positions == *owned
}

#[test]
fn light_returns_to_the_plan_within_2_s_of_a_late_command() {
    let (mut changed, mut restored) = (0, 0);
    for seed in 0..cases(300, 20_000) {
        let mut world = world(seed);
        let mut draws = Seed(seed).stream("late", 0);
        // Slot 1 moves, slot 2 goes dark, slot 4 is lit.
        ask(&mut world, "change", &[(1, 104), (3, 103), (4, 102)], Micros(0));
        world.run_for(Micros(draws.random_range(50..4_000)));
        world.kill();
        world.run_for(Micros::from_secs(draws.random_range(5..8)));
        if draws.random_bool(0.5) {
            ask(&mut world, "back", &[(1, 101), (2, 102), (3, 103)], Micros(0));
            world.run_for(Micros::from_secs(5));
        }
        assert!(stands(&world), "seed {seed}: it is over");
        world.run_for(Micros::from_millis(draws.random_range(0..45_000)));
        let (slot, port, adds) = [
            (1, 101, false),
            (2, 102, false),
            (1, 104, true),
            (4, 102, true),
            (1, 104, false),
            (4, 102, false),
            (2, 102, true),
            (1, 101, true),
        ][draws.random_range(0..8)];
        if !carry_out(&mut world, slot, port, adds) {
            continue;
        }
        changed += 1;
        world.run_for(Micros::from_secs(2));
        assert!(stands(&world), "seed {seed}: slot {slot} with {port}, added: {adds}");
        let history = &world.controller().unwrap().ledger().history;
        restored += history.iter().filter(|past| past.actor == "policy:late-command").count();
    }
    println!("{changed} late commands changed light, {restored} restores");
    assert!(changed > 50 && restored == changed);
}

#[test]
fn keeps_positions_that_an_operator_changed() {
    let (ours, late) = ((3, 103), Micros::from_secs(5));
    let cases = [
        (ours.0, None, late),
        // The change moved this slot, but never to this position.
        (1, Some(109), late),
        // The change moved this circuit, but the takeover was long ago.
        (1, None, WITHIN + late),
    ];
    for (seed, (slot, to, after)) in (0..).zip(cases) {
        let mut world = world(seed);
        world.run_for(WITHIN);
        ask(&mut world, "change", &[(1, 104), (2, 102), (3, 103)], Micros(0));
        world.run_for(Micros::from_millis(1));
        world.kill();
        world.run_for(after);
        assert!(stands(&world), "{slot}: it is over");
        let model = world.devices.get_mut(&ocs()).unwrap();
        model.positions.remove(&Slot(slot));
        model.positions.extend(to.map(|to| (Slot(slot), Position(to))));
        model.tampered = true;
        let moved = model.positions.clone();
        world.run_for(Micros::from_secs(15));
        assert_eq!(world.devices[&ocs()].positions, moved, "slot {slot} to {to:?}");
        assert!(
            !world.controller().unwrap().sightings().devices()[&ocs()].drift().is_empty(),
            "it is reported"
        );
    }
}

/// After a restart, an interrupted bypass moves a switch without epochs immediately only if all
/// late commands are undone. Otherwise it waits until late commands can no longer arrive.
#[test]
fn interrupted_bypass_waits_unless_late_commands_are_undone() {
    let mut interrupted = 0;
    for (restored_within, waits) in [(WITHIN, false), (LATE_WITHIN, true), (Micros(1), true)] {
        for seed in 0..cases(100, 2_000) {
            let mut world = world_that_restores(seed, restored_within);
            let mut draws = Seed(seed).stream("late", 0);
            let around = to(&[(1, 104), (3, 103), (4, 102)]);
            let bypass = Request::Apply(Apply { cause: Some(Cause::Bypass), ..around });
            world.ask(Micros(0), "policy:fault", "around", bypass);
            world.run_for(Micros(draws.random_range(1..1_500)));
            world.kill();
            // By then, the switch has executed all earlier commands.
            let starts = world.now.mono + world.dead_for;
            world.run_until(starts);
            if world.durable.open.is_none() {
                continue;
            }
            interrupted += 1;
            let arrives = Micros::from_millis(draws.random_range(0..1_900));
            let late = [(1, 101, false), (2, 102, false), (1, 104, false), (4, 102, true)];
            let (slot, port, adds) = late[draws.random_range(0..late.len())];
            world.run_for(arrives);
            carry_out(&mut world, slot, port, adds);
            world.run_until(starts + LATE_WITHIN - Micros(1));
            let moved = world.switched_at[&ocs()] > starts;
            assert!(!(moved && waits), "seed {seed}, {restored_within:?}: moved too early");
            world.run_until(starts + arrives + LATE_WITHIN + LATE_WITHIN);
            assert!(stands(&world), "seed {seed}, {restored_within:?}: slot {slot} with {port}");
        }
    }
    assert!(interrupted > 50, "{interrupted}");
}
