//! Every verb takes one plan of rings and circuits.

mod small;

use serde_json::Value;
use small::good;

const POD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/pod-2048.yaml");

#[test]
fn a_joint_plan_is_replanned_exported_and_reported() {
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
    // Rings and circuits, each in the formats that hold them.
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
fn rails_and_leaf_spines_are_planned_and_what_cannot_run_on_them_says_so() {
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
