// SPDX-License-Identifier: Apache-2.0

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where its set-up fails, and prints figures"
)]

mod bench;
mod modules;
mod profiles;
