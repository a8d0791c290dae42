// SPDX-License-Identifier: Apache-2.0
//! Test helpers shared by several crates: the number of cases, and tests in a separate process.
//!
//! The crate depends on no other workspace crate, so that tests compile quickly.

/// Returns the number of cases of a test: `suite` in ordinary runs, `night` with
/// `LIGHTLOOM_NIGHT=1`, as set by `ci/nightly`. The first cases of the night are those of the
/// suite.
#[must_use]
pub fn cases<Count>(suite: Count, night: Count) -> Count {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { night } else { suite }
}

/// Returns command-line arguments that make this test program run only the given test. `module` is
/// the `module_path!()` of that test.
///
/// # Panics
/// If `module` is not a module of a test program.
#[must_use]
pub fn alone(module: &str, test: &str) -> Vec<String> {
    let (_, module) = module.split_once("::").expect("a module of a test program");
    ["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture"]
        .map(str::to_owned)
        .into()
}

/// Asserts that a test program started with [`alone`] ran its test and passed.
///
/// # Panics
/// If it did not.
pub fn passed_alone(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let is_good = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(is_good, "{said}{}", String::from_utf8_lossy(&output.stderr));
}
