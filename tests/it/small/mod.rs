// SPDX-License-Identifier: Apache-2.0
//! A scenario that runs in an instant.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn lightloom(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(folder).env_remove("GITHUB_STEP_SUMMARY");
    command.output().expect("the program starts")
}

pub(crate) fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = lightloom(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

pub(crate) fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// 24 nodes; a node failure costs 100 µs of control and 60 to 80 µs of darkness.
pub(crate) fn small(expect: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let fabric = "
kind: fabric
version: 2
name: small
hbd: {khop: {nodes: 24, gpus_per_node: 4, k: 3}}
transceiver: {software_delay: 20us}
jobs: [{name: train, gpus: 64, tp: 16}]
";
    let scenario = format!(
        "
name: small
on: {{fabric: fabric.yaml}}
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
