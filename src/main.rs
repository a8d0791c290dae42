// SPDX-License-Identifier: Apache-2.0
//! `lightloom` plans and emulates; the second program runs all other verbs.

use std::process::ExitCode;

fn main() -> ExitCode {
    lightloom::cli::main()
}
