// SPDX-License-Identifier: Apache-2.0
//! Replays the corpus of the fuzz targets.

use crate::corpus;
use crate::fuzz_replay as replay;
use replay::replay;

#[test]
fn serial_frame() {
    replay("devices/corpus/serial_frame", corpus::serial_frame);
}

#[test]
fn cmis() {
    replay("devices/corpus/cmis", corpus::cmis);
}

#[test]
fn cdb() {
    replay("devices/corpus/cdb", corpus::cdb);
}
