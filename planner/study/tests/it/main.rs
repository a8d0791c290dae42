// SPDX-License-Identifier: Apache-2.0
//! Integration tests of `lightloom-study`: one file per subject.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, prints figures and reads shipped files"
)]

mod buy;
mod buy_months;
mod compare;
mod compare_naive;
mod cost;
mod cross_tor;
mod fabric_files;
mod opus;
mod rfabric_claims;
