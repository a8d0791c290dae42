// SPDX-License-Identifier: Apache-2.0

use crate::small;
use serde_json::Value;
use small::{good, lightloom};

const POD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/pod-2048.yaml");

#[test]
fn joint_plan_is_replanned_exported_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let page = good(folder, &["plan", POD, "--fault", "n17,ocs3,l5/up2", "-o", "plan.json"]);
    for part in ["GPUs", "ranks of", "micro-batches", "gradients", "saves", "no placement saves"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(page.lines().count() <= 50, "one page: {} lines", page.lines().count());
    good(
        folder,
        &["replan", "plan.json", "--fabric", POD, "--fault", "n40,ocs5", "-o", "next.json"],
    );
    let next: Value =
        serde_json::from_slice(&std::fs::read(folder.join("next.json")).expect("a plan"))
            .expect("JSON");
    assert_eq!(next["faults"].as_array().map(Vec::len), Some(5));
    let slurm = good(folder, &["export", "next.json", "--fabric", POD, "--to", "slurm"]);
    assert!(slurm.contains("g0"), "{slurm}");
    good(folder, &["export", "next.json", "--fabric", POD, "--to", "sonic-ocs", "-o", "switches"]);
    assert!(std::fs::read_dir(folder.join("switches")).expect("a folder").count() >= 15);
    let dot = ["export", "next.json", "--fabric", POD, "--to", "dot"];
    assert!(good(folder, &dot).contains("cluster_g0"));
    let phase = [&dot[..], &["--phase", "gradients"]].concat();
    assert!(good(folder, &phase).contains("leaf"));
    for inputs in [&["report", POD][..], &["report", POD, "next.json"]] {
        let page = good(folder, &[inputs, &["--samples", "2", "--format", "markdown"]].concat());
        assert!(page.contains("The network and its circuits"), "{page}");
        assert!(page.contains("pretrain"));
    }
}

#[test]
fn compare_includes_the_fabric_file_and_its_bounds() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let arguments = ["compare", POD, "--faults", "iid:0.01", "--samples", "3", "--format", "json"];
    let result: Value = serde_json::from_str(&good(folder, &arguments)).expect("JSON");
    assert_eq!((&result["gpus"], &result["gpus_per_node"]), (&2048.into(), &4.into()));
    let fabric = &result["fabric"];
    assert_eq!(fabric["moments"], 3);
    let number = |key: &str| fabric[key].as_f64().unwrap_or_else(|| panic!("{key} in {fabric}"));
    assert!(number("lower_bound_mean") <= number("waste_mean"));
    assert!(number("cross_tor_share_lower_bound_mean") <= number("cross_tor_share_mean"));
    assert!(number("orchestration_gain_mean") <= number("orchestration_gain_upper_bound_mean"));
    assert!(result["rows"].as_array().expect("rows").iter().any(|row| row["arch"] == "khop:3"));
    let page = good(folder, &arguments[..6]);
    for words in ["this fabric, as planned", "GPUs wasted", "cross ToRs", "saved by joint planning"]
    {
        assert!(page.contains(words), "{words} in {page}");
    }
}

#[test]
fn rejects_a_zero_gpu_group_with_a_suggestion() {
    let folder = tempfile::tempdir().expect("a folder");
    for verb in ["compare", "cost"] {
        let output = lightloom(folder.path(), &[verb, "--tp", "0"]);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(shown.contains("--tp <LIST>") || shown.contains("--tp <N>"), "{shown}");
        assert!(shown.contains("0 is out of range: use a number from 1 to"), "{shown}");
    }
}

#[test]
fn locates_mistakes_in_a_fabric_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let rfabric = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/topologies/rfabric-moe.yaml"
    ))
    .expect("text");
    let pod = std::fs::read_to_string(POD).expect("text");
    let says = |text: &str, words: &[&str], not: &str| {
        std::fs::write(folder.join("f.yaml"), text).expect("written");
        let output = lightloom(folder, &["validate", "f.yaml"]);
        let shown = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        for word in words {
            assert!(shown.contains(word), "{word} in {shown}");
        }
        assert!(not.is_empty() || !shown.contains(not), "{not} in {shown}");
    };
    let without_step = rfabric.split("\njobs:").next().expect("a part").to_owned() + "\n";
    let without_step = without_step.split("\nstep:").next().expect("a part").to_owned() + "\n";
    says(&without_step, &[], "the key `hbd` is missing");
    let slow = pod.replace("circuit_rate: ", "gpu_rate: 1Mbps\n    circuit_rate: ");
    says(&slow, &["gpu_rate", "slower than any GPU link"], "");
    let many = pod.replace("ports_per_switch: 128", "ports_per_switch: 8192");
    says(&many, &["8192", "no optical switch has"], "");
    let ring = "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 12, gpus_per_node: 4, k: 2}}\njobs: [{name: j, tp: 1024}]\n";
    says(
        ring,
        &["f.yaml:5:", "exceeds the largest group of the domain: 48 GPUs", "use at most 48"],
        "",
    );
}

#[test]
fn plans_rails_and_leaf_spines_and_rejects_unsupported_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for network in ["{rails: {nodes_per_group: 4, planes: 2}}", "{leaf_spine: {nodes_per_leaf: 4}}"]
    {
        let text = format!(
            "kind: fabric\nversion: 2\nname: x\nhbd: {{khop: {{nodes: 64, gpus_per_node: 4, k: 2}}}}\ndcn: {network}\njobs:\n  - name: \
             j\n    gpus: 224\n    tp: 8\n    step: {{training: {{model: llama-3.1-70b, pp: 2, tokens: 4096}}}}\n"
        );
        std::fs::write(folder.join("f.yaml"), text).expect("written");
        let page = good(folder, &["plan", "f.yaml", "--fault", "n3,l1/up0", "-o", "plan.json"]);
        assert!(page.contains("packets"), "{page}");
        good(folder, &["replan", "plan.json", "--fabric", "f.yaml", "--fault", "n20"]);
        good(folder, &["export", "plan.json", "--fabric", "f.yaml", "--to", "slurm"]);
        good(folder, &["report", "f.yaml", "--samples", "2", "--format", "markdown"]);
    }
}

/// Regression: for a node that failed through both bundles, the page said "Nothing is out of service".
#[test]
fn report_names_failed_bundles_without_a_failed_node() {
    let ring = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/ring-32.yaml");
    let folder = tempfile::tempdir().expect("a folder");
    let faults = ["--fault", "n5/b0,n6/b1", "--samples", "2", "--arch", "khop:2"];
    let page =
        good(folder.path(), &[&["report", ring, "--format", "markdown"][..], &faults].concat());
    assert!(page.contains("2 parts have failed, but no whole node"), "{page}");
}
