// SPDX-License-Identifier: Apache-2.0
//! What the agent promises, in one program: a file a subject.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where its set-up fails, and prints figures"
)]

mod bench;
mod modules;
mod profiles;
