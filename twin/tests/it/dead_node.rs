// SPDX-License-Identifier: Apache-2.0

use crate::scenes;
use cpu_time::ProcessTime;
use lightloom_emulator::outcome::{NotRestored, StageName};
use lightloom_fabric::khop::Path;
use lightloom_units::id::BundleId;
use scenes::{read, ring, run, run_read, scene};

#[test]
fn leaves_initial_faults_alone_and_bypasses_the_next_one() {
    let text = scene(1, 40, "lightloomd", "{part: n9, at: 20ms}");
    let text = text.replace("seed: 1", "broken: [n3, n20/b0]\nseed: 1");
    let outcome = run(&ring(64, 240), &text, 1);
    let daemon = outcome.lightloomd.as_ref().unwrap();
    assert!(daemon.violations.is_empty(), "{:?}", daemon.violations);
    assert_eq!((daemon.bypasses, daemon.false_bypasses, daemon.not_committed), (1, 0, 0));
    let own: Vec<_> = outcome.faults.iter().filter(|fault| fault.parts == ["n9"]).collect();
    assert!(own[0].restored.is_some(), "{own:?}");
    assert!(outcome.groups.iter().all(|group| group.end.is_some() && !group.lost));
}

/// No module receives light from a bundle in loopback, and an unreachable module is not treated as
/// failed, so the bundle is not bypassed. The node's other bundle is, because its neighbour loses
/// light.
#[test]
fn unresponsive_bundle_in_loopback_is_not_treated_as_failed() {
    let at = |bundle: &str| scene(1, 40, "lightloomd", &format!("{{part: {bundle}, at: 100us}}"));
    let (start, _) = run_read(&read(&ring(64, 240), &at("n0/b0")).unwrap(), 1);
    let (plan, _) = start.plan.as_deref().unwrap();
    let is_used = |bundle: BundleId| plan.ranks.iter().any(|rank| rank.gpu.node == bundle.node);
    let first = |is_looped: bool| {
        let found = plan
            .transceivers
            .iter()
            .find(|one| is_used(one.bundle) && (one.path == Path::Loopback) == is_looped);
        found.unwrap().bundle.to_string()
    };
    let looped = run(&ring(64, 240), &at(&first(true)), 1);
    let fault = &looped.faults[0];
    assert_eq!(fault.not_restored, Some(NotRestored::InLoopback), "{fault:?}");
    assert_eq!(looped.lightloomd.as_ref().unwrap().bypasses, 0);
    let between = run(&ring(64, 240), &at(&first(false)), 1);
    let fault = &between.faults[0];
    assert!(fault.restored.is_some() && fault.not_restored.is_none(), "{fault:?}");
}

#[test]
fn bypasses_a_failed_node_and_its_ring_continues() {
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
