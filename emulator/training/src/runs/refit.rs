// SPDX-License-Identifier: Apache-2.0
//! Refits constants on a user's own runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Run, Runs};
use crate::calibrated::{CHIPS, FRAMEWORKS};
use crate::fit::{Chosen, Constants, fit_chosen, sensitivity};

/// The version of the file of refitted constants.
pub const SCHEMA: &str = "lightloom.constants/v1";

/// A move of a constant by a tenth must change a run by this share, or the runs do not determine it.
const SHARE_THAT_SHOWS: f64 = 0.003;

/// Refitted constants, as a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefitFile {
    /// `lightloom.constants/v1`.
    pub schema: String,
    /// The constants that were changed: software, or chip and software.
    pub base: String,
    /// New values by the constant's name.
    pub refitted: BTreeMap<String, f64>,
}

/// What a refit did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refit {
    /// The constants that were changed.
    pub base: String,
    /// Runs that were fitted on.
    pub fitting_runs: usize,
    /// Their mean absolute error before and after, as shares.
    pub fitting_error: [f64; 2],
    /// Runs that were kept back.
    pub kept_back_runs: usize,
    /// Their mean absolute error before and after.
    pub kept_back_error: [f64; 2],
    /// Old and new value by the constant's name.
    pub changed: BTreeMap<&'static str, [f64; 2]>,
    /// Constants that the runs do not determine, and that stay.
    pub not_determined: Vec<&'static str>,
}

/// Why runs cannot be fitted on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefitError {
    /// One file, one pair.
    #[error(
        "the runs are of {count} pairs of accelerator and software ({pairs}): write one file for each"
    )]
    Mixed {
        /// Pairs.
        count: usize,
        /// Their names.
        pairs: String,
    },
    /// Half of too few is nothing.
    #[error(
        "{count} runs get a figure: at least 4 are needed, to fit on some and keep the others back"
    )]
    TooFew {
        /// Runs.
        count: usize,
    },
}

impl Refit {
    /// As a file that `lightloom mfu --constants FILE` reads.
    #[must_use]
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
    /// Refits the constants of one accelerator and software on part of the runs.
    ///
    /// # Errors
    /// If the runs are of several pairs or too few.
    pub fn refit(&self) -> Result<Refit, RefitError> {
        let shipped = Constants { chips: CHIPS.to_vec(), frameworks: FRAMEWORKS.to_vec() };
        let usable: Vec<&Run> =
            self.runs.iter().filter(|run| shipped.error(run).is_some()).collect();
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
        let (chosen, not_determined) = choose(&shipped, &fitting);
        let fitted = fit_chosen(&shipped, &fitting, &chosen);
        let both = |runs: &[&Run]| [mean(&shipped, runs), mean(&fitted, runs)];
        let changed = chosen
            .iter()
            .map(|one| (one.constant.name, [shipped.value(one), fitted.value(one)]))
            .collect();
        Ok(Refit {
            base: usable[0].software.clone(),
            fitting_runs: fitting.len(),
            fitting_error: both(&fitting),
            kept_back_runs: kept_back.len(),
            kept_back_error: both(&kept_back),
            changed,
            not_determined,
        })
    }

    /// Models in turn, or runs in turn where there is one model.
    fn parts<'r>(&self, usable: &[&'r Run]) -> (Vec<&'r Run>, Vec<&'r Run>) {
        let testing = self.testing();
        let tests = |run: &Run| {
            self.runs.iter().position(|one| one.id == run.id).is_some_and(|place| testing[place])
        };
        let (kept_back, fitting): (Vec<&Run>, Vec<&Run>) =
            usable.iter().partition(|run| tests(run));
        if !kept_back.is_empty() && fitting.len() > 1 {
            return (fitting, kept_back);
        }
        let in_turn =
            |odd: usize| usable.iter().copied().skip(odd).step_by(2).collect::<Vec<&Run>>();
        (in_turn(0), in_turn(1))
    }
}

fn mean(constants: &Constants, runs: &[&Run]) -> f64 {
    let errors: Vec<f64> = runs.iter().filter_map(|run| constants.error(run)).collect();
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len().max(1) as f64
}

/// The constants that move the runs most, at most one for two runs; and those that hardly move any.
fn choose(shipped: &Constants, fitting: &[&Run]) -> (Vec<Chosen>, Vec<&'static str>) {
    let mut all: Vec<(f64, Chosen)> = shipped
        .of_run(fitting[0])
        .into_iter()
        .map(|chosen| (sensitivity(shipped, fitting, &chosen), chosen))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let most = (fitting.len() / 2).max(1);
    let shows = all.iter().take(most).filter(|(share, _)| *share >= SHARE_THAT_SHOWS).count();
    let left = all.split_off(shows);
    (
        all.into_iter().map(|(_, chosen)| chosen).collect(),
        left.into_iter().map(|(_, chosen)| chosen.constant.name).collect(),
    )
}
