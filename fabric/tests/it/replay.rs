// SPDX-License-Identifier: Apache-2.0
//! Replays every input that the fuzz target of fabric files has collected.

use lightloom_fabric::document::{Severity, Style, render};
use lightloom_fabric::file;

use crate::fuzz_replay as replay;

#[test]
fn document() {
    replay::replay("corpus/document", |bytes| {
        let (fabric, mistakes) = file::load("fuzz.yaml", bytes);
        let refused = mistakes.iter().any(|mistake| mistake.severity == Severity::Error);
        assert_eq!(fabric.is_none(), refused);
        let _ = render(&mistakes, Style::Coloured);
    });
}
