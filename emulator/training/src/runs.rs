// SPDX-License-Identifier: Apache-2.0
//! Measured runs in a table, and what the command line computes for each: the judge of all constants.
//!
//! A row becomes the [`Request`] that a user types for it ([`MeasuredRun::words`]); what the row leaves out is left to the
//! search, as a user would. Groups source × model × accelerator fall wholly into fitting or testing ([`Runs::testing`]).

pub mod judge;
pub mod page;
pub mod refit;
mod table;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::calibration::Calibration;
use super::network::Network;
use super::request::{Prepared, Request};
use super::search::Found;

/// Software, accelerator, and the models whose runs fit its constants: `fitting.csv`.
static FITTING: LazyLock<Vec<(&str, &str, Vec<&str>)>> = LazyLock::new(|| {
    let lines = include_str!("runs/fitting.csv").lines().skip(1);
    let row = |line: &'static str| {
        let (software, rest) = line.split_once(',')?;
        let (accelerator, models) = rest.split_once(',')?;
        Some((software, accelerator, models.split(';').collect()))
    };
    lines.filter_map(row).collect()
});

/// Rows of a table of runs.
#[derive(Clone, Debug)]
pub struct Runs {
    /// All of them, in the table's order.
    pub runs: Vec<MeasuredRun>,
}

/// One measured run.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// Row id.
    pub id: String,
    /// Where it was published.
    pub source: String,
    /// The model as the table calls it.
    pub model: String,
    /// The accelerator as the table calls it.
    pub accelerator: String,
    /// Whose constants.
    pub software: String,
    /// GPUs.
    pub gpus: u64,
    /// Seconds of a step. Where only a rate was published, that follows from it.
    pub measured_seconds: f64,
    /// What a user asks.
    pub request: Request,
    /// What the row does not say and is assumed.
    pub assumed: Vec<String>,
}

/// A row that cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, row {id}: {why}")]
pub struct RowError {
    /// Line of its table, the header being the first.
    pub line: usize,
    /// Row id.
    pub id: String,
    /// What is missing, and what to write.
    pub why: String,
}

/// Why the command line gives no figure for a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {why}")]
pub struct RunRefused {
    /// Row id.
    pub id: String,
    /// What it says.
    pub why: String,
}

impl Runs {
    /// Reads tables of runs; the rows that cannot be computed beside those that can.
    #[must_use]
    pub fn read(tables: &[&str]) -> (Self, Vec<RowError>) {
        let (mut runs, mut mistakes) = (Vec::new(), Vec::new());
        for row in tables.iter().flat_map(|text| table::rows(text)) {
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

    /// By run: whether it tests. The models that fit are listed by software and accelerator, so that further runs move
    /// none: they all test.
    #[must_use]
    pub fn testing(&self) -> Vec<bool> {
        let fits = |run: &MeasuredRun| {
            FITTING.iter().any(|(software, accelerator, models)| {
                *software == run.software
                    && *accelerator == run.accelerator
                    && models.contains(&&*run.model)
            })
        };
        self.runs.iter().map(|run| !fits(run)).collect()
    }

    /// By run: whether it is of a second, fourth … model of its software and accelerator, in the order of their names.
    #[must_use]
    pub fn second_models(&self) -> Vec<bool> {
        let mut models: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
        for run in &self.runs {
            models.entry((&run.software, &run.accelerator)).or_default().insert(&run.model);
        }
        let place = |run: &MeasuredRun| {
            let all = models.get(&(&*run.software, &*run.accelerator))?;
            all.iter().position(|model| *model == run.model)
        };
        self.runs.iter().map(|run| place(run).is_some_and(|place| place % 2 == 1)).collect()
    }
}

impl MeasuredRun {
    /// What the command line computes: the fastest mapping that fits.
    ///
    /// # Errors
    /// If it refuses: the first reason.
    pub fn compute(&self) -> Result<Found, RunRefused> {
        let refused = |why: String| RunRefused { id: self.id.clone(), why };
        let prepared = self.request.clone().prepare().map_err(|why| refused(why.to_string()))?;
        self.compute_prepared(&prepared).map_err(refused)
    }

    /// The same with other constants.
    ///
    /// # Errors
    /// If it refuses: the first reason.
    pub fn compute_with(&self, calibration: Calibration) -> Result<Found, RunRefused> {
        let refused = |why: String| RunRefused { id: self.id.clone(), why };
        let prepared = self.request.clone().prepare().map_err(|why| refused(why.to_string()))?;
        self.compute_prepared(&prepared.with_calibration(calibration)).map_err(refused)
    }

    fn compute_prepared(&self, prepared: &Prepared) -> Result<Found, String> {
        let network = self.network();
        let search = prepared.search(self.gpus, &network);
        let outcome = search.run();
        if let Some(found) = outcome.found.first() {
            return Ok(*found);
        }
        Err(match (&outcome.closest, search.wanted()) {
            (Some((mapping, refusal)), _) => format!("{mapping}: {refusal}"),
            (None, Err(refusal)) => refusal.to_string(),
            (None, Ok(wanted)) => {
                search.refusals(wanted).first().map_or_else(String::new, ToString::to_string)
            }
        })
    }

    /// What joins the accelerators: the card's own domain and network card.
    #[must_use]
    pub fn network(&self) -> Network {
        self.request.card.network()
    }

    /// Whether it is a mixture of experts.
    #[must_use]
    pub fn is_mixture(&self) -> bool {
        self.request.model.feed_forward.experts.is_some()
    }
}
