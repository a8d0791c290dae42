// SPDX-License-Identifier: Apache-2.0
//! Measured runs from tables with their computed times, for validating all constants.
//!
//! A row becomes the [`Request`] that a user would enter for it. Missing settings are searched. Runs
//! are grouped by source, model and accelerator; each group is used entirely for fitting or testing
//! ([`Runs::testing`]).

pub mod judge;
pub mod page;
pub mod refit;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::calibration::Calibration;
use super::network::Network;
use super::request::{Prepared, Request};
use super::search::Found;

/// Models used for fitting, by software and accelerator, from `fitting.csv`.
static FITTING: LazyLock<Vec<(String, String, String)>> =
    LazyLock::new(|| lightloom_collective::rows(include_str!("runs/fitting.csv")));

#[derive(Clone, Debug)]
pub struct Runs {
    pub runs: Vec<MeasuredRun>,
}

#[derive(Clone, Debug)]
pub struct MeasuredRun {
    pub id: String,
    pub source: String,
    pub model: String,
    pub accelerator: String,
    pub software: String,
    pub gpus: u64,
    /// Seconds per step, converted if only a rate was published.
    pub measured_seconds: f64,
    pub request: Request,
    pub assumed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {why}", if id.is_empty() { String::new() } else { format!(", row {id}") })]
pub struct RowError {
    /// Line number in the table, where the header is line 1.
    pub line: usize,
    pub id: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {why}")]
pub struct RunRefused {
    pub id: String,
    pub why: String,
}

impl Runs {
    pub fn read(tables: &[&str]) -> (Self, Vec<RowError>) {
        let (mut runs, mut mistakes) = (Vec::new(), Vec::new());
        for text in tables {
            let missing = table::missing_columns(text);
            mistakes.extend(missing.map(|why| RowError { line: 1, id: String::new(), why }));
        }
        let whole = tables.iter().filter(|text| table::missing_columns(text).is_none());
        for row in whole.flat_map(|text| table::rows(text)) {
            match row.run() {
                Ok(run) => runs.push(run),
                Err(why) => {
                    let (line, id) = (row.line, row.text("id").to_owned());
                    mistakes.push(RowError { line, id, why });
                }
            }
        }
        (Self { runs }, mistakes)
    }

    /// Fitting models are listed by software and accelerator, so runs added later are test runs.
    pub fn testing(&self) -> Vec<bool> {
        let tests = self.runs.iter().map(|run| {
            !FITTING.iter().any(|(software, accelerator, models)| {
                *software == run.software
                    && *accelerator == run.accelerator
                    && models.split(';').any(|model| model == run.model)
            })
        });
        tests.collect()
    }

    /// Runs of the second, fourth, … model of their software and accelerator in alphabetical order.
    pub fn second_models(&self) -> Vec<bool> {
        let mut models: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for run in &self.runs {
            models.entry((&run.software, &run.accelerator)).or_default().insert(&run.model);
        }
        let second = self.runs.iter().map(|run| {
            let mut all = models[&(&*run.software, &*run.accelerator)].iter();
            all.position(|model| *model == run.model).is_some_and(|place| place % 2 == 1)
        });
        second.collect()
    }
}

impl MeasuredRun {
    /// Fails if no mapping fits. The error contains the first reason.
    pub fn compute(&self) -> Result<Found, RunRefused> {
        self.compute_prepared(&self.prepared()?)
    }

    pub fn compute_with(&self, calibration: Calibration) -> Result<Found, RunRefused> {
        self.compute_prepared(&self.prepared()?.with_calibration(calibration))
    }

    fn prepared(&self) -> Result<Prepared, RunRefused> {
        self.request.clone().prepare().map_err(|why| self.refused(why.to_string()))
    }

    fn refused(&self, why: String) -> RunRefused {
        RunRefused { id: self.id.clone(), why }
    }

    fn compute_prepared(&self, prepared: &Prepared) -> Result<Found, RunRefused> {
        let network = self.network();
        let search = prepared.search(self.gpus, &network);
        let outcome = search.run();
        if let Some(found) = outcome.found.first() {
            return Ok(*found);
        }
        Err(self.refused(match (&outcome.closest, search.wanted()) {
            (Some((mapping, refusal)), _) => format!("{mapping}: {refusal}"),
            (None, Err(refusal)) => refusal.to_string(),
            (None, Ok(wanted)) => {
                search.refusals(wanted).first().map_or_else(String::new, ToString::to_string)
            }
        }))
    }

    pub fn network(&self) -> Network {
        self.request.card.network()
    }

    pub fn is_mixture(&self) -> bool {
        self.request.model.feed_forward.experts.is_some()
    }
}
