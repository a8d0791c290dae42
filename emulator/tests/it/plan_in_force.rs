// SPDX-License-Identifier: Apache-2.0
//! A scenario runs under the given plan and no other.

use std::sync::Arc;

use lightloom_emulator::emulate;
use lightloom_emulator::scenario::file::{LoadPurpose, NamedFile};
use lightloom_emulator::scenario::{self, RunStart, Scenario};
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::fault::{FaultSet, Part};
use lightloom_fabric::plan::Plan;
use lightloom_planner::Options;
use lightloom_units::seed::Seed;

fn fabric_text(name: &str) -> String {
    format!(
        "kind: fabric\nversion: 2\nname: {name}\nhbd: {{khop: {{nodes: 24, gpus_per_node: 4, k: 3}}}}\n\
         jobs: [{{name: train, gpus: 64, tp: 16}}]\n"
    )
}

fn plan_of(name: &str, broken: &[Part]) -> Plan {
    let mut none = |name: &str| Err(format!("no {name}"));
    let read = lightloom_planner::load("fabric.yaml", fabric_text(name).as_bytes(), &mut none);
    let fabric: Fabric = read.0.expect("the fabric is good");
    let faults = FaultSet::of(&fabric, broken.iter().copied()).unwrap();
    lightloom_planner::plan(&fabric, &faults, Options::default()).unwrap()
}

fn loaded(plan: &Plan, more: &str) -> (Option<Scenario>, Vec<String>) {
    let mut read = |name: &str| {
        let bytes = match name {
            "plan.json" => serde_json::to_vec(plan).unwrap(),
            _ => fabric_text("small").into_bytes(),
        };
        Ok(NamedFile { name: name.to_owned(), bytes })
    };
    let text = format!(
        "name: in-force\non: {{plan: plan.json, fabric: fabric.yaml}}\n\
         collectives: [{{all_reduce: {{name: tensor, bytes: 64KiB}}}}]\n{more}"
    );
    let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), &mut read);
    (scenario, mistakes.iter().map(ToString::to_string).collect())
}

fn started(plan: &Plan, more: &str) -> (Scenario, RunStart) {
    let (scenario, mistakes) = loaded(plan, more);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    let start = scenario::plan(&scenario).unwrap();
    (scenario, start)
}

#[test]
fn runs_the_plan_in_force_with_its_bypassed_parts_failed() {
    let plan = plan_of("small", &["n3".parse().unwrap(), "n9".parse().unwrap()]);
    let (scenario, start) = started(&plan, "");
    assert_eq!(start.plan.as_ref().unwrap().0.groups, plan.groups);
    assert_eq!(start.faults.nodes.len(), 2);
    let outcome = emulate(&scenario, 1, &mut ()).unwrap();
    assert_eq!(outcome.workloads.len(), plan.groups.iter().filter(|g| g.job.is_some()).count());
    let (own, _) = started(&plan_of("small", &[]), "");
    assert!(own.plan.is_some());
}

#[test]
fn rejects_plan_for_other_fabric_or_through_failed_parts() {
    let (scenario, mistakes) = loaded(&plan_of("other", &[]), "");
    assert!(scenario.is_none());
    assert!(mistakes.iter().any(|mistake| mistake.contains("does not match")), "{mistakes:?}");
    let whole = plan_of("small", &[]);
    let (scenario, mistakes) = loaded(&whole, "broken: [n0]\n");
    assert!(scenario.is_none());
    assert!(mistakes.iter().any(|mistake| mistake.contains("n0")), "{mistakes:?}");
}

#[test]
fn rejects_plan_for_inline_network_and_multiple_targets() {
    let mut none = |name: &str| Err(format!("no {name}"));
    for (on, wanted) in [
        ("{plan: p.json, ring: {hosts: 4}}", "expected exactly one key, found 2"),
        ("{ring: {hosts: 4}, line: {hosts: 4}}", "expected exactly one key, found 2"),
        ("{plan: p.json}", "the key `fabric` is missing"),
    ] {
        let text =
            format!("name: x\non: {on}\ntraffic: [{{name: t, bytes: 64KiB, run: {{shift: 1}}}}]\n");
        let (scenario, mistakes) = scenario::file::load("s.yaml", text.as_bytes(), &mut none);
        let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(scenario.is_none());
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{on}: {mistakes:?}");
    }
}

/// Loading plans the fabric, and a run of the loaded scenario makes no second plan.
#[test]
fn run_takes_the_plan_from_loading_unless_seed_or_faults_differ() {
    let mut read = |name: &str| {
        Ok(NamedFile { name: name.to_owned(), bytes: fabric_text("small").into_bytes() })
    };
    let text = "name: once\non: {fabric: fabric.yaml}\n\
                collectives: [{all_reduce: {name: tensor, bytes: 64KiB}}]\n";
    let purpose = LoadPurpose { seed: Some(Seed(5)), ..LoadPurpose::default() };
    let (scenario, mistakes) =
        scenario::file::load_for(purpose, "s.yaml", text.as_bytes(), &mut read);
    let scenario = scenario.unwrap_or_else(|| panic!("{mistakes:?}"));
    assert_eq!(scenario.seed, Seed(5));
    let plan_of = |scenario: &Scenario| scenario::plan(scenario).unwrap().plan.unwrap();
    let first = plan_of(&scenario);
    assert!(Arc::ptr_eq(&first, &plan_of(&scenario)), "the plan of loading");
    let other = Scenario { seed: Seed(6), ..scenario.clone() };
    assert!(!Arc::ptr_eq(&first, &plan_of(&other)), "another seed");
    let broken = Scenario { broken: vec!["n3".parse().unwrap()], ..scenario.clone() };
    assert_ne!(plan_of(&broken).0.faults, first.0.faults);
    let again = Scenario { first: None, ..scenario };
    let again = plan_of(&again);
    assert!(!Arc::ptr_eq(&first, &again) && again == first, "the same plan, made again");
}
