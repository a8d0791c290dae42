// SPDX-License-Identifier: Apache-2.0

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const HEAD: &str = "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 64, gpus_per_node: 4, k: 3}}\n\
    dcn: {leaf_spine: {nodes_per_leaf: 8}}\njobs:\n";
const SEARCH: &str = "  - {name: a, gpus: 128, step: {search: {model: llama-3.1-70b, sequences: 64, sequence: 8192}}}\n  \
    - {name: b, gpus: 64, tp: 8, step: {search: {model: mixtral-8x7b, sequences: 64, sequence: 4096}}}\n";

fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = lightloom(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn folder_of(jobs: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("f.yaml"), format!("{HEAD}{jobs}")).expect("written");
    folder
}

fn json(folder: &Path, file: &str) -> Value {
    let text = std::fs::read(folder.join(file)).expect("read");
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn printed_mapping_gives_the_same_plan() {
    let folder = folder_of(SEARCH);
    let text = printed(folder.path(), &["plan", "f.yaml", "-o", "p.json"]);
    let kept: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("to keep it: ")).collect();
    let [a, b] = kept[..] else { panic!("{text}") };
    let jobs = format!("  - {{name: a, gpus: 128, {a}}}\n  - {{name: b, gpus: 64, {b}}}\n");
    std::fs::write(folder.path().join("k.yaml"), format!("{HEAD}{jobs}")).expect("written");
    printed(folder.path(), &["plan", "k.yaml", "-o", "k.json"]);
    let (searched, kept) = (json(folder.path(), "p.json"), json(folder.path(), "k.json"));
    for part in ["groups", "ranks", "phases", "circuits", "transceivers"] {
        assert!(searched[part] == kept[part], "{part}");
    }
    printed(folder.path(), &["validate", "p.json", "--fabric", "f.yaml"]);
    let arguments = ["replan", "p.json", "--fabric", "f.yaml", "--fault", "n3", "-o", "q.json"];
    printed(folder.path(), &arguments);
    assert_eq!(
        json(folder.path(), "q.json")["jobs"][0]["searched"],
        searched["jobs"][0]["searched"]
    );
}

#[test]
fn searched_mapping_matches_mfu_on_the_fabric() {
    let folder = folder_of(SEARCH);
    printed(folder.path(), &["plan", "f.yaml", "-o", "p.json"]);
    let arguments = "mfu --fabric f.yaml --model llama-3.1-70b --gpus 128 --batch 64 --seq 8192 --virtual-stages 1 \
                     --format json";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let found: Value = serde_json::from_str(&printed(folder.path(), &arguments)).expect("JSON");
    let (row, searched) =
        (&found["rows"][0], &json(folder.path(), "p.json")["jobs"][0]["searched"]);
    for key in ["tp", "pp", "dp", "cp", "ep", "micro_batch", "recompute", "step_seconds", "mfu"] {
        assert_eq!(row[key], searched[key], "{key}");
    }
}

#[test]
fn searched_job_trains_in_packets() {
    let job = "  - {name: a, gpus: 32, step: {search: {model: llama-3.1-8b, sequences: 16, sequence: 8192}}}\n";
    let folder = folder_of(job);
    let scenario =
        "kind: scenario\nversion: 2\nname: s\non: {fabric: f.yaml}\ntrain: [{job: a, steps: 1}]\n";
    std::fs::write(folder.path().join("s.yaml"), scenario).expect("written");
    let text = printed(folder.path(), &["emulate", "s.yaml"]);
    assert!(text.contains("MFU"), "{text}");
}

#[test]
fn impossible_search_is_reported_once_with_its_location() {
    let cases = [
        (SEARCH.replace("gpus: 128, ", ""), "the key `gpus` is missing"),
        (SEARCH.replace("gpus: 128", "gpus: 8"), "use `gpus: 16`"),
        (SEARCH.replace("70b", "71b"), "llama-3.1-70b"),
        (
            SEARCH.replace("sequence: 8192", "sequence: 8192, accelerator: h101"),
            "did you mean `h100`",
        ),
        (SEARCH.replace("sequence: 8192", "sequence: 8192, constants: foo"), "nemo-25.02"),
        (
            SEARCH.replace("sequence: 8192", "sequence: 8192, gradient_slack: 1ms"),
            "no circuits to change",
        ),
    ];
    for (jobs, says) in &cases {
        let folder = folder_of(jobs);
        let output = lightloom(folder.path(), &["plan", "f.yaml"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{jobs}");
        assert!(message.contains(says), "{says}: {message}");
        assert_eq!(message.matches("error[").count(), 1, "{message}");
    }
}
