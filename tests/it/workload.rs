// SPDX-License-Identifier: Apache-2.0
//! Tests `lightloom workload` with shipped samples, both directions of Chakra, and text output.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lightloom(arguments: &[&str]) -> Output {
    Command::new(crate::programs::lightloom())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .output()
        .expect("the command runs")
}

fn report(line: &str) -> Value {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = lightloom(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON alone")
}

fn complaint(line: &str) -> (Option<i32>, String) {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let output = lightloom(&arguments);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn step(report: &Value) -> f64 {
    report["step_seconds"].as_f64().expect("seconds")
}

#[test]
fn shipped_samples_run() {
    let run = report("workload run topologies/workloads/simai-layer.txt --arch dgx --format json");
    // 556 us of computation, then 14 steps of 3 us with 2*7/8 of 512 MiB at 82 % of 450 GB/s.
    let expected = 556e-6 + 14.0 * 3e-6 + 1.75 * 536_870_912.0 / (0.82 * 450e9);
    assert!((step(&run) / expected - 1.0).abs() < 0.02, "{run}");

    let sample = "workload replay topologies/workloads/recorded-step.json --tp 4 --format json";
    let replayed = report(sample);
    let recorded = replayed["recorded_seconds"].as_f64().unwrap();
    assert!((step(&replayed) / recorded - 1.0).abs() < 0.03, "{replayed}");
    let parts: f64 =
        replayed["critical_path"].as_object().unwrap().values().map(|s| s.as_f64().unwrap()).sum();
    assert!((parts - step(&replayed)).abs() < 1e-9, "{replayed}");
    let emulated = report(&format!("{sample} --arch khop:3"));
    assert!((step(&emulated) / recorded - 1.0).abs() < 0.03, "{emulated}");
    assert!(step(&report(&format!("{sample} --compute-scale 0.5"))) < step(&replayed));
}

#[test]
fn step_exported_as_chakra_runs_equally_long() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces");
    let ours = report(&format!(
        "mfu --model llama-3.1-8b --gpus 8 --batch 4 --seq 256 --tp 4 --pp 2 --cp 1 --virtual-stages 1 \
         --micro-batch 1 --recompute none --packets --format json --chakra-out {}",
        traces.display()
    ));
    let files: Vec<String> =
        (0..8).map(|rank| traces.join(format!("step.{rank}.et")).display().to_string()).collect();
    assert!(files.iter().all(|file| Path::new(file).exists()));
    let again =
        report(&format!("workload run {} --tp 4 --arch khop:3 --format json", files.join(" ")));
    let packets = ours["rows"][0]["packets"]["packet_seconds"].as_f64().unwrap();
    // A trace omits the library's delays, a tenth of this short step.
    assert!((step(&again) / packets - 1.0).abs() < 0.08, "{packets} {again}");
}

#[test]
fn rejects_unsupported_workloads_with_location() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/workloads/simai-layer.txt"),
    )
    .unwrap();
    let simai = file("bad.txt", &text.replace("ALLREDUCE", "GOSSIP"));
    let (status, message) = complaint(&format!("workload run {simai}"));
    assert_eq!(status, Some(1));
    assert!(
        message.contains("bad.txt: line 3: exchange `GOSSIP` is not a collective"),
        "{message}"
    );

    let chakra = file("bad.et", "no protobuf");
    let (status, message) = complaint(&format!("workload run {chakra}"));
    assert_eq!(status, Some(1));
    assert!(
        message.contains("bad.et: the trace of rank 0 is corrupt after 0 messages"),
        "{message}"
    );

    let trace = file("bad.json", "{\"traceEvents\": [\n  7]}");
    let (status, message) = complaint(&format!("workload replay {trace}"));
    assert_eq!(status, Some(1));
    assert!(message.contains("bad.json: line 2, column 3: expected a mapping"), "{message}");

    let (status, message) =
        complaint("workload run topologies/workloads/simai-layer.txt --arch nvl:3");
    assert_eq!(status, Some(1));
    assert!(message.contains("unknown architecture `nvl:3`"), "{message}");
}

fn real(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/traces").join(name);
    if !path.exists() {
        println!("skipped: no ../shared/data");
        return None;
    }
    Some(path.display().to_string())
}

#[test]
fn reads_files_of_other_tools() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(kineto) = real("kineto_nccl_2gpu.json.gz") {
        let recorded = report(&format!("workload replay {kineto} --format json"));
        let taken = recorded["recorded_seconds"].as_f64().unwrap();
        assert!((step(&recorded) / taken - 1.0).abs() < 0.05, "{recorded}");
        let run = report(&format!("workload replay {kineto} --arch dgx --format json"));
        assert_eq!(run["ranks"], 2, "{run}");
        assert!(run["packet_hops"].as_u64() > Some(0), "{run}");
    }
    if let Some(chakra) = real("chakra_pytorch.0.et.gz") {
        let run = report(&format!("workload run {chakra} --arch dgx --tp 1 --format json"));
        assert!(step(&run) > 0.0, "{run}");
    }
    if let Some(goal) = real("binary_tree_32.goal") {
        let out = folder.path().join("again.goal");
        let line =
            format!("workload run {goal} --arch dgx --format json --goal-out {}", out.display());
        let run = report(&line);
        assert_eq!((&run["ranks"], &run["tasks"]), (&32.into(), &31.into()), "{run}");
        let again = report(&format!("workload run {} --arch dgx --format json", out.display()));
        assert!((step(&again) / step(&run) - 1.0).abs() < 1e-9, "{again}");
    }
    let ring: Vec<String> = (0..8)
        .filter_map(|rank| real(&format!("astra_custom_ring_8/custom_allreduce.{rank}.et")))
        .collect();
    if ring.len() == 8 {
        let run = report(&format!("workload run {} --arch dgx --format json", ring.join(" ")));
        assert_eq!(run["ranks"], 8, "{run}");
    }
}
