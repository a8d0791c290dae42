// SPDX-License-Identifier: Apache-2.0

use std::path::PathBuf;

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_training::runs::Runs;
use lightloom_training::runs::refit::Refit;
use serde::Serialize;

use crate::cards::read_runs;
use lightloom::files;
use lightloom::output::{self, VerbOutcome};
use lightloom::result::ResultArguments;
use lightloom::table::TextTable;

/// Refit the constants of `lightloom mfu` to measured steps.
///
/// Changes at most three constants that explain the runs, and shows their intervals and the
/// errors on fitted and held-out runs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns of RUNS.csv: id, accelerator, num_accel, model, precision, seq, gbs_seqs, software (the constants to start from)
and step_time_s or tokens_s_per_accel; tp, pp, vpp, cp, ep, mbs, recompute, fsdp if known;
layers, hidden, heads, kv_heads, ffn, vocab, experts, topk, moe_ffn for a model that lightloom does not include.

Examples:
  lightloom calibrate runs.csv --out ours.json
  lightloom mfu --model llama-3.1-70b --gpus 1024 --constants ours.json"
)]
pub(crate) struct Arguments {
    /// Measured runs, as comma-separated values with a header.
    #[arg(value_name = "RUNS.csv")]
    runs: PathBuf,
    /// Write the refitted constants here, for `lightloom mfu --constants FILE` (must end in .json).
    #[arg(long, value_name = "FILE", value_parser = files::destination)]
    out: Option<PathBuf>,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    made: Provenance,
    #[serde(flatten)]
    refit: Refit,
    rows_not_read: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<VerbOutcome> {
    if let Some(out) = &arguments.out {
        anyhow::ensure!(
            out.extension().is_some_and(|extension| extension == "json"),
            "--out {}: the name must end in .json, so that `lightloom mfu --constants` reads it as a file",
            out.display()
        );
    }
    let mut inputs = Inputs::new();
    let text = read_runs(&arguments.runs, 0, &mut inputs)?;
    let (runs, mistakes) = Runs::read(&[&text]);
    let rows_not_read: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    for mistake in &rows_not_read {
        output::note(&format!("{}: {mistake}", arguments.runs.display()));
    }
    let refit = runs.refit()?;
    if let Some(out) = &arguments.out {
        let mut text = serde_json::to_string_pretty(&refit.file())?;
        text.push('\n');
        files::write(out, text.as_bytes())?;
    }
    let made = Provenance::of("lightloom.calibrate/v1", inputs);
    let document = Document { made, refit, rows_not_read };
    arguments.result.show(&document, "rows", || shown(&document.refit))?;
    Ok(if mistakes.is_empty() { VerbOutcome::Good } else { VerbOutcome::Bad })
}

fn shown(refit: &Refit) -> String {
    let mut errors = TextTable::new(["runs", "number", "error before", "error after"]);
    for (what, number, shares) in [
        ("fitted on", refit.fitting_runs, refit.fitting_error),
        ("held out", refit.kept_back_runs, refit.kept_back_error),
    ] {
        let [before, after] = shares.map(|share| format!("{:.1} %", 100.0 * share));
        errors.row([what.to_owned(), number.to_string(), before, after]);
    }
    let constants = TextTable::of(&refit.changed)
        .column("constant", |(name, _)| **name)
        .column("before", |(_, [before, _])| format!("{before:.4}"))
        .column("after", |(_, [_, after])| format!("{after:.4}"))
        .column("95 % interval", |(name, _)| {
            let interval = refit.intervals.get(*name);
            interval.map_or_else(String::new, |[low, high]| format!("{low:.4} to {high:.4}"))
        })
        .column("equally good alternatives", |(name, _)| {
            refit.stands_in_for.get(*name).map_or_else(String::new, |all| all.join(", "))
        })
        .table();
    let mut text = format!(
        "constants of {} refitted; mean absolute errors of the step\n\n{errors}\n{constants}\n",
        refit.base
    );
    for (what, names) in [
        ("at their limits (the runs would fit better beyond them)", &refit.at_limit),
        ("unchanged: they already fit the runs", &refit.kept),
        ("unchanged: the runs do not depend on them", &refit.not_determined),
    ] {
        if !names.is_empty() {
            text.push_str(&format!("{what}: {}\n", names.join(", ")));
        }
    }
    text
}
