// SPDX-License-Identifier: Apache-2.0
//! `lightloom convert`: files and plans of version 1 keep their meaning in version 2.

use crate::small;
use std::path::Path;

use serde_json::Value;
use small::{good, lightloom};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Every fabric file shipped as version 1 converts to the current file, preserving comments and
/// layout. `planner/tests/it/unchanged.rs` shows by digest that the current files still give the
/// same plans.
#[test]
fn version_1_fabric_files_convert_to_the_shipped_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let topologies = Path::new(ROOT).join("topologies");
    let mut converted = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("tests/convert/version-1")).expect("files")
    {
        let path = entry.expect("an entry").path();
        let file = path.file_name().expect("a name");
        let (old, now) =
            (std::fs::read_to_string(&path), std::fs::read_to_string(topologies.join(file)));
        let (old, now) = (old.expect("text"), now.expect("text"));
        for beside in old.lines().filter_map(|line| line.split("csv: ").nth(1)) {
            let name = beside.trim_matches(|c: char| !c.is_alphanumeric());
            let _ = std::fs::copy(topologies.join(name), folder.path().join(name));
        }
        std::fs::write(folder.path().join("old.yaml"), &old).expect("written");
        let new = good(folder.path(), &["convert", "old.yaml"]);
        assert!(new == now, "{} converts to\n{new}", file.display());
        for comment in old.lines().filter(|line| line.starts_with('#')) {
            assert!(new.contains(comment), "{comment} is kept");
        }
        let again =
            good(folder.path(), &["convert", topologies.join(file).to_str().expect("text")]);
        assert_eq!(again, now, "what is of version 2 stays");
        converted += 1;
    }
    assert!(converted >= 12, "{converted} files");
}

/// Every verb that is given a file of version 1 suggests the conversion command.
#[test]
fn version_1_fabric_file_error_names_the_convert_command() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("s.yaml"),
        "name: s\non: {fabric: old.yaml}\ncollectives:\n  - all_reduce: {name: t, bytes: 1MiB}\n",
    )
    .expect("written");
    for old in ["ring-32.yaml", "rfabric-moe.yaml"] {
        let path = Path::new(ROOT).join("tests/convert/version-1").join(old);
        std::fs::copy(path, folder.path().join("old.yaml")).expect("a copy");
        for arguments in [
            &["validate", "old.yaml"][..],
            &["plan", "old.yaml"],
            &["emulate", "s.yaml"],
            &["compare", "old.yaml"],
            &["report", "old.yaml"],
        ] {
            let output = lightloom(folder.path(), arguments);
            let shown = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {shown}");
            assert!(
                shown.contains("LL0219") && shown.contains("lightloom convert"),
                "{arguments:?}: {shown}"
            );
        }
    }
}

#[test]
fn version_1_plans_convert_to_proven_version_2_plans() {
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
        // The converted plan works with the converted fabric.
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
fn version_1_plan_error_names_the_convert_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = Path::new(ROOT).join("tests/convert");
    let (fabric, plan) = (data.join("circuits.yaml"), data.join("circuits-plan.json"));
    let (fabric, plan) = (fabric.to_str().expect("text"), plan.to_str().expect("text"));
    let output = lightloom(folder.path(), &["replan", plan, "--fabric", fabric, "--fault", "ocs1"]);
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("lightloom convert"), "{message}");
}
