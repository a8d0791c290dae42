// SPDX-License-Identifier: Apache-2.0
//! Helpers of tests that several crates share: how many cases a test draws, and tests that run in a process of their own.
//!
//! It uses no crate of the workspace, so that the tests of a crate compile little else.

/// How many cases a test tries: `suite` in every run of the tests, `night` with `LIGHTLOOM_NIGHT=1`, as `ci/nightly` sets
/// it. The cases of the suite are the first of the night's.
#[must_use]
pub fn cases<Count>(suite: Count, night: Count) -> Count {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { night } else { suite }
}

/// The arguments with which this test program, started again, runs one of its tests alone: `module` is what
/// `module_path!()` says where that test stands.
///
/// # Panics
/// A module that is no module of a test program.
#[must_use]
pub fn alone(module: &str, test: &str) -> Vec<String> {
    let (_, module) = module.split_once("::").expect("a module of a test program");
    ["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture"]
        .map(str::to_owned)
        .into()
}

/// Demands that a test program that was started with [`alone`] ran its test, and that it passed.
///
/// # Panics
/// It did not.
pub fn passed_alone(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let is_good = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(is_good, "{said}{}", String::from_utf8_lossy(&output.stderr));
}
