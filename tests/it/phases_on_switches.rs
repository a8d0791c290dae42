// SPDX-License-Identifier: Apache-2.0
//! Tests phases of a reconfigurable fat-tree with `lightloom plan`, the daemon, emulated SCPI and
//! TL1 switches and a real Redis for SONiC. Minimal protocol clients compare the circuits with
//! vectors hand-written from the plan, without code from drivers and exports. Needs `redis-server`
//! (Debian: `apt-get install redis-server`) for SONiC.

use crate::phases_rig as rig;
use rig::{Rig, Third};
use serde_json::Value;

/// Phase `experts` on ocs0 and ocs1 in TL1 notation.
///
/// The plan connects ports (0, 2), (1, 3), (4, 6), (5, 7) of each switch. On an 8 × 8 switch, port n is ingress n + 1
/// and egress n + 9; on SONiC it is n + 1.
const EXPERTS: [&str; 2] =
    ["1,11 2,12 3,9 4,10 5,15 6,16 7,13 8,14", "1,11 2,12 3,9 4,10 5,15 6,16 7,13 8,14"];
/// `experts` on ocs1 in SCPI notation, and on ocs2 for each kind of switch.
const EXPERTS_SCPI: &str = "(@1,2,3,4,5,6,7,8),(@11,12,9,10,15,16,13,14)";
const EXPERTS_TL1: &str = "1,11 2,12 3,9 4,10 5,15 6,16 7,13 8,14";
const EXPERTS_SONIC: &str = "1A-3B 2A-4B 3A-1B 4A-2B 5A-7B 6A-8B 7A-5B 8A-6B";

/// Phase `weights`: (0, 4), (1, 5), (2, 6), (3, 7) on each switch.
const WEIGHTS: [&str; 2] =
    ["1,13 2,14 3,15 4,16 5,9 6,10 7,11 8,12", "1,13 2,14 3,15 4,16 5,9 6,10 7,11 8,12"];
const WEIGHTS_SCPI: &str = "(@1,2,3,4,5,6,7,8),(@13,14,15,16,9,10,11,12)";
const WEIGHTS_TL1: &str = "1,13 2,14 3,15 4,16 5,9 6,10 7,11 8,12";
const WEIGHTS_SONIC: &str = "1A-5B 2A-6B 3A-7B 4A-8B 5A-1B 6A-2B 7A-3B 8A-4B";

const DARK: [&str; 3] = ["", "", ""];

type Pairs = [&'static [(u32, u32)]; 3];
const PLANNED: [(&str, Pairs); 2] = [
    (
        "experts",
        [
            &[(0, 2), (1, 3), (4, 6), (5, 7)],
            &[(0, 2), (1, 3), (4, 6), (5, 7)],
            &[(0, 2), (1, 3), (4, 6), (5, 7)],
        ],
    ),
    (
        "weights",
        [
            &[(0, 4), (1, 5), (2, 6), (3, 7)],
            &[(0, 4), (1, 5), (2, 6), (3, 7)],
            &[(0, 4), (1, 5), (2, 6), (3, 7)],
        ],
    ),
];

fn must_be_planned(plan: &Value) {
    for (phase, circuits) in PLANNED {
        let phases = plan["phases"].as_array().unwrap();
        let found = phases.iter().find(|found| found["name"] == phase).unwrap();
        for (ocs, expected) in ["ocs0", "ocs1", "ocs2"].iter().zip(circuits) {
            let of_switch = found["circuits"].as_array().unwrap().iter();
            let of_switch = of_switch.filter(|circuit| circuit["ocs"] == *ocs);
            let ports = |circuit: &Value| {
                let port = |key: &str| u32::try_from(circuit[key].as_u64().unwrap()).unwrap();
                (port("a_port"), port("b_port"))
            };
            let planned: Vec<_> = of_switch.map(ports).collect();
            assert_eq!(planned, expected, "{phase} {ocs}: the plan is another, write new vectors");
        }
    }
}

fn phases_are_lit(third: Third, vectors: [&str; 2]) {
    let Some(rig) = Rig::start(third) else { return };
    must_be_planned(&rig.plan());
    let (experts, weights) = (
        [EXPERTS[0], EXPERTS[1], vectors[0]].map(str::to_owned),
        [WEIGHTS[0], WEIGHTS[1], vectors[1]].map(str::to_owned),
    );

    // The plan contains stages only between phases, not from dark switches.
    let said = rig.ctl(&["apply", "PLAN", "--phase", "experts", "--dry-run"]);
    assert!(said.contains("phase experts without stages"), "{said}");
    assert_eq!(rig.lit(), DARK, "a dry run moves nothing");
    let said = rig.ctl(&["apply", "PLAN", "--phase", "experts"]);
    assert!(said.contains("committed"), "{said}");
    assert_eq!(rig.lit(), experts);
    assert_eq!(rig.scpi(1), EXPERTS_SCPI);

    let said = rig.ctl(&["apply", "PLAN", "--phase", "weights", "--dry-run"]);
    assert!(said.contains("phase weights in the plan's 3 stages from experts"), "{said}");
    assert!(said.contains("24 moves on 3 devices in 3 waves"), "{said}");
    assert_eq!(rig.waves(&said), ["1 ocs0", "2 ocs1", "3 ocs2"]);

    for (to, from_lit, to_lit, to_scpi) in [
        ("weights", &experts, &weights, WEIGHTS_SCPI),
        ("experts", &weights, &experts, EXPERTS_SCPI),
        ("weights", &experts, &weights, WEIGHTS_SCPI),
    ] {
        let (said, seen) = rig.ctl_watched(&["apply", "PLAN", "--phase", to]);
        assert!(said.contains("committed"), "{said}");
        assert_eq!(rig.lit(), *to_lit);
        assert_eq!(rig.scpi(1), to_scpi);
        // Stages are ocs0, ocs1, ocs2. Samples are read in the order 2, 1, 0, so all stages before a switch
        // that has started must be complete.
        let moved = |sample: &[String; 3], at: usize| sample[at] != from_lit[at];
        let mut between = 0;
        for sample in &seen {
            if moved(sample, 2) {
                assert_eq!(sample[1], to_lit[1], "ocs2 moved before ocs1 was done: {sample:?}");
            }
            if moved(sample, 1) {
                assert_eq!(sample[0], to_lit[0], "ocs1 moved before ocs0 was done: {sample:?}");
            }
            between += usize::from(moved(sample, 0) && !moved(sample, 2));
        }
        assert!(between > 0, "no sample of {} was taken between two stages", seen.len());
    }
    let journal = rig.ctl(&["journal"]);
    assert!(journal.contains("phase experts in the plan's 3 stages from weights"), "{journal}");
    // ocs0 accepts one SCPI client, so the daemon must stop first; its light stays on.
    rig.stop();
    assert_eq!(rig.scpi(0), WEIGHTS_SCPI);
}

#[test]
fn lights_phases_on_scpi_and_tl1_switches_in_stages() {
    phases_are_lit(Third::Tl1, [EXPERTS_TL1, WEIGHTS_TL1]);
}

#[test]
fn lights_phases_on_sonic_scpi_and_tl1_switches() {
    phases_are_lit(Third::Sonic, [EXPERTS_SONIC, WEIGHTS_SONIC]);
}

#[test]
fn lights_phases_on_gnmi_scpi_and_tl1_switches() {
    phases_are_lit(Third::Gnmi, [EXPERTS_TL1, WEIGHTS_TL1]);
}

#[test]
fn sonic_export_contains_the_circuits_the_daemon_sets() {
    let folder = tempfile::tempdir().unwrap();
    rig::write_fabric(folder.path());
    for (phase, expected) in [("experts", EXPERTS_SONIC), ("weights", WEIGHTS_SONIC)] {
        let file = rig::exported(folder.path(), phase, "ocs2");
        let entries = file["OCS_CROSS_CONNECT"].as_object().unwrap();
        let mut keys: Vec<&str> = entries.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys.join(" "), expected, "{phase}");
    }
}

#[test]
fn rejects_foreign_or_edited_plans_without_moving() {
    let rig = Rig::start(Third::Tl1).unwrap();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut plan = rig.plan();
        change(&mut plan);
        rig.refused(&plan, &["--phase", "weights"])
    };
    let other = refused(&|plan| plan["fabric_sha256"] = "0123456789abcdef".repeat(4).into());
    assert!(
        other
            .contains("for a different fabric of 32 GPUs without transceivers (file 0123456789ab)"),
        "{other}"
    );
    let port = refused(&|plan| plan["phases"][1]["circuits"][0]["a_port"] = 4.into());
    assert!(port.contains("port 4 is not wired to leaf0"), "{port}");
    let stage = refused(&|plan| {
        plan["transitions"][1]["stages"].as_array_mut().unwrap().pop();
    });
    assert!(stage.contains("the stages do not produce the circuits of the next phase"), "{stage}");
    let lambda = refused(&|plan| plan["phases"][0]["lambda"] = 100.0.into());
    assert!(lambda.contains("times per second on its routes, not 100"), "{lambda}");
    let names = refused(&|plan| {
        plan["phases"][0]["name"] = "weights".into();
        plan["phases"][1]["name"] = "experts".into();
    });
    assert!(names.contains("phase weights has the name experts in the fabric file"), "{names}");
    let phase = rig.refused(&rig.plan(), &["--phase", "sync"]);
    assert!(phase.contains("its phases are experts, weights"), "{phase}");
    let none = rig.refused(&rig.plan(), &[]);
    assert!(none.contains("choose a phase with `--phase`: experts, weights"), "{none}");
    assert_eq!(rig.lit(), DARK);
}

#[test]
fn switch_of_unexpected_size_is_not_moved() {
    let rig = Rig::start(Third::OtherSize).unwrap();
    let why = rig.refused(&rig.plan(), &["--phase", "experts"]);
    let expected = "the switch has 9 ingress and 9 egress ports, but the fabric file says `ports_per_switch: 8`";
    assert!(why.contains(expected), "{why}");
    assert_eq!(rig.lit(), DARK, "no switch moved");
}

#[test]
fn rejects_daemon_file_that_contradicts_its_fat_tree() {
    let folder = tempfile::tempdir().unwrap();
    rig::write_fabric(folder.path());
    let file = "state_dir: state\nfabric: small.yaml\npolicies: {on_fault: bypass}\ndevices:\n\
                - {name: ocs3, driver: {scpi: {tcp: 'x:1'}}}\n- {name: n0/b0, driver: {ocstrx: {serial: x}}}\n\
                - {name: ocs0, driver: {linux: {}}}\n";
    std::fs::write(folder.path().join("daemon.yaml"), file).unwrap();
    let error = lightloom_daemon::start::read_files(&folder.path().join("daemon.yaml"));
    let error = error.unwrap_err().to_string();
    for line in [
        "error[LL0606]: ocs3 is not in the fabric",
        "error[LL0606]: n0/b0 is not in the fabric",
        "error[LL0606]: ocs0 is an optical switch, but has a driver for other devices",
        "error[LL0606]: a reconfigurable fat-tree has no rings, so faults cannot be bypassed",
        "the fabric `small` is a reconfigurable fat-tree with the switches ocs0 to ocs2",
    ] {
        assert!(error.contains(line), "{line} is not in:\n{error}");
    }
}
