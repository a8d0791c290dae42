// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-firmware-api` in one binary.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod bench;
mod bring_up;
mod cdb;
mod corpus;
mod disagreements;
mod events;
#[path = "../../../fuzz/replay.rs"]
mod fuzz_replay;
mod garbage;
mod host_view;
mod messages;
mod replay;
mod switching;
