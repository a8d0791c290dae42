// SPDX-License-Identifier: Apache-2.0
//! `lightloom measure` turns times of one GPU into an accelerator file that other verbs read.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn lightloom(folder: &Path, arguments: &str) -> Output {
    let program = crate::programs::lightloom();
    let arguments = arguments.split_whitespace();
    Command::new(program).args(arguments).current_dir(folder).output().expect("it runs")
}

/// Times at 80 % of an H200's peak with 16 bits.
fn result(gpu: &str) -> Value {
    let at_peak = |flops: f64| 1e3 * flops / (0.8 * 989e12);
    let products =
        [[8192_u32, 4096, 6144], [8192, 4096, 28672], [8192, 14336, 4096]].map(|shape| {
            let [m, k, n] = shape;
            let time = json!({"ms": at_peak(2.0 * shape.map(f64::from).iter().product::<f64>())});
            json!({"m": m, "k": k, "n": n, "fwd": time, "dgrad": time, "wgrad": time})
        });
    let launch = json!({"ms": 0.01});
    let small = json!({"m": 64, "k": 64, "n": 64, "fwd": launch});
    let forward = at_peak(2.0 * 32.0 * 8192.0 * 8192.0 * 128.0);
    json!({
        "env": {"gpu": gpu, "torch": "2.11.0", "cuda": "13.0", "copy_gbps": 4200.0},
        "gemm": products.into_iter().chain([small]).collect::<Vec<_>>(),
        "attention": [{"b": 1, "h": 32, "s": 8192, "d": 128, "fwd_ms": forward, "fb_ms": 3.5 * forward}],
        "train": [{"shape": "8b", "layers": 4, "s": 8192, "b": 1, "recompute": "none",
            "compile": false, "step_ms": 97.2, "fwd_ms": 29.0, "opt_ms": 10.1}],
    })
}

#[test]
fn measured_card_replaces_shares_of_peak() {
    let folder = tempfile::tempdir().expect("a folder of our own");
    let text = result("NVIDIA H200").to_string();
    std::fs::write(folder.path().join("result.json"), text).expect("the folder is ours");
    let made = lightloom(folder.path(), "measure --from result.json --output mine.yaml");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mfu = |accelerator: &str| {
        let job = "mfu --model llama-3.1-8b --gpus 8 --tp 1 --why --format json --accelerator";
        let output = lightloom(folder.path(), &format!("{job} {accelerator}"));
        serde_json::from_slice::<Value>(&output.stdout).expect("a JSON document")
    };
    let (mine, shipped) = (mfu("mine.yaml"), mfu("h200"));
    let compute = |report: &Value| report["rows"][0]["compute_seconds"].as_f64().expect("seconds");
    assert!(compute(&mine) < compute(&shipped));
    let measured = mine["operators_measured"].as_str().expect("points");
    assert!(measured.starts_with("10 products and 1 attention cores on NVIDIA H200"), "{measured}");
    // The listed operators are the whole computation, and none of them is far from a measured one.
    let operators = mine["operators"].as_array().expect("operators");
    let seconds = |one: &Value| one["seconds"].as_f64().expect("seconds");
    let optimizer = mine["rows"][0]["optimizer_seconds"].as_f64().expect("seconds");
    let listed: f64 = operators.iter().map(seconds).sum();
    let whole = compute(&mine) + optimizer;
    assert!((listed / whole - 1.0).abs() < 0.01, "{listed} of {whole} s");
    assert_eq!(operators[0]["name"], "feed-forward up");
    assert_eq!(operators[0]["nearest"]["size"], "8192×4096×28672");
    assert!(shipped["operators"][0]["nearest"].is_null());
}

#[test]
fn rejects_unknown_gpus_and_damaged_results() {
    let folder = tempfile::tempdir().expect("a folder of our own");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("the folder is ours");
    };
    write("other.json", &result("Example X1").to_string());
    write("half.json", "{\"env\": {");
    write("grace.json", &result("NVIDIA GH200 480GB").to_string());
    write("small.json", &result("NVIDIA A100-SXM4-40GB").to_string());
    let mut none = result("NVIDIA H200");
    (none["env"]["copy_gbps"], none["errors"]) = (0.0.into(), json!(["memory: out of memory"]));
    write("none.json", &none.to_string());
    for (arguments, expected) in [
        ("measure --from other.json", "unknown GPU `Example X1`"),
        ("measure --from half.json", "not a result of the script"),
        ("measure --from grace.json", "unknown GPU `NVIDIA GH200 480GB`"),
        ("measure --from none.json", "not measured: memory: out of memory"),
        ("measure --eager", "--from"),
    ] {
        let output = lightloom(folder.path(), arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(expected), "{message}");
    }
    let small = lightloom(folder.path(), "measure --from small.json");
    assert!(String::from_utf8_lossy(&small.stdout).contains("name: \"a100-40gb\""));
    let mut cores = result("NVIDIA H200");
    cores["attention"] =
        json!([{"b": 4_000_000_000_u32, "h": 8, "s": 1, "d": 1, "fwd_ms": 1, "fb_ms": 2}]);
    write("cores.json", &cores.to_string());
    let made = lightloom(folder.path(), "measure --from cores.json --output cores.yaml");
    let valid = lightloom(folder.path(), "validate cores.yaml");
    assert!(made.status.success() && valid.status.success(), "{valid:?}");
    let scaled = lightloom(folder.path(), "measure --from other.json --accelerator h100");
    assert!(scaled.status.success(), "{}", String::from_utf8_lossy(&scaled.stderr));
}
