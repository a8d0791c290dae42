// SPDX-License-Identifier: Apache-2.0
//! Runs the stored fuzz corpus of the emulated switch as an ordinary test.

use crate::corpus;
use crate::fuzz_replay as replay;
use replay::replay;

#[test]
fn scpi() {
    replay("devices/corpus/scpi", corpus::scpi);
}

#[test]
fn tl1() {
    replay("devices/corpus/tl1", corpus::tl1);
}
