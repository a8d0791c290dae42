// SPDX-License-Identifier: Apache-2.0
//! docs/validation.md is what `lightloom reproduce infinitehbd` prints today.

#![expect(clippy::print_stdout, reason = "a test says why it is skipped")]

use std::process::Command;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/fault_trace.json");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/validation.md");

/// To write the page anew: run the command in its first paragraph.
#[test]
fn the_validation_page_is_up_to_date_and_every_claim_is_reproduced() {
    if !std::path::Path::new(TRACE).exists() {
        println!("skipped: no ../shared/data");
        return;
    }
    let run = Command::new(env!("CARGO_BIN_EXE_lightloom"))
        .args(["reproduce", "infinitehbd", "--faults", TRACE, "--format", "markdown"])
        .output()
        .expect("the program runs");
    assert!(run.status.success(), "some claim differs: {run:?}");
    let page = std::fs::read_to_string(PAGE).expect("docs/validation.md is there");
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        page,
        "write it anew, as its first paragraph says"
    );
}

#[test]
fn without_the_trace_its_claims_are_not_computed_and_the_others_are() {
    let run = Command::new(env!("CARGO_BIN_EXE_lightloom"))
        .args(["reproduce", "infinitehbd", "--format", "json"])
        .output()
        .expect("the program runs");
    assert!(run.status.success(), "{run:?}");
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let claims = document["claims"].as_array().expect("a list of claims");
    let with = |verdict: &str| claims.iter().filter(|c| c["verdict"] == verdict).count();
    assert_eq!(with("differs"), 0);
    let sentences = document["sentences"].as_array().expect("sentences");
    assert_eq!(sentences.len(), 5);
    let of = |claim: &&serde_json::Value| claim["label"] == "read" && claim["sentence"].is_null();
    assert_eq!(claims.iter().filter(of).count(), 4, "part counts are no sentence of the paper");
    assert!(with("reproduced") > 40 && with("not_computed") > 10, "{document}");
}

#[test]
fn prices_that_miss_the_published_totals_are_a_verdict_and_an_exit_status() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prices.yaml");
    let shipped = include_str!("../topologies/prices.yaml");
    let dearer = shipped.replace("mean: 600,", "mean: 601,");
    assert_ne!(dearer, shipped);
    std::fs::write(&path, dearer).expect("written");
    let run = Command::new(env!("CARGO_BIN_EXE_lightloom"))
        .args(["reproduce", "infinitehbd", "--prices"])
        .arg(&path)
        .output()
        .expect("the program runs");
    assert_eq!(run.status.code(), Some(1));
    let text = String::from_utf8_lossy(&run.stdout);
    let line = text.lines().find(|line| line.starts_with("cost of khop:2 ")).expect("the claim");
    assert!(line.contains("$2630.80") && line.contains("DIFFERS"), "{line}");
}
