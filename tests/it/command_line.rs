// SPDX-License-Identifier: Apache-2.0
//! Exit codes and output streams of the command line.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn lightloom(arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::programs::lightloom());
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("NO_COLOR");
    command
}

fn run(arguments: &[&str]) -> Output {
    lightloom(arguments).output().expect("the program starts")
}

fn run_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = lightloom(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // The program reads no more than its limit and may then close the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("the program ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is text")
}

const BAD: &[u8] =
    b"name: x\nhbd: {khop: {nodes: 8, gpus_per_node: 4, kk: 2}}\nkind: fabric\nversion: 2\n";

fn files_under(folder: &std::path::Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"))
    {
        let path = entry.path();
        if path.is_dir() {
            files_under(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path.display().to_string());
        }
    }
}

#[test]
fn every_shipped_file_is_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies");
    let mut files = Vec::new();
    files_under(folder.as_ref(), &mut files);
    files.sort();
    assert!(files.iter().any(|path| path.ends_with("/daemon.yaml")));
    let mut arguments = vec!["validate"];
    arguments.extend(files.iter().map(String::as_str));
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), files.len());
}

#[test]
fn locates_every_mistake_of_a_daemon_file() {
    let file = b"state_dir: /tmp/x\npolicies: {dark_links_max: 1}\ndevices:\n\
        - {name: ocs0, driver: {scpi: {tcp: 'a:1'}}}\n- {name: ocs0, driver: {scpi: {tcp: 'a:1'}}}\n";
    let output = run_with_input(&["validate", "-"], file);
    let shown = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(shown.contains("LL0604") && shown.contains("LL0601"), "{shown}");
}

#[test]
fn bad_file_exits_with_1_and_prints_mistakes_to_standard_error() {
    let output = run_with_input(&["validate", "-"], BAD);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let shown = text(&output.stderr);
    assert!(shown.contains("error[LL0101]: unknown key `kk`"), "{shown}");
    assert!(shown.contains("<stdin>:2:42") && shown.contains("did you mean `k`?"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no colour into a pipe");
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [
        &["validate"][..],
        &["nonsense"],
        &["schema", "nonsense"],
        &["validate", "--format", "xml", "x"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn json_is_the_only_output_on_standard_output() {
    let output = run_with_input(&["validate", "-", "--format", "json"], BAD);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let diagnostic = &result["files"][0]["diagnostics"][0];
    assert_eq!(result["files"][0]["valid"], false);
    assert_eq!(diagnostic["code"], "LL0101");
    assert_eq!((&diagnostic["line"], &diagnostic["column"]), (&2.into(), &42.into()));
}

#[test]
fn sarif_names_rule_and_location() {
    let output = run_with_input(&["validate", "-", "--format", "sarif"], BAD);
    assert_eq!(output.status.code(), Some(1));
    let log: Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&log["version"], &result["ruleId"]), (&"2.1.0".into(), &"LL0101".into()));
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!((&region["startLine"], &region["startColumn"]), (&2.into(), &42.into()));
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert!(rules.iter().any(|rule| rule["id"] == "LL0101"));
}

#[test]
fn color_option_forces_and_disables_colour() {
    let coloured = run_with_input(&["validate", "-", "--color", "always"], BAD);
    assert!(text(&coloured.stderr).contains('\u{1b}'));
    let plain = run_with_input(&["validate", "-", "--color", "never"], BAD);
    assert!(!text(&plain.stderr).contains('\u{1b}'));
}

#[test]
fn reports_missing_files_and_files_of_unknown_kind() {
    let output = run(&["validate", "no/such.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("LL0015"), "{}", text(&output.stderr));
    let output = run_with_input(&["validate", "-"], b"a: 1\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--kind"), "{}", text(&output.stderr));
}

#[test]
fn schema_of_a_kind_is_json_schema() {
    let output = run(&["schema", "fabric"]);
    assert_eq!(output.status.code(), Some(0));
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["jobs"]["description"], "Jobs to run, in order of placement.");
}

#[test]
fn prints_completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("validate"), "{shell}");
    }
}

#[test]
fn closed_output_pipe_ends_the_program_quietly() {
    let mut command = lightloom(&["schema", "fabric"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}
