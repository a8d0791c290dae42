// SPDX-License-Identifier: Apache-2.0
//! Tests of the library from C, C++ and Rust.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "a test ends where its set-up fails, says what it skips, and hands over pointers as C does"
)]

mod calls;
mod header;
mod program;
