// SPDX-License-Identifier: Apache-2.0
//! Mistakes of users: files of the wrong kind, numbers in the wrong form, and requests that were accepted without effect.
//! The message names the mistake and its remedy.

use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(folder: &Path, line: &str) -> (Option<i32>, String) {
    let line = line.replace("TOPOLOGIES", &format!("{ROOT}/topologies"));
    let mut command = Command::new(crate::programs::lightloom());
    let output = command.args(line.split_whitespace()).current_dir(folder).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn refuse(folder: &Path, cases: &[(&str, i32, &str)]) {
    for (line, status, expected) in cases {
        let (code, text) = run(folder, line);
        assert!(text.contains(expected), "{line}: {text}");
        assert_eq!(code, Some(*status), "{line}: {text}");
    }
}

#[test]
fn names_a_file_of_another_kind_and_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::copy(format!("{ROOT}/topologies/ring-32.yaml"), at.join("fab.yaml")).unwrap();
    fs::write(at.join("flows.csv"), "start,src,dst,bytes\n0,n0/g0,n9/g1,1MiB\n").unwrap();
    assert_eq!(run(at, "plan fab.yaml -o plan.json").0, Some(0));
    let scenario =
        "kind: scenario\nversion: 2\nname: x\non: {fabric: plan.json}\ncollectives: []\n";
    fs::write(at.join("scen.yaml"), scenario).unwrap();
    refuse(
        at,
        &[
            ("calibrate fab.yaml", 1, "is a fabric file, but a CSV of measured runs is expected"),
            ("mfu --runs plan.json", 1, "is a plan, but a CSV of measured runs is expected"),
            ("workload run flows.csv", 1, "is a flow table (CSV), but a Chakra trace,"),
            ("workload run fab.yaml", 1, "`lightloom plan` reads it"),
            (
                "workload run TOPOLOGIES/workloads/recorded-step.json",
                1,
                "`lightloom workload replay` reads it",
            ),
            ("workload replay fab.yaml", 1, "is a fabric file, but a recorded step"),
            ("trace info flows.csv", 1, "is a flow table (CSV), but a fault trace is expected"),
            ("merge plan.json", 1, "is a plan, but a sweep result is expected"),
            ("cost --prices flows.csv", 1, "this is a flow table (CSV), but a prices file"),
            ("device serve fab.yaml", 1, "this is a fabric file, but a devices file is expected"),
            ("validate fab.yaml --kind scenario", 1, "error[LL0016]: this is a fabric file"),
            ("emulate scen.yaml", 1, "this is a plan, but a fabric file is expected"),
            ("emulate fab.yaml --plan scen.yaml", 1, "this is a scenario file, but a plan"),
            ("report fab.yaml flows.csv", 1, "flows.csv is a flow table (CSV)"),
            ("reproduce infinitehbd --faults fab.yaml", 1, "is a fabric file, but a fault trace"),
        ],
    );
}

#[test]
fn whole_numbers_state_their_range_and_their_digits() {
    let folder = tempfile::tempdir().unwrap();
    refuse(
        folder.path(),
        &[
            ("mfu --model llama-3.1-8b --gpus 1k", 2, "write 1000 or 1024"),
            ("mfu --model llama-3.1-8b --gpus 64 --seq 8k", 2, "write 8000 or 8192"),
            ("mfu --model llama-3.1-8b --gpus 64 --batch -8", 2, "from 1 to 100000000"),
            ("serve --model llama-3.1-8b --gpus 8 --per-minute 1e9", 2, "from 1 to 10000000"),
            ("compare --gpus -5", 2, "use a number from 1 to 16777216"),
        ],
    );
}

#[test]
fn nothing_is_accepted_without_effect() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::copy(format!("{ROOT}/topologies/ring-32.yaml"), at.join("fab.yaml")).unwrap();
    let devices = "fabric: fab.yaml\ntransceivers:\n  - names: n{0..39}/b{0..1}\n";
    fs::write(at.join("devices.yaml"), devices).unwrap();
    let pod = fs::read_to_string(format!("{ROOT}/topologies/pod-64.yaml")).unwrap();
    let twice = pod.replace("gpus_per_leaf: 8", "gpus_per_leaf: 16");
    fs::write(at.join("leaves.yaml"), twice).unwrap();
    let job = "kind: fabric\nversion: 2\nname: x\nhbd: {khop: {nodes: 16, gpus_per_node: 4, k: 2}}\njobs:\n  \
               - {name: a, gpus: 32, tp: 8, step: {training: {model: llama-3.1-8b, pp: 3, tokens: 8192}}}\n";
    fs::write(at.join("job.yaml"), job).unwrap();
    fs::write(at.join("dp.yaml"), job.replace("pp: 3", "pp: 3, dp: 2")).unwrap();
    let replay = "workload replay TOPOLOGIES/workloads/recorded-step.json";
    let sweep = "emulate TOPOLOGIES/scenarios/node-fault.yaml";
    let serve = "serve --model llama-3.1-405b --per-minute 100";
    refuse(
        at,
        &[
            (
                &format!("{replay} --tp 3"),
                2,
                "8 ranks in groups of 4 consecutive ranks: use --tp 4",
            ),
            (&format!("{replay} --tp 16"), 2, "use --tp 4"),
            ("device serve devices.yaml", 1, "n32 does not exist: the fabric has nodes n0 to n31"),
            ("validate devices.yaml", 1, "n32 does not exist"),
            ("plan leaves.yaml", 1, "4 leaves have none"),
            ("plan job.yaml", 1, "use `gpus: 48` or `pp: 2`"),
            ("plan dp.yaml", 1, "use `gpus: 48` or `pp: 2`\n"),
            ("plan fab.yaml --at 75", 2, "--at 75 needs the trace with this day"),
            (&format!("{sweep} --seed 1 --shard 1/4"), 2, "is empty: use at least 4 seeds"),
            (&format!("{sweep} --shard 0/4"), 2, "--shard 0/4 needs a range of seeds"),
            (&format!("{serve} --gpus 8"), 1, "use --gpus 16 or a multiple of 16"),
            (&format!("{serve} --gpus 16 --share 0.99"), 2, "write 99 for 99 %"),
            ("compare --tp 4096 --gpus 2880", 1, "--tp 4096 exceeds the cluster of 2880 GPUs"),
        ],
    );
}
