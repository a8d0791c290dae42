// SPDX-License-Identifier: Apache-2.0
//! Writes the validation page and its CSV file from the tables of published runs, computed as by
//! the command line.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::RowError;
use super::judge::{CLASSES, Errors, Judged};
use crate::claims::{Claim, claims};

const HEAD: &str = "\
# How far the training step is from published measurements

Written by `lightloom reproduce mfu --runs mfu_measured.csv,mfu_measured_2.csv --format markdown`; `--format csv` writes
[validation-mfu.csv](validation-mfu.csv), which has every measured run with the computed one. Each row is computed like `lightloom mfu`, with the same options,
checks and memory limit, and the `--constants` of the software that ran. Settings that a row does not state (recomputation, micro-batch) come from the recipe
or from the search. Seconds come from the row, or from its tokens per second.

Names alone decided which runs fit constants and which only test them: for each software on each accelerator, every second model in
alphabetical order tests, as do all models added later. Constants belong to a chip and a software stack ([mfu.md](mfu.md)), whose versions differ in features. The *form* of
the model was settled with all runs in view, so the test covers the constants and not the form.
";

const CONCLUSIONS: &str = "
## What a reader may conclude

* `lightloom mfu` prints next to a step the error of the test runs of its class: chip, software, dense or mixture. Treat two mappings or designs
  that differ by less as equal. With fewer than five test runs for a class it prints *not validated*.
* For dense models on the chips and software below, the computed step can replace a measurement within that error. For mixtures of
  experts this requires a known recipe of the version ([features](mfu.md#features)).
* Not validated: other chips and software, jobs and groups larger than in the rows, offload of activations, and
  refitted constants except by the held-out runs. [mfu.md](mfu.md#constants) lists measurements that the constants do not explain.
";

#[must_use]
pub fn page(judged: &[Judged<'_>], mistakes: &[RowError]) -> String {
    let mut page = String::from(HEAD);
    summary(&mut page, judged, mistakes.len());
    page.push_str(CONCLUSIONS);
    by_software(&mut page, judged);
    refusals(&mut page, judged, mistakes);
    study(&mut page);
    page
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(page, "{text}");
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn summary(page: &mut String, judged: &[Judged<'_>], not_read: usize) {
    let of = |class: &str, tests: bool| {
        Errors::of(judged.iter().filter(|j| j.tests == tests && j.classes().contains(&class)))
    };
    let all = of("all", true);
    let refused = judged.iter().filter(|judged| judged.outcome.is_err()).count();
    let rows = judged.len() + not_read;
    line(
        page,
        format_args!(
            "\n**{} mean absolute error on {} test runs.** Of {rows} rows {} get no figure ({}).\n",
            percent(all.mean),
            all.runs,
            refused + not_read,
            percent((refused + not_read) as f64 / rows.max(1) as f64),
        ),
    );
    line(
        page,
        format_args!(
            "| class | test runs | mean absolute error | bias | largest | fitting runs | theirs |\n| --- | --- | --- | --- | --- | --- | --- |"
        ),
    );
    for class in CLASSES {
        let (test, fit) = (of(class, true), of(class, false));
        line(
            page,
            format_args!(
                "| {class} | {} | {} | {:+.1} % | {} | {} | {} |",
                test.runs,
                percent(test.mean),
                100.0 * test.bias,
                percent(test.largest),
                fit.runs,
                percent(fit.mean)
            ),
        );
    }
}

fn by_software(page: &mut String, judged: &[Judged<'_>]) {
    line(
        page,
        format_args!(
            "\n## By software and accelerator\n\n| constants | accelerator | test runs | mean absolute error | fitting runs | theirs |\n| --- | --- | --- | --- | --- | --- |"
        ),
    );
    let mut pairs: BTreeMap<(&str, &str), Vec<&Judged<'_>>> = BTreeMap::new();
    for one in judged {
        pairs.entry((&one.run.software, &one.run.accelerator)).or_default().push(one);
    }
    for ((software, accelerator), all) in pairs {
        let of = |tests| Errors::of(all.iter().copied().filter(|one| one.tests == tests));
        let (test, fit) = (of(true), of(false));
        let mean =
            |errors: Errors| if errors.runs == 0 { "–".to_owned() } else { percent(errors.mean) };
        line(
            page,
            format_args!(
                "| `{software}` | {accelerator} | {} | {} | {} | {} |",
                test.runs,
                mean(test),
                fit.runs,
                mean(fit)
            ),
        );
    }
}

fn refusals(page: &mut String, judged: &[Judged<'_>], mistakes: &[RowError]) {
    line(page, format_args!("\n## Rows without a figure\n"));
    for mistake in mistakes {
        line(page, format_args!("* {mistake}"));
    }
    for refused in judged.iter().filter_map(|one| one.outcome.as_ref().err()) {
        line(page, format_args!("* {refused}"));
    }
}

fn study(page: &mut String) {
    line(
        page,
        format_args!(
            "\n## The InfiniteHBD study, training part\n\nLlama-3.1-405B on H100, 2,048 sequences \
             of 8,192 tokens per step at every size; a ring of any size at 800 GB/s against DGX with TP of at most 8, both with 50 GB/s per GPU beyond the domain. The verdict over all cases is in [validation](validation.md).\n\n| claim | published | ours | verdict |\n| --- | --- | --- | --- |"
        ),
    );
    for Claim { claim, published, ours, verdict } in claims() {
        line(page, format_args!("| {claim} | {published} | {ours} | {} |", verdict.label()));
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct ComparedRun {
    pub row: String,
    pub constants: String,
    pub accelerator: String,
    pub model: String,
    pub format: &'static str,
    pub gpus: u64,
    pub mapping: String,
    pub sequences: u64,
    pub tokens: u64,
    /// Measured seconds per step, to the millisecond.
    pub measured_s: f64,
    /// Computed seconds per step, to the millisecond.
    pub computed_s: f64,
    /// Excess of the computed step, in percent.
    pub error_percent: f64,
    /// `fit` or `test`.
    pub used_to: &'static str,
}

impl ComparedRun {
    /// Returns every run with a computed time, in the order of the tables.
    #[must_use]
    pub fn of(judged: &[Judged<'_>]) -> Vec<Self> {
        let of = |one: &Judged<'_>| {
            let (found, error) = (one.outcome.as_ref().ok()?, one.error()?);
            let (run, request) = (one.run, &one.run.request);
            Some(Self {
                row: run.id.clone(),
                constants: run.software.clone(),
                accelerator: run.accelerator.clone(),
                model: run.model.clone(),
                format: request.precision.label(),
                gpus: run.gpus,
                mapping: found.mapping.to_string(),
                sequences: request.batch.sequences,
                tokens: request.batch.tokens,
                measured_s: rounded(run.measured_seconds, 1e3),
                computed_s: rounded(found.step.step_seconds, 1e3),
                error_percent: rounded(100.0 * error, 10.0),
                used_to: if one.tests { "test" } else { "fit" },
            })
        };
        judged.iter().filter_map(of).collect()
    }
}

/// Rounds to multiples of `1 / parts`. Adding 0.0 avoids a negative zero.
fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts + 0.0
}
