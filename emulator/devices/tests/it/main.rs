// SPDX-License-Identifier: Apache-2.0

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod corpus;
mod device_replay;
mod fibres;
#[path = "../../../../fuzz/replay.rs"]
mod fuzz_replay;
mod gnmi;
mod gnmi_arbitration;
mod gnmi_bench;
mod live;
mod live_devices;
mod optical_switch;
mod transceiver;
