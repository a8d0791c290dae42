// SPDX-License-Identifier: Apache-2.0

use std::path::{Path, PathBuf};

use lightloom_emulator::sweep::{SWEEP_SCHEMA, Sweep, SweepShard};

use crate::emulate::{Reports, show_sweep};
use crate::output::{self, VerbOutcome};
use crate::result::ResultArguments;
use crate::{files, kinds};

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
    let shards: Vec<SweepShard> = parts.iter().filter_map(|part| part.shard).collect();
    let sweep = Sweep::merge(parts)?;
    arguments.reports.write(&sweep.subject, &sweep.runs)?;
    let outcome = show_sweep(&sweep, &arguments.result)?;
    if !sweep.seeds_missing.is_empty() {
        output::note(&missing(&sweep, &shards, &arguments.results));
    }
    Ok(outcome)
}

fn missing(sweep: &Sweep, shards: &[SweepShard], files: &[PathBuf]) -> String {
    const SHOWN: usize = 10;
    let seeds = sweep.seeds_missing.iter().take(SHOWN).map(|seed| seed.0.to_string());
    let seeds = seeds.collect::<Vec<_>>().join(", ");
    let more = if sweep.seeds_missing.len() > SHOWN { " …" } else { "" };
    let count = shards.first().map_or(0, |shard| shard.count);
    let absent = (0..count)
        .filter(|index| shards.iter().all(|shard| shard.index != *index))
        .map(|index| format!("; add the result of `--shard {index}/{count}`"));
    let absent: String = absent.take(SHOWN).collect();
    let twice = (1..files.len()).find(|place| files[..*place].contains(&files[*place]));
    let twice =
        twice.map_or(String::new(), |at| format!("; {} is given twice", files[at].display()));
    format!("error: no result for seeds {seeds}{more}{absent}{twice}")
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Sweep> {
    let bytes = files::read_result(path)?;
    let sweep: Sweep = serde_json::from_slice(&bytes).or_else(|error| {
        let way = "`lightloom emulate … --seed 0..99 --format json` writes one";
        kinds::expect(path, &bytes, "a sweep result", way)?;
        let error = anyhow::Error::new(error);
        Err(error.context(format!("{} is not a sweep result; {way}", path.display())))
    })?;
    anyhow::ensure!(
        sweep.schema == SWEEP_SCHEMA,
        "{} has schema `{}`; this program reads `{SWEEP_SCHEMA}`",
        path.display(),
        sweep.schema
    );
    Ok(sweep)
}
