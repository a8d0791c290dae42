// SPDX-License-Identifier: Apache-2.0

use crate::programs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn lightloom(arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::lightloom());
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn every_shipped_device_list_is_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/devices");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().display().to_string();
        let output = lightloom(&["validate", &path]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{path}: {shown}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("good devices file"));
    }
}

#[test]
fn served_device_accepts_faults_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("list.yaml"), "transceivers:\n  - names: n{0..1}/b0\n").unwrap();
    let (list, links, control) = (at("list.yaml"), at("links"), at("control"));
    let serve =
        ["device", "serve", &list, "--links", &links, "--control", &control, "--format", "json"];
    let mut running =
        Running(lightloom(&serve).stdout(Stdio::piped()).spawn().expect("the program starts"));
    let mut shown = String::new();
    let mut lines = BufReader::new(running.0.stdout.take().unwrap());
    while !shown.ends_with("\n}\n") {
        assert!(lines.read_line(&mut shown).unwrap() > 0, "it serves: {shown}");
    }
    let devices: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(devices["devices"][1]["name"], "n1/b0");
    assert_eq!(devices["devices"][1]["at"], at("links/n1-b0"));

    let fault = |words: &[&str]| {
        let mut arguments = vec!["device", "fault", "--control", &control];
        arguments.extend(words);
        let output = lightloom(&arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(fault(&["n1/b0", "lose", "1%"]).0, Some(0));
    let (code, message) = fault(&["n1/b0", "explode"]);
    assert!(code == Some(1) && message.contains("`explode` is not a fault"), "{message}");
    let (code, message) = fault(&["n7/b0", "lie"]);
    assert!(code == Some(1) && message.contains("device `n7/b0` does not exist"), "{message}");
}

#[test]
fn rejects_an_invalid_device_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.yaml");
    std::fs::write(&path, "transceivers:\n  - name: n0\n").unwrap();
    let mut child = Running(
        lightloom(&["device", "serve", &path.display().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
    let mut shown = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
    assert!(shown.contains("unknown key `name`") && shown.contains("`names`"), "{shown}");
}

#[test]
fn missing_second_program_error_explains_installation() {
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("lightloom");
    std::fs::copy(env!("CARGO_BIN_EXE_lightloom"), &alone).unwrap();
    let output = Command::new(&alone).args(["conform", "gnmi://127.0.0.1:1"]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(shown.contains("needs lightloom-lab") && shown.contains("cargo install"), "{shown}");
}

#[test]
fn conformance_accepts_a_served_switch_and_rejects_a_faulty_one() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.yaml");
    let switch = "ingress: 8, egress: 8, gnmi: {listen: '127.0.0.1:0'}";
    let list_text = format!(
        "switches:\n  - {{name: good, {switch}}}\n  - {{name: bad, {switch}}}\n\
         faults:\n  - {{at: 0s, device: bad, fault: misbehave half-a-set}}\n"
    );
    std::fs::write(&list, list_text).unwrap();
    let serve = ["device", "serve", &list.display().to_string(), "--format", "json"];
    let mut running =
        Running(lightloom(&serve).stdout(Stdio::piped()).spawn().expect("the program starts"));
    let mut shown = String::new();
    let mut lines = BufReader::new(running.0.stdout.take().unwrap());
    while !shown.ends_with("\n}\n") {
        assert!(lines.read_line(&mut shown).unwrap() > 0, "it serves: {shown}");
    }
    let devices: Value = serde_json::from_str(&shown).unwrap();
    let conform = |index: usize, format: &str| {
        let at = format!("gnmi://{}", devices["devices"][index]["at"].as_str().unwrap());
        let ports = "in-2,in-3,out-2,out-3";
        let asked = [
            "conform",
            &at,
            "--plaintext",
            "--may-move",
            ports,
            "--rounds",
            "3",
            "--format",
            format,
        ];
        let output = lightloom(&asked).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), shown, String::from_utf8(output.stderr).unwrap())
    };
    let (code, shown, noted) = conform(0, "json");
    assert_eq!(code, Some(0), "{shown}{noted}");
    let report: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(report["schema"], "lightloom.conform/v1");
    assert_eq!(report["set_up"]["count"], 3);
    let (code, shown, _) = conform(1, "junit");
    assert_eq!(code, Some(1));
    let failed = shown.split("<testcase").filter(|case| case.contains("<failure"));
    let failed: Vec<_> = failed.collect();
    assert!(failed.len() == 1 && failed[0].contains("gnmi/set-whole"), "{shown}");
    let wrong = lightloom(&["conform", "gnmi://127.0.0.1:1"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "TLS or plain text has to be chosen");
}
