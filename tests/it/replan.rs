// SPDX-License-Identifier: Apache-2.0

use std::path::Path;
use std::process::{Command, Output};

const FABRIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/ring-32.yaml");

fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn planned() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = lightloom(folder.path(), &["plan", FABRIC, "--fault", "n3", "-o", "plan.json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

#[test]
fn reports_faults_and_repairs_that_change_nothing() {
    let folder = planned();
    let arguments =
        ["replan", "plan.json", "--fabric", FABRIC, "--fault", "n3", "--repair", "n5,n6/b0"];
    let output = lightloom(folder.path(), &arguments);
    assert!(output.status.success());
    let notes = text(&output.stderr);
    for note in ["n3 had already failed", "n5 had not failed", "n6/b0 had not failed"] {
        assert!(notes.contains(note), "{notes}");
    }
}

#[test]
fn part_that_fails_and_is_repaired_together_is_refused() {
    let folder = planned();
    let arguments = ["replan", "plan.json", "--fabric", FABRIC];
    let output = lightloom(
        folder.path(),
        &[&arguments[..], &["--fault", "n3,n4", "--repair", "n3"]].concat(),
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    assert!(message.contains("in both --fault and --repair: n3; help: name failed"), "{message}");
}

#[test]
fn names_every_unknown_part_together() {
    let folder = planned();
    let arguments = ["replan", "plan.json", "--fabric", FABRIC, "--fault", "n99,n1/b7"];
    let output = lightloom(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("n99 does not exist"), "{message}");
    assert!(message.contains("n1/b7 does not exist"), "{message}");
}

#[test]
fn recognises_swapped_files() {
    let folder = planned();
    let output =
        lightloom(folder.path(), &["replan", FABRIC, "--fabric", "plan.json", "--fault", "n1"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains("this is a plan, but a fabric file"), "{message}");
    let output = lightloom(folder.path(), &["replan", FABRIC, "--fabric", FABRIC, "--fault", "n1"]);
    assert!(text(&output.stderr).contains("a fabric file, but a plan is expected"), "{output:?}");
    let output = lightloom(folder.path(), &["validate", "plan.json"]);
    assert!(text(&output.stderr).contains("this is a plan"), "{output:?}");
}

#[test]
fn validate_proves_a_plan_on_its_fabric() {
    let folder = planned();
    let proven = lightloom(folder.path(), &["validate", "plan.json", "--fabric", FABRIC]);
    assert_eq!(proven.status.code(), Some(0), "{proven:?}");
    assert_eq!(text(&proven.stdout), "plan.json: good plan file\n");
    let plan = std::fs::read_to_string(folder.path().join("plan.json")).expect("the plan");
    let (at, broken) = ("\"dp\":1", "\"dp\":7");
    assert!(plan.contains(at), "a second replica");
    let damaged = plan.replacen(at, broken, 1);
    std::fs::write(folder.path().join("damaged.json"), damaged).expect("a file");
    let found = lightloom(folder.path(), &["validate", "damaged.json", "--fabric", FABRIC]);
    assert_eq!(found.status.code(), Some(1));
    let message = text(&found.stderr);
    assert!(
        message.contains("LL0017") && message.contains("does not have the coordinates"),
        "{message}"
    );
    let useless = lightloom(folder.path(), &["validate", FABRIC, "--fabric", FABRIC]);
    assert_eq!(useless.status.code(), Some(2), "{useless:?}");
}

#[test]
fn every_replan_states_its_distance_from_a_plan_from_scratch() {
    let folder = planned();
    let arguments = ["replan", "plan.json", "--fabric", FABRIC, "--repair", "n3"];
    let shown = lightloom(folder.path(), &arguments);
    assert!(text(&shown.stdout).contains("a plan from scratch"), "{shown:?}");
    let output = lightloom(folder.path(), &[&arguments[..], &["--format", "json"]].concat());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let cold = result["cold_plan"]["gpus_used"].as_u64().expect("a count");
    assert!(cold >= result["plan"]["metrics"]["gpus_used"].as_u64().expect("a count"));
    assert_eq!(result["change"]["cold_placement"], false);
    let [stage] = &result["stages"].as_array().expect("stages")[..] else { panic!("{result}") };
    assert!(stage["capacity"].as_f64().expect("a share") > 0.5, "{stage}");
    let bundles = result["change"]["bundles"].as_array().expect("bundles").len();
    assert!(stage["bundles"].as_array().expect("bundles").len() >= bundles, "{stage}");
}

#[test]
fn limit_on_moves_is_least_a_number_or_cold() {
    let folder = planned();
    let arguments = ["replan", "plan.json", "--fabric", FABRIC, "--format", "json"];
    let moved = |more: &[&str]| {
        let output = lightloom(folder.path(), &[&arguments[..], more].concat());
        assert!(output.status.success(), "{output:?}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let groups = result["moves"]["groups"].as_array().expect("groups").clone();
        (groups, result["change"]["cold_placement"].as_bool().expect("a flag"))
    };
    let (least, _) = moved(&["--fault", "n9", "--moves", "least"]);
    assert_eq!(least.len(), 1);
    assert_eq!(least[0]["why"], "fault");
    assert!(moved(&["--fault", "n9"]).0.len() <= 3);
    assert!(moved(&["--heal", "--moves", "1"]).0.len() <= 1);
    assert!(moved(&["--fault", "n9", "--moves", "cold"]).1);
    let wrong = lightloom(folder.path(), &[&arguments[..], &["--heal", "--moves", "few"]].concat());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("`least`, `cold` or a number"), "{wrong:?}");
}

#[test]
fn slower_step_after_a_replan_is_reported() {
    let fabric = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/pod-64.yaml");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let planned = lightloom(folder.path(), &["plan", fabric, "-o", "plan.json"]);
    assert!(planned.status.success(), "{planned:?}");
    let step = |plan: &serde_json::Value| plan["metrics"]["step_time_ps"].as_u64();
    let before = std::fs::read(folder.path().join("plan.json")).expect("read");
    let before = step(&serde_json::from_slice(&before).expect("JSON"));
    for (fault, is_slower) in [("n3", false), ("ocs0", true)] {
        let arguments = ["replan", "plan.json", "--fabric", fabric, "--fault", fault];
        let shown = lightloom(folder.path(), &arguments);
        let says = text(&shown.stdout).contains("given up: a step communicates for");
        assert_eq!(says, is_slower, "{fault}: {shown:?}");
        let output = lightloom(folder.path(), &[&arguments[..], &["--format", "json"]].concat());
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(result["plan_before"]["step_time_ps"].as_u64(), before, "{fault}");
        assert_eq!(step(&result["plan"]) > before, is_slower, "{fault}");
        let [next, cold] = [&result["plan"]["metrics"], &result["cold_plan"]]
            .map(|metrics| metrics["step_time_ps"].as_f64().expect("a time"));
        let ratio = result["step_over_cold"].as_f64().expect("a ratio");
        assert!((ratio - next / cold).abs() < 1e-9, "{fault}: {ratio}");
    }
}

#[test]
fn replan_requires_faults_or_repairs() {
    let folder = planned();
    let output = lightloom(folder.path(), &["replan", "plan.json", "--fabric", FABRIC]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--repair"), "{output:?}");
}
