//! Promises of the daemon, kept in a simulated world: crashes at every point, torn writes, lying
//! devices, storms. Each scenario of docs/reliability.md is a test here, and prints its counts.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod world;

use std::collections::BTreeMap;

use lightloom_daemon::change::Mode;
use lightloom_daemon::controller::{Apply, Request};
use lightloom_daemon::inventory::{Device, Inventory, Recovery};
use lightloom_daemon::state::{
    DeviceName, Fabric, Micros, Position, Positions, Sharing, Slot, Txn,
};
use lightloom_fabric::seed::Seed;
use rand::RngExt;
use rand::seq::SliceRandom;
use world::device::Faults;
use world::{CrashAt, World};

const PORTS: u32 = 8;

fn inventory() -> Inventory {
    let mut inventory = Inventory::default();
    for name in ["ocs0", "ocs1"] {
        inventory.devices.insert(name.into(), Device::new(Sharing::Exclusive));
    }
    let mut lever = Device::new(Sharing::Independent);
    lever.is_lever = true;
    inventory.devices.insert("switch0".into(), lever);
    for node in 0..3 {
        let mut module = Device::new(Sharing::Independent);
        module.levers.insert(Slot(1), ("switch0".into(), Slot(node)));
        inventory.devices.insert(DeviceName::from(format!("n{node}/b0").as_str()), module);
    }
    inventory.dark_links_max = 5;
    inventory
}

/// A full permutation of every switch and a path for every module, from the seed.
fn target(seed: u64) -> Fabric {
    let mut rng = Seed(seed).stream("target", 0);
    let mut target = Fabric::new();
    for name in ["ocs0", "ocs1"] {
        let mut egress: Vec<u32> = (101..=100 + PORTS).collect();
        egress.shuffle(&mut rng);
        let circuits = (1..=PORTS).zip(egress).filter(|_| rng.random_bool(0.9));
        let circuits = circuits.map(|(i, e)| (Slot(i), Position(e))).collect();
        target.insert(name.into(), circuits);
    }
    for node in 0..3 {
        let path = Position([1, 2, 15][rng.random_range(0..3)]);
        target.insert(format!("n{node}/b0").as_str().into(), Positions::from([(Slot(1), path)]));
    }
    target
}

fn apply(seed: u64) -> Apply {
    Apply { target: target(seed), plan_sha256: format!("plan-{seed}"), ..Apply::default() }
}

fn lit(world: &World) -> Fabric {
    let plain = world.devices.iter().filter(|(name, _)| name.as_str() != "switch0");
    plain.map(|(name, model)| (name.clone(), model.positions.clone())).collect()
}

/// Applies plan 1, then plan 2 with a crash at `point`, and lets the daemon recover.
fn crash_once(seed: u64, recovery: Recovery, point: Option<u64>, dead: Micros) -> World {
    let mut inventory = inventory();
    inventory.recovery = recovery;
    let mut world = World::new(seed, inventory, Faults::default());
    world.ask(Micros::from_millis(10), "alice", "first", Request::Apply(apply(1)));
    world.run_for(Micros::from_secs(2));
    assert_eq!(lit(&world), target(1));
    world.counts = world::Counts::default();
    world.crash_at = point.map(|point| CrashAt { point });
    world.dead_for = dead;
    world.ask(Micros::default(), "alice", "second", Request::Apply(apply(2)));
    world.run_for(Micros::from_secs(30));
    world
}

/// S1: `kill -9` before, inside and after every journal write and before every send.
#[test]
fn s1_a_crash_at_any_point_ends_in_the_old_plan_or_the_new_one() {
    let points = crash_once(0, Recovery::FinishForward, None, Micros::default()).counts.points;
    let mut runs = 0;
    for recovery in [Recovery::FinishForward, Recovery::RollBack] {
        let mut ends = BTreeMap::<&str, u32>::new();
        for point in 1..=points {
            for torn in 0..4 {
                let world = crash_once(torn, recovery, Some(point), Micros::from_millis(200));
                world.check_at_rest();
                assert_eq!(world.counts.crashes, 1, "point {point}");
                let end = lit(&world);
                let name = match () {
                    () if end == target(1) => "old",
                    () if end == target(2) => "new",
                    () => panic!("point {point} of {points}, {recovery:?}: mixed: {end:?}"),
                };
                *ends.entry(name).or_default() += 1;
                runs += 1;
            }
        }
        println!("S1 {recovery:?}: {points} points x 4 tears, ends {ends:?}");
        assert!(ends.len() == 2, "both ends happen: {ends:?}");
    }
    println!("S1: {runs} crashes, 0 violations");
}

/// The seeds of a storm: the one that `LIGHTLOOM_SEED` names, else as many as
/// `LIGHTLOOM_STORM_SEEDS` says, else `count`, from 0.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LIGHTLOOM_SEED") {
        return vec![seed];
    }
    (0..number("LIGHTLOOM_STORM_SEEDS").unwrap_or(count)).collect()
}

/// Prints how to run a failing seed again.
struct Replay(&'static str, u64);
impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(test, seed) = self;
            eprintln!(
                "again: LIGHTLOOM_SEED={seed} cargo test -p lightloom-daemon --test simulation {test}"
            );
        }
    }
}

/// Everything at once for `hours` of simulated time: clients that race, ask twice and plan against
/// old versions, operators behind our back, device faults, crashes, reboots.
fn storm(seed: u64, hours: u64) -> World {
    let mut rng = Seed(seed).stream("storm", 0);
    let mut inventory = inventory();
    inventory.recovery =
        if rng.random_bool(0.5) { Recovery::FinishForward } else { Recovery::RollBack };
    let mut world = World::new(seed, inventory, Faults::storm());
    world.crash_chance = 0.000_3;
    let mut last_request = 0;
    for minute in 0..hours * 60 {
        if rng.random_bool(0.2) {
            last_request += u64::from(rng.random_bool(0.9));
            let mut apply = apply(rng.random_range(0..50));
            apply.mode = [Mode::Safe, Mode::Update, Mode::Overwrite][rng.random_range(0..3)];
            let ledger = world.controller().map(|c| c.ledger().clone()).unwrap_or_default();
            apply.version = rng.random_bool(0.5).then_some(ledger.version);
            apply.confirm_within = rng.random_bool(0.3).then(|| Micros::from_secs(90));
            let id = format!("r{seed}-{last_request}");
            world.ask(Micros::default(), "alice", &id, Request::Apply(apply.clone()));
            if rng.random_bool(0.3) {
                let id = format!("s{seed}-{last_request}-{minute}");
                let after = Micros(rng.random_range(0..3000));
                world.ask(after, "bob", &id, Request::Apply(apply));
            }
        }
        let ledger = world.controller().map(|c| c.ledger().clone()).unwrap_or_default();
        if let Some(pending) = &ledger.pending
            && rng.random_bool(0.5)
        {
            let request = Request::Confirm(pending.txn);
            world.ask(Micros::default(), "alice", &format!("c{seed}-{minute}"), request);
        }
        match rng.random_range(0..100) {
            0 => world.operator_moves(Micros::default()),
            1 => {
                let devices = world.devices.keys().filter(|d| d.as_str() != "switch0");
                let request = Request::Adopt(devices.cloned().collect());
                world.ask(Micros::default(), "carol", &format!("a{seed}-{minute}"), request);
            }
            2 if ledger.last_txn > Txn(2) => {
                let request = Request::Rollback(Txn(ledger.last_txn.0 - 1));
                world.ask(Micros::default(), "carol", &format!("b{seed}-{minute}"), request);
            }
            3 if rng.random_bool(0.3) => {
                world.kill();
                world.reboot_machine();
            }
            4 => world.now.wall_ms = rng.random_range(1_600_000_000_000..1_800_000_000_000),
            _ => {}
        }
        world.run_for(Micros::from_secs(60));
    }
    world.faults = Faults::default();
    world.crash_chance = 0.0;
    world.run_for(Micros::from_secs(300));
    world.check_at_rest();
    world
}

/// S16: simulated days of everything; a thousand hours with `LIGHTLOOM_STORM_SEEDS=50`.
#[test]
fn s16_hours_of_storm() {
    let (mut total, mut hours) = (world::Counts::default(), 0);
    for seed in seeds(5) {
        let _replay = Replay("s16", seed);
        let world = storm(seed, 20);
        hours += 20;
        total.add(&world.counts);
    }
    println!("S16: {hours} simulated hours, {total:?}, 0 violations");
    assert!(total.committed > 0 && total.rolled_back > 0 && total.partial > 0);
    assert!(total.crashes > 0 && total.unknown > 0 && total.drifts > 0 && total.conflicts > 0);
}
