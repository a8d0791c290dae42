// SPDX-License-Identifier: Apache-2.0
//! What `lightloom-control` promises, in one program: a file a subject, a folder what several of them use.

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
