// SPDX-License-Identifier: Apache-2.0
//! Step losses of a training job over many seeds: table, JUnit, Markdown and report.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const SCENARIO: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/scenarios/job-any-fault.yaml");

fn lightloom(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(words).current_dir(folder).output().unwrap()
}

fn rank(values: &[f64], per_cent: usize) -> f64 {
    let enough = |value: &&f64| {
        let below = values.iter().filter(|other| other <= value).count();
        below * 100 >= per_cent * values.len()
    };
    values.iter().filter(enough).copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn sweep_losses_match_each_seed_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = ["emulate", SCENARIO, "--format", "json"];
    let sweep = |more: &[&str]| lightloom(folder.path(), &[&fixed, more].concat());
    let whole = sweep(&["--seed", "0..5", "--junit", "j.xml", "--summary", "s.md"]);
    let result: Value = serde_json::from_slice(&whole.stdout).unwrap();
    let runs = result["runs"].as_array().unwrap();
    for (figure, pointer, one_less) in [
        ("time_lost_ps", "/step_losses/time_lost_ps", false),
        ("worst_step_lost_ps", "/step_losses/worst_step_lost_ps", false),
        ("goodput_lost", "/goodput", true),
        ("groups_affected", "/step_losses/groups_affected", false),
    ] {
        let value = |run: &Value| run.pointer(pointer).unwrap().as_f64().unwrap();
        let value = |run| if one_less { 1.0 - value(run) } else { value(run) };
        let values: Vec<f64> = runs.iter().map(value).collect();
        let row = result["distributions"].as_array().unwrap();
        let row = row.iter().find(|row| row["figure"] == figure).unwrap();
        for (name, per_cent) in [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)] {
            let (said, found) = (row[name].as_f64().unwrap(), rank(&values, per_cent));
            assert!((said - found).abs() < 1e-8, "{figure} {name}: {said}, not {found}");
        }
    }
    // A run with one seed has the same loss, relative to the run without faults.
    let one = sweep(&["--seed", "3"]);
    let one: Value = serde_json::from_slice(&one.stdout).unwrap();
    let last = one["steps"].as_array().unwrap().last().unwrap();
    let late = |key: &str| last[key].as_u64().unwrap();
    let lost = late("end_ps") - late("end_without_faults_ps");
    assert_eq!(runs[3]["step_losses"]["time_lost_ps"], lost);

    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let worst = result["distributions"][0]["max"].as_f64().unwrap();
    let shown = format!("{:.3} ms", worst / 1e9);
    assert!(read("s.md").contains("| time lost in all steps |") && read("s.md").contains(&shown));
    let property = format!("name=\"time_lost_ps_max\" value=\"{worst}\"");
    assert!(read("j.xml").contains(&property), "{}", read("j.xml"));
    let parts: Vec<String> = (0..2)
        .map(|index| {
            let name = format!("part-{index}.json");
            let shard = format!("{index}/2");
            let part = sweep(&["--seed", "0..5", "--shard", &shard]);
            std::fs::write(folder.path().join(&name), part.stdout).unwrap();
            name
        })
        .collect();
    let merged = lightloom(folder.path(), &["merge", &parts[0], &parts[1], "--format", "json"]);
    assert!(merged.stdout == whole.stdout, "not byte for byte");
    std::fs::write(folder.path().join("sweep.json"), &whole.stdout).unwrap();
    let page = lightloom(folder.path(), &["report", "sweep.json", "--format", "markdown"]);
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("Seeds: job-any-fault") && page.contains("What the steps of jobs lose"));
    assert!(
        page.starts_with("# job-any-fault") && !page.contains("GPUs wasted"),
        "designs: {page}"
    );
    assert!(page.contains("the longest wait of 6 seeds"), "no timeline: {page}");
    let worst = result["worst_seed"].as_u64().unwrap();
    let verdict = page.lines().find(|line| line.starts_with("**")).unwrap();
    let said = format!(" of 6 seeds passed; seed {worst} is ");
    assert!(verdict.contains(&said), "{verdict}");
}
