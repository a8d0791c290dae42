// SPDX-License-Identifier: Apache-2.0
//! `lightloom device`, `lightloom conform` and `lightloom twin`: run by a second program, `lightloom-lab`, from beside this one.
//!
//! They need servers, TLS and HTTP/2, which nobody who plans and emulates should have to compile.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use crate::output::{Colour, Outcome};

/// The file name of the second program.
const PROGRAM: &str = "lightloom-lab";

/// Emulated transceivers and optical switches, with their faults.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  lightloom device serve topologies/devices/ring-32.yaml --links /tmp/modules --control /tmp/faults
  lightloom device fault --control /tmp/faults n3/b0 lose 1%"
)]
pub(crate) struct Device {
    /// See `lightloom device --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) rest: Vec<OsString>,
}

/// Tests whether a device does what its protocol promises.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Example:
  lightloom conform gnmi://127.0.0.1:9339 --plaintext --may-move in-2,in-3,out-2,out-3"
)]
pub(crate) struct Conform {
    /// See `lightloom conform --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) rest: Vec<OsString>,
}

/// Runs real programs in namespaces whose links are where emulated light is.
#[derive(Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Example:
  lightloom twin up topologies/ring-32.yaml --dir /tmp/twin
  lightloom twin exec --all --dir /tmp/twin -- hostname"
)]
pub(crate) struct Twin {
    /// See `lightloom twin --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    pub(crate) rest: Vec<OsString>,
}

/// Becomes the second program.
///
/// # Errors
/// It is not beside this one.
pub(crate) fn run(verb: &str, rest: &[OsString], colour: Colour) -> anyhow::Result<Outcome> {
    let own = std::env::current_exe().context("cannot find where this program is")?;
    let program = own.with_file_name(PROGRAM);
    if !program.is_file() {
        bail!(
            "`lightloom {verb}` is run by {PROGRAM}, which is not beside {}: the archive and the Debian package \
             have it; in the source folder `cargo build --release -p {PROGRAM}` builds it, and \
             `cargo install --locked --path lab` installs it",
            own.display()
        );
    }
    let mut command = Command::new(&program);
    if let Some(when) = colour.to_possible_value().filter(|_| colour != Colour::Auto) {
        command.args(["--color", when.get_name()]);
    }
    // Only comes back where it failed.
    let error = command.arg(verb).args(rest).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
