// SPDX-License-Identifier: Apache-2.0

use super::{MeasuredRun, RunRefused, Runs};
use crate::search::Found;

#[derive(Clone, Debug)]
pub struct Judged<'r> {
    pub run: &'r MeasuredRun,
    pub tests: bool,
    pub outcome: Result<Found, RunRefused>,
}

impl Judged<'_> {
    /// `(ours − measured) / measured`; `None` if the request was rejected.
    pub fn error(&self) -> Option<f64> {
        let found = self.outcome.as_ref().ok()?;
        Some(found.step.step_seconds / self.run.measured_seconds - 1.0)
    }

    pub fn classes(&self) -> Vec<&'static str> {
        let is_mixture = self.run.is_mixture();
        let chip = &self.run.accelerator;
        let mut classes = vec!["all", if is_mixture { "mixtures" } else { "dense" }];
        if chip.starts_with('H') {
            classes.push(if is_mixture { "mixtures on Hopper" } else { "dense on Hopper" });
        }
        if chip.starts_with("A100") {
            classes.push("A100");
        }
        if chip.starts_with('B') || chip.starts_with("GB") {
            classes.push(if is_mixture { "mixtures on Blackwell" } else { "dense on Blackwell" });
        }
        if chip.starts_with("TPU") {
            classes.push("TPU");
        }
        classes
    }
}

pub const CLASSES: [&str; 9] = [
    "all",
    "dense",
    "dense on Hopper",
    "dense on Blackwell",
    "A100",
    "TPU",
    "mixtures",
    "mixtures on Hopper",
    "mixtures on Blackwell",
];

impl Runs {
    pub fn judge(&self) -> Vec<Judged<'_>> {
        let runs = self.runs.iter().zip(self.testing());
        runs.map(|(run, tests)| Judged { run, tests, outcome: run.compute() }).collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Errors {
    pub runs: usize,
    pub mean: f64,
    pub bias: f64,
    pub largest: f64,
    pub refused: usize,
}

impl Errors {
    pub fn of<'j, 'r: 'j>(judged: impl Iterator<Item = &'j Judged<'r>>) -> Self {
        let mut all = Self::default();
        for error in judged.map(Judged::error) {
            let Some(error) = error else {
                all.refused += 1;
                continue;
            };
            all.runs += 1;
            all.mean += error.abs();
            all.bias += error;
            all.largest = all.largest.max(error.abs());
        }
        let runs = all.runs.max(1) as f64;
        Self { mean: all.mean / runs, bias: all.bias / runs, ..all }
    }
}
