// SPDX-License-Identifier: Apache-2.0
//! `lightloom device` and `lightloom conform` are run by a second program, which is of another package: a run of
//! these tests alone has not built it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;
use std::sync::Once;

static BUILT: Once = Once::new();
static DAEMON_BUILT: Once = Once::new();

/// Builds `lightloom-lab` beside the program, where it is missing or old.
pub(crate) fn build() {
    BUILT.call_once(|| build_program("lightloom-lab"));
}

/// Builds `lightloomd` beside the program, where it is missing or old.
#[allow(dead_code, reason = "not every test has a daemon")]
pub(crate) fn build_daemon() {
    DAEMON_BUILT.call_once(|| build_program("lightloomd"));
}

fn build_program(name: &str) {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--offline", "--workspace", "--bin", name]);
    build.args((!cfg!(debug_assertions)).then_some("--release"));
    let build = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(build.success(), "{name} can be built");
}
