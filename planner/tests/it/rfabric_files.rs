// SPDX-License-Identifier: Apache-2.0
//! The reconfigurable fat-trees that come with lightloom can be read and planned, and the plans pass the
//! checker.

use std::path::PathBuf;

use lightloom_planner::rfabric::check::check;
use lightloom_planner::rfabric::demand::Demand;
use lightloom_planner::rfabric::file::{self, RfabricInput};
use lightloom_planner::rfabric::{RfabricPlan, plan};

fn load(name: &str) -> RfabricInput {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../topologies").join(name);
    let text = std::fs::read(path).expect("the file is there");
    let (input, mistakes) = file::load(name, &text, &mut |file| Err(format!("no {file}")));
    assert!(mistakes.is_empty(), "{mistakes:?}");
    input.expect("no mistakes")
}

fn checked_plan(input: &RfabricInput) -> RfabricPlan {
    let plan = plan(&input.fabric, &input.phases, &[], input.options).expect("a plan");
    let demands: Vec<Demand> = input.phases.iter().map(|phase| phase.demand.clone()).collect();
    assert_eq!(check(&input.fabric, &demands, &plan), Vec::<String>::new());
    plan
}

#[test]
fn phases_get_their_own_circuits_where_switching_is_quick() {
    for name in ["rfabric-2048.yaml", "rfabric-moe.yaml", "rfabric-shapes.yaml"] {
        let plan = checked_plan(&load(name));
        assert!(!plan.transitions.is_empty(), "{name}");
        assert!(Some(plan.step_time_ps) < plan.static_step_time_ps, "{name}");
    }
}

#[test]
fn links_that_need_seconds_keep_one_topology() {
    let plan = checked_plan(&load("rfabric-slow-links.yaml"));
    assert!(plan.transitions.is_empty());
    assert_eq!(Some(plan.step_time_ps), plan.static_step_time_ps);
}
