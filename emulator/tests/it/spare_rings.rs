// SPDX-License-Identifier: Apache-2.0
//! N + 1 rings, packet by packet: light passes a node without ranks, and one failure moves two
//! modules.

use crate::fabric;
use fabric::FABRIC;
use lightloom_emulator::emulate;
use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_units::id::GroupId;

const SCENARIO: &str = "
kind: scenario
version: 2
name: spare
on: {fabric: pod.yaml}
collectives: [{all_reduce: {name: tensor, bytes: 256KiB, repeat: 40, directions: one}}]
control: {detection_delay: 20us, planning_delay: 20us}
";

fn run(fabric: &str, scenario: &str, threads: usize) -> Outcome {
    let read = &mut |name: &str| {
        Ok(NamedFile { name: name.to_owned(), bytes: fabric.as_bytes().to_vec() })
    };
    let (scenario, mistakes) = scenario::file::load("s.yaml", scenario.as_bytes(), read);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    emulate(&scenario, threads, &mut ()).unwrap()
}

fn spare() -> String {
    FABRIC.replace("k: 3}", "k: 3, spare_per_ring: 1}")
}

#[test]
fn node_fault_moves_two_modules_and_the_job_continues() {
    let (mut deaths_in_rings, mut ends) = (0, 0);
    for node in 0..24 {
        let faults = format!("faults: [{{part: n{node}, at: 30us}}]");
        let outcome = run(&spare(), &(SCENARIO.to_owned() + &faults), 1);
        let [fault] = outcome.faults.as_slice() else { panic!("one fault") };
        assert!(outcome.stop.is_none() && !outcome.never_ended, "n{node}: {:?}", outcome.waiting);
        assert!(outcome.groups.iter().all(|group| group.end.is_some() && !group.lost), "n{node}");
        // Only its own GPUs are out of service.
        assert_eq!(fault.gpus_lost, 4, "n{node}");
        // Four rings of five nodes: the other four nodes are idle.
        match fault.groups_affected.as_slice() {
            [] => assert_eq!(fault.bundles_switched, 0, "n{node}"),
            [_] => {
                assert!((1..=2).contains(&fault.bundles_switched), "n{node} moves {fault:?}");
                assert!(fault.restored.is_some(), "n{node}");
                deaths_in_rings += 1;
                ends += usize::from(fault.bundles_switched == 1);
            }
            groups => panic!("n{node} disturbs {groups:?}"),
        }
        let others =
            outcome.groups.iter().filter(|group| !fault.groups_affected.contains(&group.group));
        for group in others {
            assert_eq!(group.end, group.end_without_faults, "n{node}: {}", group.group);
        }
    }
    // An end of a chain has one neighbour, and a ring has two ends.
    assert_eq!((deaths_in_rings, ends), (20, 8));
}

#[test]
fn passing_a_node_adds_only_its_link_delay() {
    let took = |fabric: &str| {
        let outcome = run(fabric, SCENARIO, 1);
        outcome.workloads.iter().map(|one| one.end.unwrap().since(one.start).0).max().unwrap()
    };
    let (plain, spare) = (took(FABRIC), took(&spare()));
    // A node that passes light on adds four links. Every part of the data crosses each link once or
    // twice in one direction around a ring. A full packet of 4 KiB takes 10.24 ns at 3.2 Tb/s, a
    // link 100 ns inside a node and 200 ns between nodes.
    let (least, most) = (4 * (100_000 + 160), 2 * 4 * (200_000 + 10_240));
    assert!((plain + least..=plain + most).contains(&spare), "{plain} {spare}");
}

#[test]
fn spare_rings_match_on_any_thread_count() {
    let scenario =
        SCENARIO.to_owned() + "faults: [{part: n2, at: 30us, lasts: 400us}, {part: n9, at: 50us}]";
    let outcome = run(&spare(), &scenario, 1);
    for threads in [2, 3, 7] {
        let other = run(&spare(), &scenario, threads);
        assert_eq!((&other.workloads, &other.faults), (&outcome.workloads, &outcome.faults));
        assert_eq!(other.head.packets, outcome.head.packets);
    }
    let packets = outcome.head.packets;
    assert_eq!(
        packets.sent,
        packets.delivered + packets.dropped + packets.lost + packets.in_flight
    );
    assert!(outcome.groups.iter().all(|group| group.group == GroupId(0) || group.end.is_some()));
}
