// SPDX-License-Identifier: Apache-2.0
//! Intervals around a predicted step time.
//!
//! Errors are those of published runs that the constants are not fitted to, whole groups (source, model, accelerator).
//! The spread of a class (chip, software version, dense or mixture) is the mean of its runs and of `PRIOR_RUNS` runs
//! of all classes. Errors have the heavy tails of Student's t distribution. Intervals are wider for jobs that have more
//! GPUs or a larger bubble than all runs of the class.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use lightloom_collective::rows;
use serde::{Deserialize, Serialize};

use crate::runs::judge::Judged;
use crate::step::StepTime;

/// From `calibrated/bands.csv`, which the test `published_runs` writes (`LIGHTLOOM_BLESS=1`).
static BANDS: LazyLock<Vec<Band>> = LazyLock::new(|| rows(include_str!("calibrated/bands.csv")));

const PRIOR_RUNS: f64 = 2.0;
/// Standard deviation of a normal distribution, relative to its mean deviation.
const DEVIATION: f64 = 1.2533;
/// Quantiles of the normal distribution for 80 and 95 % between both ends.
const NORMAL: [f64; 2] = [1.2816, 1.96];
/// Growth of the spread per doubling of the GPUs, and per unit of the bubble's share, beyond the runs.
const WIDER: [f64; 2] = [0.25, 2.0];

/// Errors of a class of runs; `*` stands for all chips and all software.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    pub chip: String,
    pub software: String,
    pub is_mixture: bool,
    pub runs: u32,
    /// Mean of |ln(computed / measured)|.
    pub mean_error: f64,
    pub most_gpus: u64,
    /// Largest share of the bubble in a step.
    pub most_bubble: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Published runs of the class; 0 if the class is not validated.
    pub runs: u32,
    /// Expected range of 80 and of 95 % of runs.
    pub seconds_80: [f64; 2],
    pub seconds_95: [f64; 2],
}

/// Runs that are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class<'c> {
    pub chip: &'c str,
    pub software: &'c str,
    pub is_mixture: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    pub seconds: f64,
    pub gpus: u64,
    pub bubble: f64,
}

/// `is_validated` is false for a step that no run resembles, such as one in another domain or with other constants.
pub fn interval(class: Class<'_>, is_validated: bool, predicted: Predicted) -> Option<Interval> {
    Interval::among(&BANDS, class, is_validated, predicted)
}

impl Interval {
    fn among(
        bands: &[Band],
        class: Class<'_>,
        is_validated: bool,
        predicted: Predicted,
    ) -> Option<Self> {
        let all = bands.iter().find(|band| band.class() == class.all())?;
        let own = bands.iter().find(|band| is_validated && band.class() == class);
        let runs = own.map_or(0, |own| own.runs);
        let total: f64 = own.map_or(0.0, |own| f64::from(own.runs) * own.mean_error);
        let freedom = PRIOR_RUNS + f64::from(runs);
        let spread = DEVIATION * (PRIOR_RUNS * all.mean_error + total) / freedom;
        let range = own.unwrap_or(all);
        let doublings = (predicted.gpus as f64 / range.most_gpus as f64).log2().max(0.0);
        let bubble = (predicted.bubble - range.most_bubble).max(0.0);
        let spread = spread * (1.0 + WIDER[0] * doublings + WIDER[1] * bubble);
        let [seconds_80, seconds_95] = NORMAL.map(|normal| {
            let factor = (spread * student(normal, freedom)).exp();
            [predicted.seconds / factor, predicted.seconds * factor]
        });
        Some(Self { runs, seconds_80, seconds_95 })
    }
}

/// Returns the quantile of Student's distribution for a quantile of the normal distribution (Cornish and Fisher).
fn student(z: f64, freedom: f64) -> f64 {
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    z + terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom)
}

impl Class<'_> {
    fn of(one: &Judged<'_>) -> Option<Class<'static>> {
        let (chip, framework) = one.run.request.card.constants(Some(&one.run.software)).ok()?;
        let is_mixture = one.run.is_mixture();
        Some(Class { chip: chip.name, software: framework.name, is_mixture })
    }

    fn all(self) -> Class<'static> {
        Class { chip: "*", software: "*", is_mixture: self.is_mixture }
    }
}

impl Predicted {
    pub fn of(step: &StepTime, gpus: u64) -> Self {
        let bubble = step.bubble_seconds / step.step_seconds;
        Self { seconds: step.step_seconds, gpus, bubble }
    }
}

fn predicted(one: &Judged<'_>) -> Option<Predicted> {
    Some(Predicted::of(&one.outcome.as_ref().ok()?.step, one.run.gpus))
}

impl Band {
    fn class(&self) -> Class<'_> {
        Class { chip: &self.chip, software: &self.software, is_mixture: self.is_mixture }
    }

    fn of(class: Class<'_>, runs: &[ErredRun]) -> Self {
        let total: f64 = runs.iter().map(|run| run.error).sum();
        let largest = runs.iter().map(|run| run.predicted.bubble).fold(0.0, f64::max);
        Self {
            chip: class.chip.to_owned(),
            software: class.software.to_owned(),
            is_mixture: class.is_mixture,
            runs: runs.len() as u32,
            mean_error: (1000.0 * total / runs.len() as f64).round() / 1000.0,
            most_gpus: runs.iter().map(|run| run.predicted.gpus).max().unwrap_or(1),
            most_bubble: (1000.0 * largest).round() / 1000.0,
        }
    }
}

struct ErredRun {
    error: f64,
    predicted: Predicted,
}

/// Returns the bands of test runs.
pub fn bands<'j>(judged: impl Iterator<Item = &'j Judged<'j>>) -> Vec<Band> {
    let mut classes: BTreeMap<Class<'_>, Vec<ErredRun>> = BTreeMap::new();
    for one in judged.filter(|one| one.tests) {
        let (Some(class), Some(error), Some(predicted)) =
            (Class::of(one), one.error(), predicted(one))
        else {
            continue;
        };
        let error = error.ln_1p().abs();
        for class in [class.all(), class] {
            classes.entry(class).or_default().push(ErredRun { error, predicted });
        }
    }
    classes.iter().map(|(class, runs)| Band::of(*class, runs)).collect()
}

/// Returns the shares of test runs inside their 80 and 95 % intervals, each from the bands of the other groups.
pub fn coverage(judged: &[Judged<'_>]) -> [f64; 2] {
    let (mut inside, mut runs) = ([0.0; 2], 0.0);
    for one in judged.iter().filter(|one| one.tests) {
        let bands = bands(judged.iter().filter(|other| {
            let [a, b] = [one, other].map(|j| (&j.run.source, &j.run.model, &j.run.accelerator));
            a != b
        }));
        let (Some(class), Some(step)) = (Class::of(one), predicted(one)) else { continue };
        let Some(interval) = Interval::among(&bands, class, true, step) else { continue };
        runs += 1.0;
        for (inside, [low, high]) in
            inside.iter_mut().zip([interval.seconds_80, interval.seconds_95])
        {
            *inside += f64::from(u8::from((low..=high).contains(&one.run.measured_seconds)));
        }
    }
    inside.map(|inside| inside / f64::max(runs, 1.0))
}
