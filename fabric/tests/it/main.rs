// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-fabric` in one binary: one file per subject.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod document;
mod fabric_file;
#[path = "../../../fuzz/replay.rs"]
mod fuzz_replay;
mod replay;
mod trace;
