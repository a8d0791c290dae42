// SPDX-License-Identifier: Apache-2.0
//! Scripts rely on the fields, exit statuses and reasons of `trace`, `compare` and `cost`.

use std::process::{Command, Output};

use serde_json::Value;

fn lightloom(arguments: &[&str]) -> Output {
    Command::new(crate::programs::lightloom()).args(arguments).output().expect("it runs")
}

fn json(arguments: &[&str]) -> Value {
    let run = lightloom(arguments);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    serde_json::from_slice(&run.stdout).expect("standard output is one JSON document")
}

fn error(arguments: &[&str], status: i32) -> String {
    let run = lightloom(arguments);
    assert_eq!(run.status.code(), Some(status), "{run:?}");
    assert!(run.stdout.is_empty(), "nothing but results on standard output: {run:?}");
    String::from_utf8_lossy(&run.stderr).into_owned()
}

fn has_fields(row: &Value, fields: &[&str]) {
    for field in fields {
        assert!(row.get(field).is_some(), "no `{field}` in {row}");
    }
}

#[test]
fn compare_output_has_the_documented_fields() {
    let arguments = ["compare", "--samples", "2", "--tp", "32,64", "--format", "json"];
    let document = json(&arguments);
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 18);
    for row in rows.iter().filter(|row| row.get("cannot_hold").is_none()) {
        has_fields(
            row,
            &[
                "arch",
                "tp",
                "samples",
                "waste_mean",
                "waste_stddev",
                "waste_p50",
                "waste_p99",
                "waste_max",
                "waste_arithmetic",
                "waste_from_faults",
                "lower_bound_mean",
                "max_job_gpus",
                "waiting_share",
            ],
        );
        has_fields(&row["waiting_share"][0], &["job_gpus", "share"]);
    }
    let never: Vec<&str> = rows
        .iter()
        .filter(|row| row.get("cannot_hold").is_some())
        .filter_map(|row| row["arch"].as_str())
        .collect();
    assert_eq!(never, ["dgx", "nvl:36", "dgx"]);
    assert_eq!(document, json(&arguments), "one seed, one result");
}

#[test]
fn cost_output_has_the_documented_fields() {
    let document = json(&["cost", "--samples", "2", "--format", "json"]);
    let row = &document["rows"][0];
    has_fields(
        row,
        &[
            "arch",
            "gbytes_per_s_per_gpu",
            "cost_per_gpu_usd",
            "cost_per_gbytes_per_s_usd",
            "power_per_gpu_w",
            "power_per_gbytes_per_s_w",
            "bill",
        ],
    );
    has_fields(&row["bill"][0], &["part", "count_per_gpu", "unit_usd", "unit_w"]);
}

#[test]
fn rejects_invalid_designs_faults_and_sizes_as_usage_errors() {
    assert!(error(&["compare", "--arch", "khop:0"], 2).contains("use one of khop:K"));
    assert!(error(&["compare", "--faults", "iid:2"], 2).contains("expected a probability"));
    assert!(error(&["compare", "--gpus", "2881"], 2).contains("multiple of"));
}

#[test]
fn mismatched_trace_error_suggests_a_synthetic_one() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/traces/synthetic.json");
    let text = error(&["compare", "--gpus", "131072", "--faults", trace], 1);
    assert!(text.contains("trace synth --servers 16384"), "{text}");
}

#[test]
fn rejects_an_invalid_trace_with_every_location() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.json");
    let event = |node: &str, days: &str, event: &str| {
        format!(
            r#"{{"node_id": "{node}", "event_time": {days}, "event_type": "{event}", "fault_type":
 {{"Level": "Hardware Failure", "Class": "GPU", "Desc": "xid"}}}}"#
        )
    };
    let events = [
        event("a", "5", "fault_start"),
        event("a", "4", "fault_end"),
        event("b", "-1", "fault_end"),
    ];
    std::fs::write(&path, format!("[\n{}\n]", events.join(",\n"))).expect("written");
    let text = error(&["trace", "info", &path.display().to_string()], 1);
    assert!(text.contains("line 4, column 1: record 1: the fault of `a` ends at 4 days"), "{text}");
    assert!(text.contains("line 6, column 1: record 2: `event_time` is -1 days"), "{text}");
}

#[test]
fn impossible_design_is_reported_and_not_priced() {
    let tree = |more: &[&str]| lightloom(&[&["cost", "--samples", "2"], more].concat());
    let alone = tree(&["--arch", "fat-tree:64", "--gpus", "131072"]);
    let shown = String::from_utf8_lossy(&alone.stdout).into_owned();
    assert_eq!(alone.status.code(), Some(1), "nothing could be priced: {shown}");
    assert!(shown.contains("3 tiers of 64-port switches has 65536 end points"), "{shown}");
    let beside = tree(&["--arch", "khop:2,fat-tree:64", "--gpus", "131072"]);
    assert_eq!(beside.status.code(), Some(0), "the others are priced");

    let never = lightloom(&["compare", "--samples", "2", "--arch", "dgx", "--tp", "64"]);
    let shown = String::from_utf8_lossy(&never.stdout).into_owned();
    assert!(shown.contains("TP-64: no design supports this group size"), "{shown}");
    assert!(shown.contains("dgx: not possible: "), "{shown}");
}

#[test]
fn price_file_without_a_part_names_the_designs_that_need_it() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/prices.yaml");
    let prices = std::fs::read_to_string(shipped).expect("the shipped prices");
    let at = prices.find("- part: nvlink-switch").expect("a price of it");
    let end = at + prices[at + 1..].find("- part:").expect("another price") + 1;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prices.yaml");
    std::fs::write(&path, format!("{}{}", &prices[..at], &prices[end..])).expect("written");
    let text = error(&["cost", "--prices", &path.display().to_string()], 1);
    assert!(text.contains("lacks `nvlink-switch`, needed by nvl:36"), "{text}");
}

#[test]
fn day_before_the_trace_is_an_invalid_day_not_an_unknown_option() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/traces/synthetic.json");
    let fabric = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/ring-2880.yaml");
    let text = error(&["plan", fabric, "--trace", trace, "--at", "-1"], 1);
    assert!(text.contains("day -1 is outside"), "{text}");
    let text = error(&["trace", "info", trace, "--days", "4"], 1);
    assert!(text.contains("after the observation, which ends on day 4"), "{text}");
}

/// An ideal switch wastes only the remainder of groups, but fewer GPUs share the cost under faults.
#[test]
fn faulty_gpus_do_not_share_the_cost() {
    let arguments = [
        "--gpus",
        "2880",
        "--tp",
        "4",
        "--arch",
        "khop:3",
        "--faults",
        "synthetic",
        "--format",
        "json",
    ];
    let json = |verb: &str| -> Value {
        let mut command = Command::new(crate::programs::lightloom());
        let output = command.arg(verb).args(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (cost, compared) = (json("cost"), json("compare"));
    let faulty = compared["node_fault_ratio"]["mean"].as_f64().unwrap();
    let waste = compared["rows"][0]["waste_mean"].as_f64().unwrap();
    assert!(faulty > 0.005, "{faulty}");
    let per_gpu = cost["rows"][0]["cost_per_gpu_usd"].as_f64().unwrap();
    let usable = cost["usable"][0]["cost_per_usable_gpu_usd"].as_f64().unwrap();
    let by_hand = per_gpu / (1.0 - faulty - waste);
    assert!((usable / by_hand - 1.0).abs() < 1e-9, "{usable}, by hand {by_hand}");
}
