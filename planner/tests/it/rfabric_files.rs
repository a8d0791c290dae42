// SPDX-License-Identifier: Apache-2.0
//! The shipped reconfigurable fat-trees must load, and their plans must pass the checker.

use std::path::PathBuf;

use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::Plan;
use lightloom_planner::check::check;
use lightloom_planner::{Options, load, plan};
use lightloom_units::Picoseconds;

fn checked_plan(name: &str) -> Plan {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../topologies").join(name);
    let text = std::fs::read(path).expect("the file is there");
    let (fabric, mistakes) = load(name, &text, &mut |file| Err(format!("no {file}")));
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let (fabric, none) = (fabric.expect("no mistakes"), FaultSet::none());
    let plan = plan(&fabric, &none, Options::default()).expect("a plan");
    let verdict = check(&fabric, &none, &plan).expect("a sound plan");
    assert!(verdict.cross_connects > 0, "{name}");
    plan
}

#[test]
fn fast_switching_gives_each_phase_its_own_circuits() {
    for name in ["rfabric-2048.yaml", "rfabric-moe.yaml", "rfabric-workloads.yaml"] {
        let plan = checked_plan(name);
        assert!(!plan.transitions.is_empty(), "{name}");
        assert!(plan.metrics.step_time_ps < plan.metrics.static_step_time_ps, "{name}");
    }
}

/// With one hop, a step took 79.8 ms and changed its circuits twice.
#[test]
fn routes_save_circuit_changes() {
    let plan = checked_plan("rfabric-shapes.yaml");
    assert!(plan.transitions.is_empty());
    assert!(plan.phases.iter().any(|phase| !phase.routes.is_empty()));
    assert!(plan.metrics.step_time_ps < Some(Picoseconds::from_millis(79)));
}

#[test]
fn slow_links_keep_one_topology() {
    let plan = checked_plan("rfabric-slow-links.yaml");
    assert!(plan.transitions.is_empty());
    assert_eq!(plan.metrics.step_time_ps, plan.metrics.static_step_time_ps);
}
