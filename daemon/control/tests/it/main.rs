// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-control`, in one program.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod at_scale;
mod diagnosis;
mod exhaust;
mod healing;
mod lost_management;
mod path_of_a_fault;
mod polls;
mod replan_stages;
