// SPDX-License-Identifier: Apache-2.0
//! docs/cost-of-failures.md lists the kinds of drill faults with their results.

use std::process::Command;

use lightloom_testkit::cases;
use serde_json::Value;

use crate::programs;

const PAGE: &str = include_str!("../../docs/cost-of-failures.md");
const DRILL: &str = include_str!("../../topologies/scenarios/drill.yaml");

struct Row {
    faults: String,
    kind: String,
    figures: Vec<String>,
}

fn rows() -> Vec<Row> {
    let table = PAGE.split("\n### Kinds of faults").nth(1).expect("the section");
    let rows = table.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        Row {
            faults: cells[0].trim_matches('`').to_owned(),
            kind: cells[1].to_owned(),
            figures: cells[2..].iter().map(|cell| cell.to_string()).collect(),
        }
    };
    rows.map(row).collect()
}

fn drilled(faults: &str, seeds: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    let head = DRILL.split("\nfaults:").next().unwrap();
    let head = head.replace("../job-64", &format!("{root}/topologies/job-64"));
    let file = folder.path().join("drill.yaml");
    std::fs::write(&file, format!("{head}\nfaults: [{faults}]\ncontrol: lightloomd\n")).unwrap();
    let mut command = Command::new(programs::lightloom());
    command.args(["emulate", "--seed", seeds, "--format", "json"]).arg(&file);
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

fn of_kind<'a>(drill: &'a Value, kind: &str) -> &'a Value {
    let kinds = drill["recoveries"].as_array().expect("kinds");
    let found = kinds.iter().find(|one| one["kind"] == kind);
    found.unwrap_or_else(|| panic!("no `{kind}` in {}", drill["recoveries"]))
}

fn shown(kind: &Value) -> Vec<String> {
    let time = |key: &str| {
        kind[key].as_f64().map_or("–".to_owned(), |time| format!("{:.1} ms", time / 1e9))
    };
    let count = |key: &str| kind[key].to_string();
    vec![count("faults"), count("recovered"), time("p50_ps"), time("p99_ps"), count("never")]
}

#[test]
fn fault_kind_is_counted_with_reasons_for_no_recovery() {
    let rows = rows();
    assert!(rows.len() > 7, "{} rows", rows.len());
    let bundle = rows.iter().find(|row| row.kind == "bundle down").expect("bundles");
    let drill = drilled(&bundle.faults, "3..5");
    let kind = of_kind(&drill, "bundle down");
    assert_eq!((&kind["faults"], &kind["recovered"]), (&3.into(), &1.into()), "{kind}");
    assert_eq!(kind["never_because"]["in_loopback"], kind["never"], "{kind}");
}

/// The daemon is killed before the journal records that a module has moved.
#[test]
fn bypass_interrupted_by_a_restart_is_finished_within_100_ms() {
    let faults =
        "{part: control, at: 100ms, lasts: 50ms}, {part: any node, at: 80ms, within: 120ms}";
    let drill = drilled(faults, "10..11");
    let kind = of_kind(&drill, "node down");
    assert!(kind["p99_ps"].as_f64().is_some_and(|took| took <= 100e9), "{kind}");
}

#[test]
fn every_fault_kind_recovers_as_documented() {
    for row in rows().into_iter().take(cases(0, usize::MAX)) {
        let drill = drilled(&row.faults, "0..39");
        let found = shown(of_kind(&drill, &row.kind));
        println!("| `{}` | {} | {} |", row.faults, row.kind, found.join(" | "));
        assert_eq!(found, row.figures, "{}", row.faults);
    }
}
