// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use anyhow::Context;
use lightloom_emulator::sweep::{SWEEP_SCHEMA, Sweep};

use crate::emulate::{Reports, show_sweep};
use crate::files;
use crate::output::VerbOutcome;
use crate::result::ResultArguments;

/// Combine the parts of a sweep into one result with its worst seed
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lightloom merge part-*.json
  lightloom merge part-*.json --junit junit.xml --summary summary.md --format json > sweep.json")]
pub struct Arguments {
    /// Results of `lightloom emulate … --seed 0..99 --shard i/n --format json`
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    result: ResultArguments,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    let parts: Vec<Sweep> =
        arguments.results.iter().map(|path| read(path)).collect::<anyhow::Result<_>>()?;
    let sweep = Sweep::merge(parts)?;
    arguments.reports.write(&sweep.subject, &sweep.runs)?;
    show_sweep(&sweep, &arguments.result)
}

fn read(path: &Path) -> anyhow::Result<Sweep> {
    parse(path, &files::read_result(path)?)
}

pub(crate) fn parse(path: &Path, bytes: &[u8]) -> anyhow::Result<Sweep> {
    let sweep: Sweep = serde_json::from_slice(bytes).with_context(|| {
        format!(
            "{} is not a sweep result (`lightloom emulate … --seed 0..99 --format json`)",
            path.display()
        )
    })?;
    anyhow::ensure!(
        sweep.schema == SWEEP_SCHEMA,
        "{} has schema `{}`; this program reads `{SWEEP_SCHEMA}`",
        path.display(),
        sweep.schema
    );
    Ok(sweep)
}
