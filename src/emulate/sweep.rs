// SPDX-License-Identifier: Apache-2.0
//! Sweeps over many seeds, run in parallel and reported in one table, worst first.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lightloom_emulator::sweep::{SeedRange, SeedRun, Sweep, SweepShard, SweepSubject};
use lightloom_fabric::provenance::Inputs;
use lightloom_units::seed::Seed;
use rayon::prelude::*;

use super::Arguments;
use super::ci::replay_command;
use crate::files;
use crate::merge;
use crate::output::{VerbOutcome, WrongUsage};
use crate::progress::Progress;
use crate::result::ResultArguments;
use crate::table::TextTable;

/// A sweep that is interrupted loses at most the runs of this time.
const SAVED_EVERY: Duration = Duration::from_secs(5);

struct Saved {
    runs: Vec<SeedRun>,
    saved: Instant,
}

pub(super) fn run(
    arguments: &Arguments,
    subject: SweepSubject,
    inputs: &Inputs,
    seeds: SeedRange,
    run_one: impl Fn(Seed) -> anyhow::Result<SeedRun> + Sync,
) -> anyhow::Result<VerbOutcome> {
    if arguments.flows_out.is_some() || arguments.look.is_asked_for() {
        let message = "--flows-out, --timeline, --pcap, --links-out and series record a single run: use one seed";
        return Err(WrongUsage(message.to_owned()).into());
    }
    if arguments.prove_reuse {
        let message = "--prove-reuse checks a single run: use one seed";
        return Err(WrongUsage(message.to_owned()).into());
    }
    let of = |runs: Vec<SeedRun>| {
        let sweep = Sweep::new(subject.clone(), seeds, arguments.shard, runs);
        Sweep { inputs: inputs.clone(), ..sweep }
    };
    let mut finished =
        if arguments.resume { earlier(arguments, &of(Vec::new()))? } else { Vec::new() };
    let mut left: BTreeSet<u64> = seeds.share(arguments.shard).map(|seed| seed.0).collect();
    if let (Some(SweepShard { index, count }), true) = (arguments.shard, left.is_empty()) {
        let message = format!(
            "--shard {index}/{count} of --seed {seeds} is empty: use at least {count} seeds, or fewer parts"
        );
        return Err(WrongUsage(message).into());
    }
    let progress = Progress::new("seeds", left.len() as u64);
    finished.retain(|run| left.remove(&run.seed.0));
    let left: Vec<Seed> = left.into_iter().map(Seed).collect();
    progress.advance(finished.len() as u64);
    let runs = Mutex::new(Saved { runs: finished, saved: Instant::now() });
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(usize::from(arguments.threads)).build()?;
    pool.install(|| {
        left.par_iter().try_for_each(|seed| -> anyhow::Result<()> {
            let run = run_one(*seed)?;
            progress.advance(1);
            let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.runs.push(run);
            if let Some(file) = arguments.result.document()
                && runs.saved.elapsed() > SAVED_EVERY
            {
                let document = serde_json::to_string(&of(runs.runs.clone()))?;
                files::write(file, document.as_bytes())?;
                runs.saved = Instant::now();
            }
            Ok(())
        })
    })?;
    drop(progress);
    let sweep = of(runs.into_inner().unwrap_or_else(PoisonError::into_inner).runs);
    arguments.reports.write(&sweep.subject, &sweep.runs)?;
    show(&sweep, &arguments.result)
}

fn earlier(arguments: &Arguments, this: &Sweep) -> anyhow::Result<Vec<SeedRun>> {
    let Some(file) = arguments.result.document() else {
        let message = "--resume reads a JSON result: use -o FILE.json";
        return Err(WrongUsage(message.to_owned()).into());
    };
    if !file.exists() {
        return Ok(Vec::new());
    }
    let shown = file.display();
    let saved = merge::read(file)?;
    let same = (&saved.version, &saved.inputs, &saved.subject)
        == (&this.version, &this.inputs, &this.subject);
    anyhow::ensure!(
        same,
        "{shown} was made from other files or by another version: omit --resume or use another file"
    );
    Ok(saved.runs)
}

pub fn show(sweep: &Sweep, result: &ResultArguments) -> anyhow::Result<VerbOutcome> {
    result.show(sweep, "runs", || describe(sweep))?;
    Ok(if sweep.passed() { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn recoveries(sweep: &Sweep) -> String {
    if sweep.recoveries.is_empty() {
        return String::new();
    }
    let table = TextTable::of(&sweep.recoveries)
        .column("from fault to recovery", |row| row.kind.clone())
        .column("faults", |row| row.faults)
        .column("recovered", |row| row.recovered)
        .column("never", |row| row.never)
        .column("P50", |row| or_dash(row.p50))
        .column("P90", |row| or_dash(row.p90))
        .column("P99", |row| or_dash(row.p99))
        .column("longest", |row| or_dash(row.max))
        .column("at seed", |row| or_dash(row.worst_seed.map(|seed| seed.0)))
        .table()
        .verbatim();
    let mut text = format!("\n{table}");
    for row in &sweep.recoveries {
        for (why, faults) in &row.never_because {
            let _ = writeln!(text, "never, {faults} of {}: {why}", row.kind);
        }
    }
    text
}

fn losses(sweep: &Sweep) -> String {
    if sweep.distributions.is_empty() {
        return String::new();
    }
    let mut table =
        TextTable::new(["over all seeds", "P50", "P90", "P99", "highest", "at seed"]).verbatim();
    for row in &sweep.distributions {
        let [p50, p90, p99, max] =
            [row.p50, row.p90, row.p99, row.max].map(|value| row.figure.show(value));
        let (words, seed) = (row.figure.words().to_owned(), row.worst_seed.0.to_string());
        table.row([words, p50, p90, p99, max, seed]);
    }
    format!("\n{table}")
}

fn describe(sweep: &Sweep) -> String {
    let mut text = format!(
        "`{}`, seeds {}: {} runs, {} passed\n\n",
        sweep.subject.scenario,
        sweep.seeds,
        sweep.runs.len(),
        sweep.runs.iter().filter(|run| run.passed).count(),
    );
    let mut table =
        TextTable::new(["expectation", "passed", "failed", "worst seed", "found there"]).verbatim();
    for tally in &sweep.expectations {
        table.row([
            tally.expect.clone(),
            tally.passed.to_string(),
            tally.failed.to_string(),
            tally.worst_seed.0.to_string(),
            tally.worst_value.clone(),
        ]);
    }
    text.push_str(&table.to_string());
    text.push_str(&losses(sweep));
    text.push_str(&recoveries(sweep));
    if let Some(worst) = Sweep::worst(&sweep.runs) {
        let replay = replay_command(&sweep.subject, worst);
        text.push_str(&format!("\nworst seed: {}; replay: {replay}\n", worst.seed.0));
        if let Some(stop) = &worst.stop {
            text.push_str(&format!("  the run ended at {stop}\n"));
        }
        for fault in &worst.faults {
            text.push_str(&format!("  {fault}\n"));
        }
    }
    if !sweep.seeds_missing.is_empty() {
        let some: Vec<String> =
            sweep.seeds_missing.iter().take(20).map(|seed| seed.0.to_string()).collect();
        let more = if sweep.seeds_missing.len() > 20 { " …" } else { "" };
        text.push_str(&format!("MISSING: no result for seeds {}{more}\n", some.join(" ")));
    }
    text
}
