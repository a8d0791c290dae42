//! `lightloom convert`: files and plans of version 1 mean the same as ones of version 2.

mod small;

use std::path::Path;

use serde_json::Value;
use small::{good, lightloom};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What a plan sets, and nothing of how it was made.
fn settings(plan: &str) -> Value {
    let mut plan: Value = serde_json::from_str(plan).expect("a plan");
    for key in ["digest", "inputs", "version", "fabric_sha256"] {
        plan.as_object_mut().expect("an object").remove(key);
    }
    plan
}

#[test]
fn every_fabric_file_that_ships_converts_and_gives_the_same_plan() {
    let folder = tempfile::tempdir().expect("a folder");
    let topologies = Path::new(ROOT).join("topologies");
    let mut converted = 0;
    for entry in std::fs::read_dir(&topologies).expect("the topologies") {
        let path = entry.expect("an entry").path();
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
        let text = match is_yaml {
            true => std::fs::read_to_string(&path).expect("text"),
            false => String::new(),
        };
        // The largest take their time, and are of the same form.
        if !(text.contains("\nhbd:") || text.contains("\ndcn:")) || text.contains("131072") {
            continue;
        }
        for beside in text.lines().filter_map(|line| line.split("csv: ").nth(1)) {
            let name = beside.trim_matches(|c: char| !c.is_alphanumeric());
            let _ = std::fs::copy(topologies.join(name), folder.path().join(name));
        }
        let name = path.to_str().expect("text");
        good(folder.path(), &["convert", name, "-o", "new.yaml"]);
        let new = std::fs::read_to_string(folder.path().join("new.yaml")).expect("text");
        assert!(new.contains("kind: fabric\nversion: 2\n") && !new.contains("\nstep:"), "{new}");
        for comment in text.lines().filter(|line| line.starts_with('#')) {
            assert!(new.contains(comment), "{name} keeps {comment}");
        }
        let plan = |file: &str| settings(&good(folder.path(), &["plan", file, "--format", "json"]));
        assert!(plan(name) == plan("new.yaml"), "{name} gives another plan");
        let again = good(folder.path(), &["convert", "new.yaml"]);
        assert_eq!(again, new, "what is of version 2 stays");
        converted += 1;
    }
    assert!(converted >= 10, "{converted} files");
}

#[test]
fn plans_of_version_1_are_proven_plans_of_version_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(ROOT).join("tests/convert");
    for name in ["ring", "circuits"] {
        let old = |file: &str| data.join(file).to_str().expect("text").to_owned();
        let (fabric, plan) = (old(&format!("{name}.yaml")), old(&format!("{name}-plan.json")));
        good(folder.path(), &["convert", &fabric, "-o", "new.yaml"]);
        good(folder.path(), &["convert", &plan, "--fabric", &fabric, "-o", "new.json"]);
        let read = |path: &str| -> Value {
            let text = std::fs::read_to_string(folder.path().join(path)).expect("text");
            serde_json::from_str(&text).expect("JSON")
        };
        let (before, after) = (read(&plan), read("new.json"));
        assert_eq!(after["schema"], "lightloom.plan/v2");
        assert_eq!(before["transceivers"], after["transceivers"], "{name}");
        let circuits = |plan: &Value| -> Vec<Value> {
            let phases = plan["phases"].as_array().cloned().unwrap_or_default();
            phases.iter().map(|phase| phase["circuits"].clone()).collect()
        };
        assert_eq!(circuits(&before), circuits(&after), "{name}");
        // The converted plan is in force on the converted fabric.
        good(folder.path(), &["replan", "new.json", "--fabric", "new.yaml", "--fault", "n1"]);
    }
    let (ring, plan) = (data.join("ring.yaml"), data.join("circuits-plan.json"));
    let (ring, plan) = (ring.to_str().expect("text"), plan.to_str().expect("text"));
    let refused = lightloom(folder.path(), &["convert", plan, "--fabric", ring]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another fabric file"));
    assert_eq!(lightloom(folder.path(), &["convert", plan]).status.code(), Some(2));
}

#[test]
fn a_plan_of_version_1_is_answered_with_the_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(ROOT).join("tests/convert");
    let (fabric, plan) = (data.join("circuits.yaml"), data.join("circuits-plan.json"));
    let (fabric, plan) = (fabric.to_str().expect("text"), plan.to_str().expect("text"));
    let output = lightloom(folder.path(), &["replan", plan, "--fabric", fabric, "--fault", "ocs1"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("lightloom convert"), "{message}");
}
