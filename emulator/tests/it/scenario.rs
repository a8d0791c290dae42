// SPDX-License-Identifier: Apache-2.0
//! Guarantees of scenarios: faults are recovered from, other groups are unaffected, and one seed
//! gives one result.

use crate::fabric;
use fabric::FABRIC;
use lightloom_emulator::outcome::Outcome;
use lightloom_emulator::scenario::file::NamedFile;
use lightloom_emulator::scenario::{self, Scenario};
use lightloom_fabric::document::Diagnostic;
use lightloom_units::Picoseconds;
use lightloom_units::id::GroupId;

fn load(fabric: &str, text: &str) -> (Option<Scenario>, Vec<Diagnostic>) {
    let bytes = fabric.as_bytes().to_vec();
    let read = &mut |name: &str| Ok(NamedFile { name: name.to_owned(), bytes: bytes.clone() });
    scenario::file::load("scenario.yaml", text.as_bytes(), read)
}

fn loaded(fabric: &str, text: &str) -> Scenario {
    let (loaded, mistakes) = load(fabric, text);
    loaded.unwrap_or_else(|| panic!("{mistakes:?}"))
}

fn run_on(fabric: &str, text: &str, threads: usize) -> Outcome {
    let scenario = loaded(fabric, text);
    lightloom_emulator::emulate(&scenario, threads, &mut ()).unwrap()
}

fn run(fabric: &str, text: &str) -> Outcome {
    run_on(fabric, text, 1)
}

const FAULT: &str = "
name: one node dies
on: {fabric: fabric.yaml}
seed: 7
collectives:
  - all_reduce: {name: tensor, bytes: 1MiB, repeat: 40}
faults: [{part: n4, at: 50us}]
control: {detection_delay: 20us, planning_delay: 10us}
";

#[test]
fn undisturbed_ring_takes_its_closed_form() {
    let calm = FAULT.replace("faults: [{part: n4, at: 50us}]\n", "");
    let outcome = run(FABRIC, &calm);
    assert_eq!(outcome.workloads.len(), 4 * 40);
    for collective in &outcome.workloads {
        let took = collective.end.unwrap().since(collective.start);
        assert!(took >= collective.ideal, "{collective:?}");
        let over = took.get() as f64 / collective.ideal.get() as f64;
        assert!(over < 1.05, "within 5 % of what no packet can beat, not {over}");
    }
    assert_eq!(outcome.head.packets.dropped + outcome.head.packets.lost, 0);
}

#[test]
fn bypass_of_a_failed_node_delays_no_other_group() {
    let outcome = run(FABRIC, FAULT);
    let [fault] = outcome.faults.as_slice() else { panic!("one fault") };
    let restored = fault.restored.unwrap().since(fault.at.unwrap());
    let control = Picoseconds::from_micros(20 + 10 + 20);
    assert!(restored >= control + Picoseconds::from_micros(60), "{restored}");
    assert!(restored <= control + Picoseconds::from_micros(80), "{restored}");
    assert_eq!(fault.groups_affected.len(), 1, "{fault:?}");
    assert_eq!((fault.gpus_affected, fault.gpus_lost), (16, 4));
    assert!(fault.bundles_switched >= 2 && fault.bundles_switched <= 6, "at most 2K");
    let [shortest, longest] = fault.dark.unwrap();
    assert!(shortest >= Picoseconds::from_micros(60) && longest <= Picoseconds::from_micros(80));
    let hit = fault.groups_affected[0];
    for collective in &outcome.workloads {
        if collective.group != Some(hit) {
            assert_eq!(collective.end, collective.end_without_faults, "{collective:?}");
        }
        assert!(collective.end.is_some(), "everything goes on: {collective:?}");
    }
    let restarted: u32 = outcome.workloads.iter().map(|c| c.restarts).sum();
    assert_eq!(restarted, 1, "one collective of one group was begun again");
}

#[test]
fn expectations_report_measured_values() {
    let expecting = format!(
        "{FAULT}expect:\n  - waste_ratio < 0.3\n  - restored within 200us\n  - restored within 100us\n  - groups_affected == 1\n  - completes within 1s\n  - groups_lost == 0\n"
    );
    let outcome = run(FABRIC, &expecting);
    let passed: Vec<bool> = outcome.expectations.iter().map(|e| e.passed).collect();
    assert_eq!(passed, [true, true, false, true, true, true], "{:?}", outcome.expectations);
    assert!(outcome.expectations[2].value.starts_with("the slowest restoration took 1"));
    let hit = outcome.faults[0].groups_affected[0];
    for group in (0..4).map(GroupId) {
        let text = format!("{FAULT}expect: ['group {group} unaffected']\n");
        assert_eq!(run(FABRIC, &text).passed(), group != hit);
    }
}

#[test]
fn result_depends_on_the_seed_and_not_on_threads() {
    assert_eq!(run(FABRIC, FAULT), run(FABRIC, FAULT));
    let other = run(FABRIC, &FAULT.replace("seed: 7", "seed: 8"));
    assert_ne!(other.faults[0].dark, run(FABRIC, FAULT).faults[0].dark);
    let mut two = run_on(FABRIC, FAULT, 2);
    two.head.threads = 1;
    assert_eq!(two, run(FABRIC, FAULT));
}

#[test]
fn data_parallel_reduction_waits_for_all_groups() {
    let text = "
name: step
on: {fabric: fabric.yaml}
collectives:
  - all_reduce: {name: tensor, bytes: 1MiB}
  - data_parallel_all_reduce: {name: gradients, bytes: 256KiB}
  - all_gather: {name: parameters, bytes: 1MiB}
";
    let outcome = run(FABRIC, text);
    let end = |name: &str| {
        outcome.workloads.iter().filter(|c| c.name == name).map(|c| c.end.unwrap()).max()
    };
    let start =
        |name: &str| outcome.workloads.iter().filter(|c| c.name == name).map(|c| c.start).min();
    assert!(start("gradients") >= end("tensor"));
    assert!(start("parameters") >= end("gradients"));
    let gradients = outcome.workloads.iter().find(|c| c.name == "gradients").unwrap();
    assert_eq!(gradients.group, None);
}

#[test]
fn fault_during_a_reduction_between_groups_restarts_it() {
    let text = "
name: step
on: {fabric: fabric.yaml}
collectives:
  - data_parallel_all_reduce: {name: gradients, bytes: 1MiB}
faults: [{part: n4, at: 20us}]
control: {detection_delay: 10us, planning_delay: 10us}
";
    let outcome = run(FABRIC, text);
    let gradients = outcome.workloads.iter().find(|c| c.name == "gradients").unwrap();
    assert_eq!(gradients.restarts, 1);
    assert!(gradients.end > gradients.end_without_faults);
    assert_eq!(outcome.faults[0].groups_affected.len(), 4, "every group waits for the reduction");
}

#[test]
fn handles_bundle_and_fibre_faults_and_repairs() {
    for part in ["n4/b0", "n4/b0.1"] {
        let text = FAULT.replace("part: n4,", &format!("part: {part},"));
        let outcome = run(FABRIC, &text);
        assert!(outcome.workloads.iter().all(|c| c.end.is_some()), "{part}");
        assert!(outcome.faults[0].groups_affected.len() <= 1, "{part}");
    }
    let repaired = FAULT.replace("at: 50us}", "at: 50us, repaired_at: 150us}");
    assert!(run(FABRIC, &repaired).workloads.iter().all(|c| c.end.is_some()));
}

#[test]
fn job_without_spares_reports_its_lost_group() {
    let full = FABRIC.replace("gpus: 64, tp: 16", "gpus: all, tp: 16");
    let outcome = run(&full, FAULT);
    let fault = &outcome.faults[0];
    assert_eq!((fault.restored, fault.gpus_lost), (None, 16), "{fault:?}");
    let unfinished = outcome.workloads.iter().filter(|c| c.end.is_none()).count();
    assert_eq!(unfinished, 1, "the collective that was under way");
}

#[test]
fn repair_before_the_next_plan_stalls_no_group() {
    for part in ["n4", "n4/b0", "n4/b0.1"] {
        let text = FAULT.replace(
            "{part: n4, at: 50us}",
            &format!("{{part: {part}, at: 50us, repaired_at: 60us}}"),
        );
        let outcome = run(FABRIC, &text);
        assert!(outcome.workloads.iter().all(|c| c.end.is_some()), "{part}");
    }
}

#[test]
fn second_fault_during_repair_does_not_end_the_run() {
    for second in (0..24).filter(|node| *node != 4) {
        let text =
            FAULT.replace("at: 50us}", &format!("at: 50us}}, {{part: n{second}, at: 110us}}"));
        assert_eq!(run(FABRIC, &text).faults.len(), 2, "n{second}");
    }
}
