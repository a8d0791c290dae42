// SPDX-License-Identifier: Apache-2.0
//! `lightloom`: plans and emulates, and passes every other verb to the second program.

use std::process::ExitCode;

fn main() -> ExitCode {
    lightloom::cli::main()
}
