// SPDX-License-Identifier: Apache-2.0
//! Crashes of the daemon, its disk and devices must result in the old plan or the new one.

use super::*;

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

#[test]
fn s1_crash_at_any_point_ends_in_the_old_or_new_plan() {
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

#[test]
fn s2_write_failure_at_any_byte_never_leaves_a_mixed_state() {
    let whole = crash_once(0, Recovery::FinishForward, None, Micros::default());
    let start = crash_once(0, Recovery::FinishForward, Some(1), Micros::from_secs(60));
    let (from, to) = (start.disk.bytes().len(), whole.disk.bytes().len());
    let mut runs = 0;
    for capacity in (from..to).step_by(97) {
        let mut world = World::new(1, inventory(), Faults::default());
        world.ask(Micros::from_millis(10), "alice", "first", Request::Apply(apply(1)));
        world.run_for(Micros::from_secs(2));
        world.disk.set_capacity(Some(capacity));
        world.ask(Micros::default(), "alice", "second", Request::Apply(apply(2)));
        world.run_for(Micros::from_secs(2));
        world.disk.set_capacity(None);
        world.run_for(Micros::from_secs(30));
        world.check_at_rest();
        let end = lit(&world);
        assert!(end == target(1) || end == target(2), "full at {capacity}: {end:?}");
        runs += 1;
    }
    println!("S2: disk full at {runs} sizes of the journal, 0 mixed states");
}

#[test]
fn s2_disk_failure_at_any_moment_never_leaves_a_mixed_state() {
    type Fault = (&'static str, fn(&Disk, bool));
    let faults: [Fault; 3] = [
        ("no sync", Disk::fail_syncs),
        ("no write", |disk, fails| disk.fail_writes(fails.then_some(ErrorKind::Other))),
        ("read-only", |disk, fails| {
            disk.fail_writes(fails.then_some(ErrorKind::ReadOnlyFilesystem));
        }),
    ];
    for (what, fault) in faults {
        let mut ends = BTreeMap::<&str, u32>::new();
        for moment in 0..200 {
            let mut world = World::new(moment, inventory(), Faults::default());
            world.ask(Micros::from_millis(10), "alice", "first", Request::Apply(apply(1)));
            world.run_for(Micros::from_secs(2));
            world.ask(Micros::default(), "alice", "second", Request::Apply(apply(2)));
            world.run_for(Micros(moment * 100));
            fault(&world.disk, true);
            world.run_for(Micros::from_secs(2));
            fault(&world.disk, false);
            world.run_for(Micros::from_secs(60));
            world.check_at_rest();
            let end = lit(&world);
            assert!(end == target(1) || end == target(2), "{what} from {moment}: {end:?}");
            *ends.entry(if end == target(1) { "old" } else { "new" }).or_default() += 1;
        }
        println!("S2: {what} from any of 200 moments of an apply on: {ends:?}, 0 mixed states");
        assert!(ends.len() == 2, "both ends happen: {ends:?}");
    }
}

#[test]
fn s2_detects_every_bit_flip_of_a_journal() {
    let bytes = crash_once(0, Recovery::FinishForward, None, Micros::default()).disk.bytes();
    let (records, _, damage) = read_all::<Record>(&bytes);
    assert!(damage.is_none());
    let mut flips = 0;
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (read, _, damage) = read_all::<Record>(&bytes);
        assert!(damage.is_some() && read.len() < records.len(), "bit {bit} went unnoticed");
        flips += 1;
    }
    println!("S2: {flips} single-bit flips of a journal of {} records, all found", records.len());
}

#[test]
fn s4_device_restart_at_any_operation_is_resumed_or_rolled_back() {
    let mut ends = BTreeMap::<&str, u32>::new();
    for (device, keeps) in [("ocs0", true), ("ocs0", false), ("n1/b1", true), ("n1/b1", false)] {
        for operation in 1..=20 {
            let mut world = World::new(operation, inventory(), Faults::default());
            world.ask(Micros::from_millis(10), "alice", "first", Request::Apply(apply(1)));
            world.run_for(Micros::from_secs(2));
            let boot = Micros::from_secs(3);
            world.reboots = Some(Reboot { device: device.into(), operation, keeps, boot });
            world.ask(Micros::default(), "alice", "second", Request::Apply(apply(2)));
            world.run_for(Micros::from_secs(300));
            world.check_at_rest();
            let end = lit(&world);
            let name = match () {
                () if end == target(2) => "new",
                () if end == target(1) => "old",
                // No command was in flight, so the lost circuit is drift.
                () => "drift listed",
            };
            *ends.entry(name).or_default() += 1;
        }
    }
    println!("S4: 80 restarts in the middle of a change: {ends:?}, 0 violations");
    assert!(ends["new"] > 0);
}

/// An inventory of 64 circuits, 48 on a switch and 16 on modules, with at most 16 dark at a time.
fn sixty_four() -> Inventory {
    let mut inventory = Inventory { dark_links_max: 16, ..Inventory::default() };
    inventory.devices.insert("ocs0".into(), Device::new(Sharing::Exclusive));
    for node in 0..16 {
        inventory.devices.insert(module(node), Device::new(Sharing::Independent));
    }
    inventory
}

fn turned(by: u32) -> Apply {
    let mut target = paths(&(0..16).map(|node| (node, 1 + by % 2)).collect::<Vec<_>>());
    let circuit = |slot| (Slot(slot), Position(101 + (slot + by) % 48));
    target.target.insert("ocs0".into(), (1..=48).map(circuit).collect());
    target.mode = Mode::Safe;
    target
}

/// Returns a world in the middle of the second change of all 64 circuits.
fn changes_sixty_four(reboot: Reboot) -> World {
    let mut world = World::new(reboot.operation, sixty_four(), Faults::default());
    world.ask(Micros::from_millis(10), "alice", "first", Request::Apply(turned(0)));
    world.run_for(Micros::from_secs(5));
    assert_eq!(lit(&world), turned(0).target);
    world.reboots = Some(reboot);
    world.ask(Micros::default(), "alice", "second", Request::Apply(turned(1)));
    world
}

/// S4: a device restarts during each operation of a change of 64 circuits. All circuits are
/// finished, undone or listed within the boot time plus five seconds.
#[test]
fn s4_restart_during_64_circuits_settles_soon_after_boot() {
    let boot = Micros::from_secs(3);
    let (mut ends, mut longest, mut restarts) = (BTreeMap::<&str, u32>::new(), 0, 0);
    for device in [DeviceName::from("ocs0"), module(0)] {
        let reboot = |operation, keeps| Reboot { device: device.clone(), operation, keeps, boot };
        let mut whole = changes_sixty_four(reboot(u64::MAX, true));
        while whole.ended.len() < 2 {
            whole.run_for(Micros(100));
        }
        let operations = u64::MAX - whole.reboots.unwrap().operation;
        for (operation, keeps) in (1..=operations).flat_map(|at| [(at, true), (at, false)]) {
            let mut world = changes_sixty_four(reboot(operation, keeps));
            while world.reboots.is_some() {
                world.run_for(Micros::from_millis(1));
            }
            let restarted = world.now.mono;
            let over = |world: &World| {
                let controller = world.controller().unwrap();
                let seen = &controller.sightings().devices()[&device];
                !controller.transactions().is_busy() && seen.is_read()
            };
            world.run_for(boot);
            while !over(&world) {
                world.run_for(Micros::from_millis(10));
                let took = world.now.mono - restarted;
                assert!(
                    took < boot + Micros::from_secs(5),
                    "{device} {operation} {keeps}: {took:?}"
                );
            }
            longest = longest.max((world.now.mono - restarted).0 / 1000);
            world.check_at_rest();
            let end = lit(&world);
            let name = match () {
                () if end == turned(1).target => "new",
                () if end == turned(0).target => "old",
                () => "listed",
            };
            *ends.entry(name).or_default() += 1;
            restarts += 1;
        }
    }
    println!(
        "S4: {restarts} restarts of {:.0} s in a change of 64 circuits, the longest over after {longest} ms: {ends:?}",
        boot.as_secs_f64()
    );
    assert!(ends["new"] > 0 && restarts > 40, "{ends:?}");
}

/// S4: the drain control restarts while it drains traffic, also during a rollback.
#[test]
fn s4_restarted_drain_control_is_read_before_its_next_command() {
    let mut pulled = 0;
    for operation in 1..=12 {
        let mut world = World::new(operation, inventory(), Faults::default());
        world.ask(Micros::from_millis(10), "alice", "first", Request::Apply(apply(1)));
        world.run_for(Micros::from_secs(2));
        let boot = Micros::from_secs(45);
        world.reboots = Some(Reboot { device: "switch0".into(), operation, keeps: true, boot });
        let mut second = apply(2);
        for node in 0..3 {
            let path = world.devices[&module(node)].positions[&SLOT].0;
            let other = Position(if path == 15 { 1 } else { 15 });
            second.target.insert(module(node), [(SLOT, other)].into());
        }
        world.ask(Micros::default(), "alice", "second", Request::Apply(second));
        world.run_for(Micros::from_secs(300));
        world.check_at_rest();
        pulled += u32::from(world.reboots.is_none());
    }
    assert!(pulled > 5, "the lever restarts in the middle of things: {pulled}");
}

#[test]
fn s1_recovers_ten_thousand_records_within_two_seconds() {
    let bytes = crash_once(0, Recovery::FinishForward, None, Micros::default()).disk.bytes();
    let (records, _, _) = read_all::<Record>(&bytes);
    let disk = Disk::default();
    let (mut journal, _) = Journal::<Record, _>::open(disk.journal().unwrap()).unwrap();
    journal.append(records.iter().cycle().take(10_000)).unwrap();
    let bytes = disk.bytes();
    let started = std::time::Instant::now();
    let (records, _, damage) = read_all::<Record>(&bytes);
    let ledger = Ledger::fold(&records);
    let taken = started.elapsed();
    assert!(damage.is_none() && ledger.last_txn == Txn(2));
    println!("S1: {} records, {} bytes, read in {taken:?}", records.len(), bytes.len());
    assert!(taken.as_secs() < 2);
}
