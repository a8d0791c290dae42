// SPDX-License-Identifier: Apache-2.0

use crate::scenes;
use lightloom_control::replan;
use lightloom_emulator::outcome::StageName;
use lightloom_emulator::scenario::{On, plan as plan_run};
use lightloom_emulator::shipped::{ControlSide, DaemonSetup, Happened};
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_twin::World;
use lightloom_units::seed::Seed;
use lightloom_units::{Picoseconds, SimTime};
use scenes::{read, ring, run, scene, took};

const DEAD: &str = "{part: n9, at: 100us}";

#[test]
fn equal_seeds_give_equal_runs_on_any_thread_count() {
    let fabric = ring(32, 96);
    let of = |seed, threads| {
        let outcome = run(&fabric, &scene(seed, 20, "lightloomd", DEAD), threads);
        (outcome.faults.clone(), outcome.lightloomd.clone(), outcome.groups.clone())
    };
    assert_eq!(of(7, 1), of(7, 1));
    assert_eq!(of(7, 1), of(7, 2));
    assert_ne!(of(7, 1).0[0].timeline, of(8, 1).0[0].timeline, "the seed moves polls and wake-ups");
}

#[test]
fn slow_disk_delays_light_by_its_flush() {
    let fabric = ring(32, 96);
    let slow = format!("{{part: control, effect: {{slow_disk: 50ms}}, at: 0us}}, {DEAD}");
    let journal = |faults: &str| {
        let outcome = run(&fabric, &scene(1, 20, "lightloomd", faults), 1);
        let dead = outcome.faults.iter().find(|fault| fault.parts == ["n9"]).unwrap();
        took(dead, StageName::Journalled).unwrap()
    };
    assert_eq!(journal(DEAD), Picoseconds::from_micros(500));
    assert_eq!(journal(&slow), Picoseconds::from_millis(50));
}

#[test]
fn killed_daemon_finishes_the_bypass_after_restart() {
    let fabric = ring(32, 96);
    for at in [1, 3, 6, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 24] {
        let faults = format!("{DEAD}, {{part: control, at: {at}ms, lasts: 20ms}}");
        let outcome = run(&fabric, &scene(1, 20, "lightloomd", &faults), 1);
        let daemon = outcome.lightloomd.as_ref().unwrap();
        assert!(daemon.violations.is_empty(), "killed at {at} ms: {:?}", daemon.violations);
        assert_eq!(daemon.restarts, 1, "killed at {at} ms");
        let ended = outcome.groups.iter().filter(|group| group.end.is_some()).count();
        assert_eq!(ended, outcome.groups.len(), "killed at {at} ms: {:?}", outcome.stop);
    }
}

/// A module that the bypass needs reports a move that it did not make. Reading back detects this.
#[test]
fn read_back_detects_a_lying_module() {
    let fabric = ring(32, 96);
    let honest = run(&fabric, &scene(1, 20, "lightloomd", DEAD), 1);
    let mut lied = 0;
    for node in (0..32).filter(|node| *node != 9) {
        for bundle in 0..2 {
            if lied > 0 {
                break;
            }
            let liar = format!("{{part: n{node}/b{bundle}, effect: lies, at: 0us}}, {DEAD}");
            let outcome = run(&fabric, &scene(1, 20, "lightloomd", &liar), 1);
            let daemon = outcome.lightloomd.as_ref().unwrap();
            assert!(daemon.violations.is_empty(), "{liar}: {:?}", daemon.violations);
            lied += u64::from(daemon.not_committed > 0);
        }
    }
    assert_eq!(honest.lightloomd.unwrap().not_committed, 0);
    assert!(lied > 0, "at least one module has to move");
}

#[test]
fn late_module_delays_the_bypass() {
    let fabric = ring(32, 96);
    let all = |faults: &str| {
        let outcome = run(&fabric, &scene(1, 20, "lightloomd", faults), 1);
        let dead = outcome.faults.iter().find(|fault| fault.parts == ["n9"]).unwrap().clone();
        dead.restored.unwrap().since(dead.at.unwrap())
    };
    let late = (0..32).filter(|node| *node != 9).flat_map(|node| [0, 1].map(|b| (node, b)));
    let late: Vec<String> = late
        .map(|(node, bundle)| {
            format!("{{part: n{node}/b{bundle}, effect: {{late: 2ms}}, at: 0us}}")
        })
        .collect();
    let (usual, slower) = (all(DEAD), all(&format!("{}, {DEAD}", late.join(", "))));
    assert!(slower > usual + Picoseconds::from_millis(4), "{usual} and {slower}");
}

#[test]
fn flapping_fibre_stays_within_the_bypass_limit() {
    let fabric = ring(32, 96);
    let flaps = "{part: n9/b0.1, effect: {flapping: {down: 3ms, up: 20ms, times: 20}}, at: 100us}";
    let outcome = run(&fabric, &scene(1, 20, "lightloomd", flaps), 1);
    let daemon = outcome.lightloomd.as_ref().unwrap();
    assert!(daemon.violations.is_empty(), "{:?}", daemon.violations);
    assert!(daemon.bypasses <= 10, "{}", daemon.bypasses);
    assert!(outcome.groups.iter().all(|group| group.end.is_some()));
}

/// Receivers lock some time after light returns, during the daemon's qualification or even later.
#[test]
fn links_carry_packets_after_receivers_lock() {
    let after_light = |relock: &str| {
        let fabric = format!("{}\ntransceiver: {{relock: {relock}}}\n", ring(32, 96));
        let outcome = run(&fabric, &scene(1, 20, "lightloomd", DEAD), 1);
        let dead = outcome.faults.iter().find(|fault| fault.parts == ["n9"]).unwrap();
        let end = |stage| dead.timeline.iter().find(|bar| bar.stage == stage).unwrap().end;
        let light = end(StageName::Switched);
        let waits =
            [StageName::Qualified, StageName::Relocked].map(|stage| end(stage).since(light));
        (waits, dead.relock.unwrap())
    };
    let ([qualified, usable], _) = after_light("0s");
    assert_eq!(qualified, usable, "nothing to wait for");
    let (waits, relock) = after_light("8ms");
    assert_eq!((waits, relock), ([qualified, relock], Picoseconds::from_millis(8)));
    let (waits, _) = after_light("1ms");
    assert_eq!(waits, [qualified, qualified], "hidden behind {qualified} of qualification");
}

#[test]
fn gpus_of_a_failed_node_are_counted_once() {
    let dead = "{part: n2, at: 100us}";
    let outcome = run(&ring(8, 32), &scene(1, 20, "lightloomd", dead), 1);
    let fault = &outcome.faults[0];
    assert_eq!(outcome.lightloomd.as_ref().unwrap().bypasses, 1);
    assert_eq!(fault.gpus_lost, 16, "{fault}");
}

/// A bundle that receives no light still sends it and replies, so only its fibre is bypassed.
#[test]
fn fault_towards_one_end_leaves_the_module_in_service() {
    let fabric = ring(32, 96);
    let healthy = read(&fabric, &scene(1, 20, "lightloomd", "")).unwrap();
    let On::Fabric(installed) = &healthy.on else { panic!("it runs on a fabric") };
    let plan = replan::plan_anew(installed, &FaultSet::none(), Seed(1)).unwrap();
    let bundle = plan.circuits[0].a.bundle;
    let node = bundle.node;
    let faults = (0..4).map(|gpu| format!("{{part: {bundle}, towards: {node}/g{gpu}, at: 1us}}"));
    let mut broken = faults.filter_map(|f| read(&fabric, &scene(1, 20, "lightloomd", &f)).ok());
    let broken = plan_run(&broken.next().expect("an end of its cables")).unwrap();
    let mut world = World::new(installed, &plan, &DaemonSetup::default(), Seed(1)).unwrap();
    let (mut out, mut bypassed) = (Vec::new(), Vec::new());
    world.fault(SimTime::START, &broken.events[0], true, &mut out);
    world.advance(SimTime::START + Picoseconds::from_millis(200), &mut out);
    for (_, what) in out {
        if let Happened::Bypassing(parts) = what {
            bypassed.extend(parts);
        }
    }
    assert!(matches!(bypassed[..], [Part::Fibre(_)]), "{bypassed:?}");
}

#[test]
fn bypass_that_failed_at_a_stuck_bundle_is_retried_immediately() {
    let fabric = ring(32, 96);
    let mut retried = 0;
    for (node, bundle) in (0..32).filter(|node| *node != 9).flat_map(|node| [(node, 0), (node, 1)])
    {
        let stuck = format!("{{part: n{node}/b{bundle}, effect: stuck, at: 0us}}, {DEAD}");
        let outcome = run(&fabric, &scene(1, 20, "lightloomd", &stuck), 1);
        let daemon = outcome.lightloomd.as_ref().unwrap();
        assert!(daemon.violations.is_empty(), "{stuck}: {:?}", daemon.violations);
        let dead = outcome.faults.iter().find(|fault| fault.parts == ["n9"]).unwrap();
        let Some(restored) = dead.restored.filter(|_| daemon.not_committed > 0) else { continue };
        let took = restored.since(dead.at.unwrap());
        assert!(took <= Picoseconds::from_millis(300), "{stuck}: {took}");
        retried += 1;
        if retried == 2 {
            return;
        }
    }
    panic!("no stuck bundle had to move: {retried}");
}
