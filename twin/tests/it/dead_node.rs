// SPDX-License-Identifier: Apache-2.0
//! A node dies in the middle of an all-reduce: every stage of what the shipping daemon does about it.

use crate::scenes;
use cpu_time::ProcessTime;
use lightloom_emulator::outcome::StageName;
use scenes::{ring, run, scene};

#[test]
fn a_node_that_dies_is_bypassed_and_its_ring_goes_on() {
    let began = ProcessTime::now();
    let outcome = run(&ring(64, 240), &scene(1, 40, "lightloomd", "{part: n9, at: 100us}"), 1);
    let fault = &outcome.faults[0];
    for stage in &fault.timeline {
        println!("{:<14} {:>10.3} us", stage.stage, stage.took.get() as f64 / 1e6);
    }
    println!("{:.2} s of processor time", began.elapsed().as_secs_f64());
    let daemon = outcome.lightloomd.as_ref().unwrap();
    assert!(daemon.violations.is_empty(), "{:?}", daemon.violations);
    assert_eq!((daemon.bypasses, daemon.false_bypasses), (1, 0));
    assert_eq!(fault.groups_affected.len(), 1);
    let stages: Vec<StageName> = fault.timeline.iter().map(|one| one.stage).collect();
    assert_eq!(stages, StageName::ALL);
    for group in &outcome.groups {
        let is_affected = fault.groups_affected.contains(&group.group);
        assert!(group.end.is_some(), "{group:?}");
        assert_eq!(group.end == group.end_without_faults, !is_affected, "{group:?}");
    }
}
