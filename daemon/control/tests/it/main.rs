// SPDX-License-Identifier: Apache-2.0
//! The integration tests of `lightloom-control` in one program: a file per subject, a folder for
//! shared parts.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod at_scale;
mod diagnosis;
mod exhaust;
mod lost_management;
mod polls;
