// SPDX-License-Identifier: Apache-2.0
//! Plans, emulates and exports the buildings in `topologies/buildings`, each with a feature that a uniform fabric lacks.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::programs::lightloom;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/buildings");

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let run = std::process::Command::new(lightloom())
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    run
}

fn buildings() -> Vec<(String, PathBuf)> {
    let files = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let named = files.map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), path));
    let mut buildings: Vec<(String, PathBuf)> = named.collect();
    buildings.sort();
    buildings
}

#[test]
fn every_building_is_planned_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in buildings() {
        let file = path.to_str().unwrap();
        let plan = format!("{name}.json");
        run(folder.path(), &["plan", file, "-o", &plan]);
        let text = std::fs::read_to_string(folder.path().join(&plan)).unwrap();
        let planned: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(planned["given_up"].is_null(), "{name}: {}", planned["given_up"]);
        let to = if planned["phases"][0]["circuits"][0].is_object() { "sonic-ocs" } else { "dot" };
        run(folder.path(), &["export", &plan, "--fabric", file, "--to", to, "-o", &name]);
    }
}

/// Circuits that are planned on subsets of leaves, odd ports and unequal uplinks carry what the plan says.
#[test]
fn packets_take_the_planned_time_in_every_building() {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in buildings().into_iter().filter(|(name, _)| name != "separate-lines") {
        let scenario = format!(
            "kind: scenario\nversion: 2\nname: run\non: {{fabric: {}}}\nphases: {{}}\nexpect: [completes within 10s]\n",
            path.display()
        );
        std::fs::write(folder.path().join("run.yaml"), scenario).unwrap();
        let run = run(folder.path(), &["emulate", "run.yaml", "--format", "json"]);
        let result: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let [packets, planned] = ["packets_ps", "closed_form_ps"]
            .map(|key| result["steps"][0][key].as_u64().unwrap() as f64);
        assert!((packets / planned - 1.0).abs() < 0.05, "{name}: {packets} ps, {planned} ps");
    }
}
