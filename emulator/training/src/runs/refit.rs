// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MeasuredRun, Runs};
use crate::calibrated::{Chip, Framework, compose};
use crate::explain::{Explained, Model};
use crate::fit;

pub const SCHEMA: &str = "lightloom.constants/v1";

/// A file of refitted constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefitFile {
    /// `lightloom.constants/v1`.
    pub schema: String,
    /// The constants that were changed: software, or chip and software.
    pub base: String,
    /// New values by name of the constant.
    pub refitted: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("/refitted/{name} is {value}: use {low} to {high}")]
pub struct BeyondLimits {
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
}

impl RefitFile {
    /// Fails if a constant is outside its limits.
    pub fn check(&self) -> Result<(), BeyondLimits> {
        for constant in fit::all().filter(|constant| self.refitted.contains_key(constant.name)) {
            let (name, value, [low, high]) =
                (constant.name, self.refitted[constant.name], constant.limits);
            // A constant at a limit may exceed it by rounding.
            if !(low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(&value) {
                return Err(BeyondLimits { name, value, low, high });
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refit {
    pub base: String,
    pub fitting_runs: usize,
    /// Mean absolute error of the fitting runs before and after, as shares.
    pub fitting_error: [f64; 2],
    pub kept_back_runs: usize,
    /// Mean absolute error of the held-out runs before and after, as shares.
    pub kept_back_error: [f64; 2],
    /// Old and new values by name of the constant.
    pub changed: BTreeMap<&'static str, [f64; 2]>,
    /// 95 % confidence intervals, if all other constants are correct.
    pub intervals: BTreeMap<&'static str, [f64; 2]>,
    pub stands_in_for: BTreeMap<&'static str, Vec<&'static str>>,
    pub at_limit: Vec<&'static str>,
    pub kept: Vec<&'static str>,
    pub not_determined: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefitError {
    #[error(
        "the runs cover {count} pairs of accelerator and software ({pairs}): use one file per pair"
    )]
    Mixed { count: usize, pairs: String },
    #[error(
        "{count} runs have a prediction: at least 4 are needed, so that some can be fitted and others \
         kept for testing"
    )]
    TooFew { count: usize },
}

impl Refit {
    pub fn file(&self) -> RefitFile {
        RefitFile {
            schema: SCHEMA.to_owned(),
            base: self.base.clone(),
            refitted: self
                .changed
                .iter()
                .map(|(name, [_, new])| ((*name).to_owned(), *new))
                .collect(),
        }
    }
}

impl Runs {
    /// Fits part of the runs. Fails if they have different accelerators or software, or are too few.
    pub fn refit(&self) -> Result<Refit, RefitError> {
        let mut usable: Vec<&MeasuredRun> = self.runs.iter().collect();
        usable.retain(|run| constants(run).is_some() && run.compute().is_ok());
        let mut pairs: Vec<String> = usable
            .iter()
            .map(|run| format!("{}/{}", run.request.card.name, run.software))
            .collect();
        pairs.sort();
        pairs.dedup();
        if pairs.len() > 1 {
            return Err(RefitError::Mixed { count: pairs.len(), pairs: pairs.join(", ") });
        }
        if usable.len() < 4 {
            return Err(RefitError::TooFew { count: usable.len() });
        }
        let (fitting, kept_back) = self.parts(&usable);
        let Some(shipped) = constants(usable[0]) else {
            return Err(RefitError::TooFew { count: 0 });
        };
        let Explained { moved, at_limit, kept, without_effect } =
            Model::new(&fitting, shipped).explain();
        let mut fitted = shipped;
        for (name, moved) in &moved {
            fit::set(&mut fitted.0, &mut fitted.1, name, moved.value);
        }
        let [fitting_error, kept_back_error] =
            [&fitting, &kept_back].map(|runs| [mean(&shipped, runs), mean(&fitted, runs)]);
        let changed = moved.iter().map(|(name, one)| {
            let constant = fit::all().find(|constant| constant.name == *name);
            let (mut chip, mut framework) = shipped;
            let before =
                constant.map_or(f64::NAN, |constant| *constant.of(&mut chip, &mut framework));
            (*name, [before, one.value])
        });
        let changed = changed.collect();
        let stopped = moved.iter().filter(|(_, moved)| moved.is_at_limit).map(|(name, _)| *name);
        Ok(Refit {
            base: usable[0].software.clone(),
            fitting_runs: fitting.len(),
            fitting_error,
            kept_back_runs: kept_back.len(),
            kept_back_error,
            at_limit: stopped.chain(at_limit).collect(),
            changed,
            intervals: moved.iter().map(|(name, one)| (*name, one.interval)).collect(),
            stands_in_for: moved
                .into_iter()
                .filter(|(_, one)| !one.stands_in_for.is_empty())
                .map(|(name, one)| (name, one.stands_in_for))
                .collect(),
            kept,
            not_determined: without_effect,
        })
    }

    /// Alternates between fitting and held-out models, or runs if there are too few models.
    fn parts<'r>(
        &self,
        usable: &[&'r MeasuredRun],
    ) -> (Vec<&'r MeasuredRun>, Vec<&'r MeasuredRun>) {
        let testing = self.second_models();
        let (kept_back, fitting): (Vec<&MeasuredRun>, Vec<&MeasuredRun>) =
            usable.iter().partition(|run| {
                let place = self.runs.iter().position(|one| one.id == run.id);
                place.is_some_and(|place| testing[place])
            });
        if !kept_back.is_empty() && fitting.len() > 1 {
            return (fitting, kept_back);
        }
        let [even, odd] = [0, 1].map(|first| usable.iter().copied().skip(first).step_by(2));
        (even.collect(), odd.collect())
    }
}

fn constants(run: &MeasuredRun) -> Option<(Chip, Framework)> {
    run.request.card.constants(Some(&run.software)).ok()
}

fn mean((chip, framework): &(Chip, Framework), runs: &[&MeasuredRun]) -> f64 {
    let calibration = compose(chip, framework);
    let errors = runs.iter().filter_map(|run| {
        let found = run.compute_with(calibration).ok()?;
        Some((found.step.step_seconds / run.measured_seconds - 1.0).abs())
    });
    let errors: Vec<f64> = errors.collect();
    errors.iter().sum::<f64>() / errors.len().max(1) as f64
}
