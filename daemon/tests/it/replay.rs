// SPDX-License-Identifier: Apache-2.0

use crate::corpus;
use crate::fuzz_replay as replay;
use replay::replay;

#[test]
fn daemon_file() {
    replay("daemon/corpus/daemon_file", corpus::daemon_file);
}

#[test]
fn plan() {
    replay("daemon/corpus/plan", corpus::plan);
}

#[test]
fn journal() {
    replay("daemon/corpus/journal", corpus::journal);
}

#[test]
fn scpi_reply() {
    replay("daemon/corpus/scpi_reply", corpus::scpi_reply);
}

#[test]
fn tl1_reply() {
    replay("daemon/corpus/tl1_reply", corpus::tl1_reply);
}

#[test]
fn api() {
    replay("daemon/corpus/api", corpus::api);
}
