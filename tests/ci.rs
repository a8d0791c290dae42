//! What CI systems rely on: JUnit, summaries, sweeps over seeds, shards that merge, exit codes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightloom"));
    command.args(arguments).current_dir(folder).env_remove("GITHUB_STEP_SUMMARY");
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// 24 nodes; the healing of one of them takes 100 µs of control and 60 to 80 µs of darkness.
fn small(expect: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fabric = "
name: small
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 3}}
transceiver: {software_delay: 20us}
jobs: [{name: train, gpus: 64, tp: 16}]
";
    let scenario = format!(
        "
name: small
fabric: fabric.yaml
collectives: [{{all_reduce: {{name: tensor, bytes: 64KiB, repeat: 20}}}}]
faults: [{{part: n4, at: 20us}}]
control: {{detection_delay: 60us, planning_delay: 20us}}
expect: [{expect}]
"
    );
    std::fs::write(folder.path().join("fabric.yaml"), fabric).unwrap();
    std::fs::write(folder.path().join("run.yaml"), scenario).unwrap();
    folder
}

#[test]
fn junit_has_a_case_for_every_expectation_and_fault_and_says_how_to_replay() {
    let folder = small("restored within 120us, drops == 0, groups_affected <= 1");
    let run = lightloom(folder.path(), &["emulate", "run.yaml", "--seed", "5", "--junit", "j.xml"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let xml = read(folder.path(), "j.xml");
    assert!(xml.contains(r#"tests="4" failures="2""#), "{xml}");
    for case in ["expect restored within 120 µs", "expect drops == 0", "fault 0 n4 at 20 µs"] {
        assert!(xml.contains(&format!("testcase name=\"{case}\"")), "{case}: {xml}");
    }
    let failure = xml.split("<failure").nth(1).expect("a failure");
    assert!(failure.contains("replay: lightloom emulate run.yaml --seed 5"), "{xml}");
    assert!(failure.contains("seed: 5"), "{xml}");

    let good = small("restored within 1ms, groups_affected == 1");
    let run = lightloom(good.path(), &["emulate", "run.yaml", "--junit", "j.xml"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(read(good.path(), "j.xml").contains(r#"tests="3" failures="0""#));
}

#[test]
fn the_summary_adds_to_the_page_of_a_github_job_and_replaces_any_other_file() {
    let folder = small("restored within 120us, waste_ratio < 0.5");
    let write = |of_job: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lightloom"));
        command.args(["emulate", "run.yaml", "--summary", "page.md"]).current_dir(folder.path());
        match of_job {
            Some(path) => command.env("GITHUB_STEP_SUMMARY", path),
            None => command.env_remove("GITHUB_STEP_SUMMARY"),
        };
        assert_eq!(command.output().unwrap().status.code(), Some(1));
        read(folder.path(), "page.md").matches("## ❌ failed: small").count()
    };
    assert_eq!(write(None), 1);
    assert_eq!(write(None), 1, "another file is written anew");
    assert_eq!(write(Some("page.md")), 2, "the page of the job keeps what other steps wrote");
    let page = read(folder.path(), "page.md");
    assert!(page.contains("| waste_ratio &lt; 0.5 |"), "a table stays a table: {page}");
    assert!(page.contains("`lightloom emulate run.yaml --seed 0`"), "{page}");

    // Nobody asked: nothing is written, whatever the environment says.
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightloom"));
    command.args(["emulate", "run.yaml"]).current_dir(folder.path());
    command.env("GITHUB_STEP_SUMMARY", "other.md").output().unwrap();
    assert!(!folder.path().join("other.md").exists());
}

#[test]
fn a_sweep_names_the_worst_seed_and_its_parts_merge_into_the_same_result() {
    let folder = small("restored within 178us, drops == 0");
    let sweep = |more: &[&str]| {
        let fixed = ["emulate", "run.yaml", "--seed", "0..11", "--format", "json"];
        lightloom(folder.path(), &[&fixed, more].concat())
    };
    let whole = sweep(&["--threads", "2"]);
    let result = json(&whole);
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 12);
    let took = |run: &Value| {
        let fault = &run["faults"][0];
        fault["restored_ps"].as_u64().unwrap() - fault["at_ps"].as_u64().unwrap()
    };
    let slowest = runs.iter().max_by_key(|run| took(run)).unwrap();
    assert_eq!(result["worst_seed"], slowest["seed"], "the worst seed is the slowest to heal");
    let failed = runs.iter().filter(|run| took(run) > 178_000_000).count();
    assert!(failed > 0 && failed < 12, "the bound lies among the seeds: {failed}");
    assert_eq!(result["expectations"][0]["failed"], failed);
    assert_eq!(whole.status.code(), Some(1));

    for index in 0..3 {
        let part = sweep(&["--shard", &format!("{index}/3")]);
        assert_eq!(json(&part)["runs"].as_array().unwrap().len(), 4);
        std::fs::write(folder.path().join(format!("part-{index}.json")), part.stdout).unwrap();
    }
    let merged = lightloom(
        folder.path(),
        &["merge", "part-0.json", "part-1.json", "part-2.json", "--format", "json"],
    );
    assert!(merged.stdout == whole.stdout, "not byte for byte:\n{}", text(&merged.stdout));
    assert_eq!(merged.status.code(), Some(1));
    let holes = lightloom(folder.path(), &["merge", "part-0.json", "part-1.json"]);
    assert_eq!(holes.status.code(), Some(1));
    assert!(text(&holes.stdout).contains("no result for seeds 2 5 8 11"));
}

#[test]
fn the_worst_seed_of_a_sweep_replays_to_the_same_failure() {
    let folder = small("restored within 178us");
    let sweep = lightloom(folder.path(), &["emulate", "run.yaml", "--seed", "0..11"]);
    let shown = text(&sweep.stdout);
    let replay = shown.split("replay: ").nth(1).unwrap().lines().next().unwrap();
    let arguments: Vec<&str> = replay.split(' ').skip(1).collect();
    let again = lightloom(folder.path(), &arguments);
    assert_eq!(again.status.code(), Some(1));
    let found = shown.lines().find(|line| line.starts_with("restored within")).unwrap();
    let found = found.split("the slowest").nth(1).unwrap().trim();
    assert!(text(&again.stdout).contains(found), "{found} in {}", text(&again.stdout));
}

#[test]
fn wrong_usage_exits_2_and_a_bad_file_1() {
    let folder = small("drops == 0");
    let code = |arguments: &[&str]| lightloom(folder.path(), arguments).status.code();
    assert_eq!(code(&["emulate", "run.yaml", "--seed", "9..0"]), Some(2));
    assert_eq!(code(&["emulate", "run.yaml", "--seed", "0..9", "--shard", "4/4"]), Some(2));
    assert_eq!(code(&["emulate", "run.yaml", "--shard", "0/4"]), Some(2));
    assert_eq!(code(&["emulate", "run.yaml", "--seed", "0..9", "--flows-out", "f"]), Some(2));
    assert_eq!(code(&["merge"]), Some(2));
    assert_eq!(code(&["emulate", "fabric.yaml"]), Some(1));
    assert_eq!(code(&["merge", "run.yaml"]), Some(1));
    assert_eq!(code(&["emulate", "run.yaml"]), Some(0));
}

#[test]
fn the_paths_of_the_examples_are_those_of_the_repository() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for verb in ["emulate", "merge"] {
        let help = lightloom(&root, &[verb, "--help"]);
        for word in text(&help.stdout).split_whitespace().filter(|w| w.starts_with("topologies/")) {
            assert!(root.join(word).exists(), "{word}");
        }
    }
}
