// SPDX-License-Identifier: Apache-2.0
//! Test helpers for several crates. Depends on no other crate of the workspace, so that tests compile
//! quickly.

pub mod terminal;

/// Returns `suite`, or `night` if `LIGHTLOOM_NIGHT=1` (set by `ci/nightly`). Nightly cases start
/// with the cases of the suite.
#[must_use]
pub fn cases<Count>(suite: Count, night: Count) -> Count {
    if std::env::var_os("LIGHTLOOM_NIGHT").is_some() { night } else { suite }
}

/// Returns the arguments that run only this test. Panics if `module` is not the test's
/// `module_path!()`.
#[must_use]
pub fn alone(module: &str, test: &str) -> Vec<String> {
    let (_, module) = module.split_once("::").expect("a module of a test program");
    ["--exact", &format!("{module}::{test}"), "--include-ignored", "--nocapture"]
        .map(str::to_owned)
        .into()
}

/// Panics unless a program with the arguments of [`alone`] ran its test and passed.
pub fn passed_alone(output: &std::process::Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let is_good = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(is_good, "{said}{}", String::from_utf8_lossy(&output.stderr));
}
