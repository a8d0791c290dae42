// SPDX-License-Identifier: Apache-2.0
//! `lightloom reproduce mfu --runs` and `collectives`: recompute published measurements.

use std::path::PathBuf;

use lightloom_fabric::provenance::{Inputs, Provenance};
use lightloom_training::collectives::{self, JudgedCollective};
use lightloom_training::runs::Runs;
use lightloom_training::runs::judge::{CLASSES, Errors, Judged};
use lightloom_training::runs::page::{ComparedRun, page};
use serde::Serialize;

use crate::cards::read_runs;
use lightloom::output::{self, VerbOutcome};
use lightloom::result::ResultFormat;

pub(crate) fn published(tables: &[PathBuf], format: ResultFormat) -> anyhow::Result<VerbOutcome> {
    let mut inputs = Inputs::new();
    let texts = texts(tables, &mut inputs)?;
    let (runs, mistakes) = Runs::read(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    let judged = runs.judge();
    let document = PublishedErrors::of(&judged, mistakes.len(), inputs);
    print(format, &document, "runs", || page(&judged, &mistakes))
}

pub(crate) fn collectives(tables: &[PathBuf], format: ResultFormat) -> anyhow::Result<VerbOutcome> {
    anyhow::ensure!(!tables.is_empty(), "no measured collectives: list tables with --runs");
    let mut inputs = Inputs::new();
    let texts = texts(tables, &mut inputs)?;
    let (collectives, without) =
        collectives::judge(&texts.iter().map(String::as_str).collect::<Vec<_>>())?;
    let made = Provenance::of("lightloom.published-collectives/v1", inputs);
    let document = PublishedCollectives { made, rows_without_figure: without, collectives };
    print(format, &document, "collectives", || collectives::page(&document.collectives, without))
}

/// Text output is the Markdown page.
fn print(
    format: ResultFormat,
    document: &impl Serialize,
    rows: &str,
    page: impl FnOnce() -> String,
) -> anyhow::Result<VerbOutcome> {
    match format {
        ResultFormat::Markdown => output::print(&page())?,
        format => format.print(document, rows, page)?,
    }
    Ok(VerbOutcome::Good)
}

#[derive(Serialize)]
struct PublishedCollectives {
    #[serde(flatten)]
    made: Provenance,
    rows_without_figure: usize,
    collectives: Vec<JudgedCollective>,
}

fn texts(tables: &[PathBuf], inputs: &mut Inputs) -> anyhow::Result<Vec<String>> {
    tables.iter().enumerate().map(|(place, path)| read_runs(path, place, inputs)).collect()
}

#[derive(Serialize)]
struct PublishedErrors {
    #[serde(flatten)]
    made: Provenance,
    rows_without_figure: usize,
    classes: Vec<ClassErrors>,
    runs: Vec<ComparedRun>,
}

#[derive(Serialize)]
struct ClassErrors {
    class: &'static str,
    test: Errors,
    fit: Errors,
}

impl PublishedErrors {
    fn of(judged: &[Judged<'_>], not_read: usize, inputs: Inputs) -> Self {
        let classes = CLASSES.iter().map(|class| {
            let [test, fit] = [true, false].map(|tests| {
                let of_class = judged.iter().filter(|judged| judged.classes().contains(class));
                Errors::of(of_class.filter(|judged| judged.tests == tests))
            });
            ClassErrors { class, test, fit }
        });
        let refused = judged.iter().filter(|judged| judged.outcome.is_err()).count();
        Self {
            made: Provenance::of("lightloom.published-runs/v1", inputs),
            rows_without_figure: not_read + refused,
            classes: classes.collect(),
            runs: ComparedRun::of(judged),
        }
    }
}
