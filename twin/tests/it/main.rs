// SPDX-License-Identifier: Apache-2.0

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod agrees;
mod bad_input;
mod breaks;
mod circuits;
mod cost;
mod dead_node;
mod double_faults;
mod policy;
mod scenes;
mod training;
