// SPDX-License-Identifier: Apache-2.0
//! `lightloom`: plans and emulates, and hands every other verb to the program beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    lightloom::cli::main()
}
