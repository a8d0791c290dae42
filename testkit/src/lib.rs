// SPDX-License-Identifier: Apache-2.0
//! Test helpers that several crates share: the number of cases, and tests in a separate process.
//!
//! The crate depends on no other crate of the workspace, so that tests compile quickly.

/// Returns the number of cases in a test: `suite` in ordinary runs, and `night` if
/// `LIGHTLOOM_NIGHT=1`, which `ci/nightly` sets. The nightly cases begin with those of the suite.
#[must_use]
pub fn cases<Count>(suite: Count, night: Count) -> Count {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { night } else { suite }
}

/// Returns the arguments with which this test program runs only the given test. `module` is that
/// test's `module_path!()`.
///
/// # Panics
/// If `module` is not a module in a test program.
#[must_use]
pub fn alone(module: &str, test: &str) -> Vec<String> {
    let (_, module) = module.split_once("::").expect("a module of a test program");
    ["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture"]
        .map(str::to_owned)
        .into()
}

/// Asserts that a test program whose arguments came from [`alone`] ran its test and passed.
///
/// # Panics
/// If it did not run the test or did not pass.
pub fn passed_alone(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let is_good = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(is_good, "{said}{}", String::from_utf8_lossy(&output.stderr));
}
