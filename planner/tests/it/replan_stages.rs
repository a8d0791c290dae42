// SPDX-License-Identifier: Apache-2.0
//! The stages of a change from plan to plan pass the checker, and the checker finds damage to them.

use crate::joint_fabric::{fabric, faults};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::FaultSet;
use lightloom_fabric::plan::{ChangeStage, Plan};
use lightloom_planner::check::check_stages;
use lightloom_planner::joint::{self, replan};
use lightloom_planner::{Options, plan};

const JOB: &str = include_str!("../../../topologies/job-64-circuits.yaml");
const RING: &str = include_str!("../../../topologies/ring-32.yaml");

struct ChangedPlan {
    fabric: Fabric,
    faults: FaultSet,
    before: Plan,
    next: Plan,
    stages: Vec<ChangeStage>,
}

fn changed(text: &str, parts: &[&str]) -> ChangedPlan {
    let (fabric, options) = (fabric(text), Options { compare: false, ..Options::default() });
    let faults = faults(&fabric, parts);
    let before = plan(&fabric, &FaultSet::none(), options).expect("a plan");
    let next = replan(&fabric, &before, &faults, false, options).expect("a next plan").plan;
    let stages = joint::stages(&fabric, &faults, &before, &next).expect("stages");
    ChangedPlan { fabric, faults, before, next, stages }
}

impl ChangedPlan {
    fn is_sound(&self, stages: &[ChangeStage]) -> bool {
        let Self { fabric, faults, before, next, .. } = self;
        let checked = check_stages(fabric, faults, before, next, stages);
        println!("{}: {checked:?}", fabric.name);
        checked.is_ok()
    }
}

#[test]
fn stages_of_bundles_and_switches_are_proven() {
    for (text, parts) in
        [(RING, &["n3"][..]), (RING, &["n3/b0", "n9"]), (JOB, &["n3"]), (JOB, &["ocs0/p3", "n9"])]
    {
        let change = changed(text, parts);
        println!("{:?}", change.stages);
        assert!(change.is_sound(&change.stages), "{parts:?}");
        assert!(change.stages.iter().all(|stage| stage.capacity > 0.0), "{parts:?}");
    }
    let change = changed(RING, &[]);
    assert!(change.stages.is_empty() && change.is_sound(&[]));
}

#[test]
fn damage_to_stages_is_found() {
    let change = changed(JOB, &["ocs0/p3", "n9"]);
    let phases: Vec<usize> = change.stages.iter().map(|stage| stage.phases.len()).collect();
    assert_eq!(phases, [0, 1, 1], "bundles, then the switches for each phase");
    let damages: [fn(&mut Vec<ChangeStage>); 7] = [
        |stages| assert!(stages.pop().is_some()),
        |stages| assert!(!stages.remove(0).bundles.is_empty()),
        |stages| assert!(stages[0].bundles.pop().is_some()),
        |stages| stages[0].circuits_up += 1,
        |stages| stages[0].capacity = 1.0,
        |stages| stages[1].circuits_up -= 1,
        |stages| {
            let merged = stages.pop().expect("a stage").circuits;
            let last = stages.last_mut().expect("a stage");
            last.circuits.remove.extend(merged.remove);
            last.circuits.add.extend(merged.add);
        },
    ];
    for (at, damage) in damages.iter().enumerate() {
        let mut stages = change.stages.clone();
        damage(&mut stages);
        assert!(!change.is_sound(&stages), "damage {at}");
    }
}
