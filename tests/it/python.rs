// SPDX-License-Identifier: Apache-2.0
//! The Python module and its notebooks run with the program of this build.

use std::path::PathBuf;

use crate::consumers::consumer;

#[test]
fn python_module_and_notebooks_run() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let program = crate::programs::lightloom();
    let python = format!("PYTHONPATH=python LIGHTLOOM='{}' python3", program.display());
    let tests = "-m pytest -q -p no:cacheprovider python/tests/test_lightloom.py python/tests/test_notebooks.py";
    let run = format!("{python} {tests} || {{ {python} {tests} >&2; exit 1; }}");
    let probe = ["python3", "-c", "import pytest, pandas, pyarrow"];
    if let Some(said) = consumer("pytest, pandas, pyarrow", &probe, &["sh", "-c", &run], &root) {
        assert!(said.contains("passed") && !said.contains("skipped"), "{said}");
    }
}

#[test]
fn health_events_reach_the_platform_connector_of_nvsentinel() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let tests = ["python3", "python/tests/test_nvsentinel.py"];
    consumer("python3", &["python3", "--version"], &tests, &root);
}
