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

/// The counts follow from the file by hand: 64 GPUs, 8 leaves with two uplinks each, three banks.
#[test]
fn bill_of_a_building_counts_each_part_once_and_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let bill = |name: &str| -> serde_json::Value {
        let file = format!("{FOLDER}/{name}.yaml");
        let run = run(folder.path(), &["cost", &file, "--format", "json"]);
        serde_json::from_slice(&run.stdout).unwrap()
    };
    let pods = bill("pods");
    let lines = pods["lines"].as_array().unwrap();
    let counts: Vec<(&str, &str, f64)> = lines
        .iter()
        .map(|line| {
            let [place, part] = ["place", "part"].map(|key| line[key].as_str().unwrap());
            (place, part, line["count"].as_f64().unwrap())
        })
        .collect();
    let expected = [
        ("GPUs", "gpu", 64.0),
        ("GPUs", "nic-400g", 64.0),
        ("GPU to leaf", "switch-port-400g", 64.0),
        ("GPU to leaf", "dcn-optical-400g", 128.0),
        ("leaf to core", "switch-port-400g", 32.0),
        ("leaf to core", "dcn-optical-400g", 32.0),
        ("bank pod0", "switch-port-400g", 16.0),
        ("bank pod0", "dcn-optical-400g", 16.0),
        ("bank pod0", "ocs-port", 16.0),
        ("bank pod1", "switch-port-400g", 16.0),
        ("bank pod1", "dcn-optical-400g", 16.0),
        ("bank pod1", "ocs-port", 16.0),
        ("bank between", "switch-port-400g", 32.0),
        ("bank between", "dcn-optical-400g", 32.0),
        ("bank between", "ocs-port", 32.0),
    ];
    assert_eq!(counts, expected);
    for (name, _) in buildings() {
        let bill = bill(&name);
        let lines = bill["lines"].as_array().unwrap();
        let sum: f64 = lines.iter().map(|line| line["usd"].as_f64().unwrap()).sum();
        assert!((sum - bill["usd"].as_f64().unwrap()).abs() < 0.005, "{name}: {bill}");
        assert_eq!(bill["parts_without_price"].as_array().unwrap().len(), 0, "{name}");
    }
}
