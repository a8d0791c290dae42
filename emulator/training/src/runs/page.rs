// SPDX-License-Identifier: Apache-2.0
//! The page of validation, written from the tables of published runs by the command line's own path.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::judge::{CLASSES, Errors, Judged};
use super::{RowError, Runs};
use crate::claims::{Claim, claims};

const HEAD: &str = "\
# How far the training step is from published measurements

Written by `lightloom reproduce mfu --runs mfu_measured.csv,mfu_measured_2.csv --format markdown`; not by hand. Every row goes the way of
`lightloom mfu`: same options, same checks, same memory check, `--constants` the software that ran. What a row does not print is left to
the search (recomputation, micro-batch). Seconds come from the row, or from its tokens a second.

Which rows fit constants and which only test them follows from names alone: of each software on each accelerator the models, in the order
of their names, fit and test in turn; the first fits. Constants belong to a chip and to a software version ([mfu.md](mfu.md)). The *form* of the
model was settled with all rows in view, so the test is of constants and not of the form.
";

/// The whole page.
#[must_use]
pub fn page(runs: &Runs, mistakes: &[RowError]) -> String {
    let judged = runs.judge();
    let mut page = String::from(HEAD);
    summary(&mut page, &judged, mistakes.len());
    by_software(&mut page, &judged);
    refusals(&mut page, &judged, mistakes);
    study(&mut page);
    rows(&mut page, &judged);
    page
}

/// Adds a line; a string takes every one.
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
            "\n## The InfiniteHBD study, training part\n\nLlama-3.1-405B on H100, 2,048 sequences of 8,192 tokens a step at every size; a ring of any size at 800 GB/s against DGX with TP of at most 8, both on 50 GB/s a GPU beyond.\n\n| claim | published | ours | verdict |\n| --- | --- | --- | --- |"
        ),
    );
    for Claim { claim, published, ours, verdict } in claims() {
        line(page, format_args!("| {claim} | {published} | {ours} | {} |", verdict.label()));
    }
}

fn rows(page: &mut String, judged: &[Judged<'_>]) {
    line(
        page,
        format_args!(
            "\n## Every row\n\n| row | constants | accelerator | model | format | GPUs | mapping | sequences × tokens | measured s | ours s | error | used to |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        ),
    );
    for one in judged {
        let (Ok(found), Some(error)) = (&one.outcome, one.error()) else { continue };
        let (run, request) = (one.run, &one.run.request);
        line(
            page,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} | {} × {} | {:.3} | {:.3} | {:+.1} % | {} |",
                run.id,
                run.software,
                run.accelerator,
                run.model,
                request.precision.label(),
                run.gpus,
                found.mapping,
                request.batch.sequences,
                request.batch.tokens,
                run.measured_seconds,
                found.step.step_seconds,
                100.0 * error,
                if one.tests { "test" } else { "fit" },
            ),
        );
    }
}
