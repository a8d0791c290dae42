// SPDX-License-Identifier: Apache-2.0
//! No input makes the reader of fabric files panic, and it returns either a fabric or an error.
//! `fabric/tests/it/replay.rs` runs the stored inputs.
#![no_main]

use lightloom_fabric::document::{Severity, Style, render};
use lightloom_fabric::file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (fabric, mistakes) = file::load("fuzz.yaml", bytes);
    let refused = mistakes.iter().any(|mistake| mistake.severity == Severity::Error);
    assert_eq!(fabric.is_none(), refused);
    let _ = render(&mistakes, Style::Coloured);
});
