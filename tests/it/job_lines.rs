// SPDX-License-Identifier: Apache-2.0
//! Jobs that request phases themselves: the line protocol of Opus's process groups with an
//! independent client, and the process group of the Python package. `ci/nightly job-lines` is the
//! long run.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::consumers::consumer;
use crate::programs;

fn python(script: &str, arguments: &[&str]) -> Option<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let command = [&["python3", script], arguments].concat();
    consumer("python3", &["python3", "--version"], &command, &root)
}

#[test]
fn circuits_match_the_answers_of_an_independent_client() {
    let programs = programs::folder().display().to_string();
    let few = ["--changes", "3", "--kills", "1", "--faults", "0", "--ranks", "2"];
    let Some(printed) =
        python("tests/it/consumers/opus_job.py", &[&[&*programs], &few[..]].concat())
    else {
        return;
    };
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&result["changes"], &result["wrong"]), (&json!(3), &json!([])), "{result}");
    assert!(result["answers"]["lit"].as_u64().unwrap() >= 4, "{result}");
}

#[test]
fn training_continues_whatever_the_daemon_answers() {
    python("python/tests/test_torch.py", &[]);
}
