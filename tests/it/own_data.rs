// SPDX-License-Identifier: Apache-2.0
//! `init --from`: three commands turn a folder of logs into files that validate and run.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::consumers::consumer;

const TOPOLOGY: &str = "SwitchName=leaf1 Nodes=gpu[01-04]\nSwitchName=leaf2 Nodes=gpu[05-08]\nSwitchName=spine Switches=leaf[1-2]\n";

const JOBS: &str = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
1,u1,6,48,768,Pretrain,COMPLETED,2026-03-01 00:00:00+00:00,2026-03-01 00:10:00+00:00,2026-03-09 00:10:00+00:00,691200,600,1.0
2,u2,1,8,128,Eval,FAILED,2026-03-02 00:00:00+00:00,2026-03-02 00:10:00+00:00,2026-03-02 03:10:00+00:00,10800,600,1.0
";

fn events() -> Value {
    let event = |number: usize, node: &str, reason: &str, time: &str| {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("{node}.{number}"), "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node},
            "reason": reason,
            "message": format!("Node {node} status is now: {reason}"),
            "firstTimestamp": time,
            "lastTimestamp": time,
            "type": "Normal",
        })
    };
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
        event(1, "gpu03", "NodeNotReady", "2026-03-02T10:00:00Z"),
        event(2, "gpu03", "NodeReady", "2026-03-02T22:00:00Z"),
        event(3, "gpu06", "NodeNotReady", "2026-03-05T10:00:00Z"),
        event(4, "gpu06", "NodeReady", "2026-03-06T10:00:00Z"),
    ]})
}

fn profile(rank: u32) -> String {
    serde_json::json!({
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "traceEvents": [
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 0, "dur": 1_500_000.0},
            {"ph": "X", "cat": "kernel", "name": "gemm", "tid": 7, "ts": 0, "dur": 100_000},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "tid": 20, "ts": 100_010, "dur": 50, "args": {
                "Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000, "dtype": "Float",
                "Process Group Ranks": "[0, 1]", "Seq": 4, "stream": 20,
            }},
        ],
    })
    .to_string()
}

fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(folder).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = lightloom(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn logs(folder: &Path) {
    let logs = folder.join("logs");
    std::fs::create_dir_all(logs.join("profiles")).unwrap();
    std::fs::write(logs.join("topology.conf"), TOPOLOGY).unwrap();
    std::fs::write(logs.join("jobs.csv"), JOBS).unwrap();
    std::fs::write(logs.join("events.json"), events().to_string()).unwrap();
    for rank in 0..2 {
        std::fs::write(logs.join(format!("profiles/{rank}.json")), profile(rank)).unwrap();
    }
}

#[test]
fn folder_of_logs_becomes_a_bill_in_three_commands() {
    let folder = tempfile::tempdir().unwrap();
    logs(folder.path());
    let init = good(folder.path(), &["init", "--from", "logs", "-o", "mine"]);
    let row = |words: [&str; 4]| init.lines().any(|line| line.split_whitespace().take(4).eq(words));
    assert!(row(["fabric.yaml", "hbd.switch.nodes", "8", "stated"]), "{init}");
    assert!(row(["fabric.yaml", "jobs[0].gpus", "48", "stated"]), "{init}");
    assert!(row(["fault-trace.json", "outages", "2", "stated"]), "{init}");
    assert!(row(["runs.csv", "step_time_s", "1.500000", "stated"]), "{init}");

    let files = ["mine/fabric.yaml", "mine/scenario.yaml", "mine/buy.yaml"];
    good(folder.path(), &[&["validate"], &files[..]].concat());
    let run = good(folder.path(), &["emulate", "mine/scenario.yaml", "--format", "json"]);
    let run: Value = serde_json::from_str(&run).unwrap();
    assert_eq!(run["faults"].as_array().map(Vec::len), Some(2), "{}", run["faults"]);
    // 100 ms of computation, 10 us until the exchange, and at least 80 us for 4 MB between two GPUs of a host at
    // 400 Gb/s.
    let step = good(folder.path(), &["emulate", "mine/step.yaml", "--format", "json"]);
    let step: Value = serde_json::from_str(&step).unwrap();
    let took = step["simulated_ps"].as_u64().unwrap();
    assert!((100_080_000_000..100_250_000_000).contains(&took), "{took}");
    let bill = good(folder.path(), &["buy", "mine/buy.yaml"]);
    assert!(bill.contains("own-cluster: 64 GPUs, 30 days"), "{bill}");
    assert!(bill.contains("Shares of all GPU-hours"), "{bill}");
    // The own cluster is compared with switch domains, torus cubes and rings.
    let compared = good(folder.path(), &["buy", "mine/buy.yaml", "--format", "json"]);
    let compared: Value = serde_json::from_str(&compared).unwrap();
    let rows = compared["rows"].as_array().unwrap();
    let designs: Vec<&str> = rows.iter().map(|row| row["design"].as_str().unwrap()).collect();
    for design in ["own-cluster", "nvl:72", "khop:2", "khop:3"] {
        assert!(designs.contains(&design), "{design}: {designs:?}");
    }
    good(folder.path(), &["trace", "info", "mine/fault-trace.json"]);
}

#[test]
fn large_error_of_a_measured_step_suggests_calibration() {
    let folder = tempfile::tempdir().unwrap();
    logs(folder.path());
    good(folder.path(), &["init", "--from", "logs", "-o", "mine"]);
    let mfu = ["mfu", "--runs", "mine/runs.csv"];
    let unfilled = lightloom(folder.path(), &mfu);
    assert_eq!(unfilled.status.code(), Some(1));
    assert!(text(&unfilled.stderr).contains("row own"), "{}", text(&unfilled.stderr));
    let runs = folder.path().join("mine/runs.csv");
    let row = |seconds: &str| {
        format!(
            "id,accelerator,num_accel,model,precision,seq,gbs_seqs,software,tp,step_time_s\n\
             own,h100,16,llama-3.1-8b,bf16,8192,128,nemo-25.02,1,{seconds}\n"
        )
    };
    let ours = |seconds: &str| {
        std::fs::write(&runs, row(seconds)).unwrap();
        good(folder.path(), &mfu)
    };
    let first = ours("1.0");
    let (_, after) = first.split_once("measured 1.000 s, ours ").expect("our time");
    let (seconds, _) = after.split_once(' ').unwrap();
    let near = ours(seconds);
    assert!(near.contains(&format!("measured {seconds} s, ours {seconds} s")), "{near}");
    assert!(!near.contains("calibrate"), "{near}");
    let far = ours(&format!("{:.3}", seconds.parse::<f64>().unwrap() * 0.8));
    assert!(far.contains("lightloom calibrate mine/runs.csv"), "{far}");
}

#[test]
fn json_lists_guesses_and_problems_and_existing_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    logs(folder.path());
    std::fs::write(folder.path().join("logs/notes.txt"), "hello").unwrap();
    let json = good(folder.path(), &["init", "--from", "logs", "-o", "mine", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "lightloom.init/v1");
    assert_eq!(json["problems"][0]["file"], "logs/notes.txt");
    assert!(json["problems"][0]["still"].as_str().is_some_and(|still| still.contains("skipped")));
    let guesses = json["guesses"].as_array().unwrap();
    let rate = guesses.iter().find(|guess| guess["key"] == "dcn.fat_tree.link_rate").unwrap();
    assert_eq!(rate["confidence"], "assumed");
    assert_eq!(json["files"].as_array().map(Vec::len), Some(7), "with hostnames.txt");
    assert_eq!(json["logs"].as_array().map(Vec::len), Some(5));

    let again = lightloom(folder.path(), &["init", "--from", "logs", "-o", "mine"]);
    assert!(
        text(&again.stderr).contains("mine/fabric.yaml already exists"),
        "{}",
        text(&again.stderr)
    );
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let none = lightloom(folder.path(), &["init", "--from", "empty", "-o", "other"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("kubectl get events -A -o json"), "{}", text(&none.stderr));
    assert!(!folder.path().join("other").exists());
}

#[test]
fn damaged_archives_are_skipped_with_their_cause_and_a_single_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("topology.conf"), TOPOLOGY).unwrap();
    std::fs::write(folder.path().join("cut.gz"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b])
        .unwrap();
    let said = lightloom(folder.path(), &["init", "--from", ".", "-o", "mine"]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let cause = "./cut.gz: incomplete deflate stream; skipped";
    assert!(text(&said.stderr).contains(cause), "{}", text(&said.stderr));
    good(folder.path(), &["init", "--from", "topology.conf", "-o", "single"]);
}

#[test]
fn test_events_are_valid_kubernetes_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut check = vec!["python3", "-m", "kubernetes_validate", "--strict"];
    let files = ["1.json", "2.json", "3.json", "4.json"];
    for (file, event) in files.iter().zip(events()["items"].as_array().unwrap()) {
        std::fs::write(folder.path().join(file), event.to_string()).unwrap();
        check.push(file);
    }
    let probe = ["python3", "-m", "kubernetes_validate", "--version"];
    let name = "kubernetes-validate";
    let Some(said) = consumer(name, &probe, &check, folder.path()) else { return };
    assert_eq!(said.matches("passed for resource event/").count(), 4, "{said}");
}

#[test]
fn slurm_counts_the_same_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let conf = "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\n";
    std::fs::write(folder.path().join("slurm.conf"), conf).unwrap();
    for list in ["gpu[001-003,9,0010],login", "rack[0-1]_blade[00-02]", "a,b7"] {
        let hostnames = format!("SLURM_CONF=$PWD/slurm.conf scontrol show hostnames '{list}'");
        let probe = ["sh", "-c", "scontrol -V"];
        let Some(found) = consumer("scontrol", &probe, &["sh", "-c", &hostnames], folder.path())
        else {
            return;
        };
        let _ = std::fs::remove_dir_all(folder.path().join("mine"));
        std::fs::create_dir_all(folder.path().join("logs")).unwrap();
        std::fs::write(folder.path().join("logs/t"), format!("SwitchName=s Nodes={list}\n"))
            .unwrap();
        let json =
            good(folder.path(), &["init", "--from", "logs", "-o", "mine", "--format", "json"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        let nodes = json["guesses"]
            .as_array()
            .unwrap()
            .iter()
            .find(|guess| guess["key"] == "hbd.switch.nodes");
        assert_eq!(nodes.unwrap()["value"], found.lines().count().to_string(), "{list}: {found}");
    }
}
