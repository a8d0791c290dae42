// SPDX-License-Identifier: Apache-2.0
//! Cyclic coordinate descent on the logarithms of the bounded constants, which minimizes the mean absolute logarithmic
//! error. A penalty on the distance from the start keeps undetermined constants plausible.

use std::collections::BTreeMap;

use lightloom_training::calibrated::{Chip, Framework, compose};
use lightloom_training::fit::{Constant, all};
use lightloom_training::runs::MeasuredRun;

const PULL: f64 = 0.02;
const ROUNDS: usize = 12;
const STEPS: [f64; 8] = [0.5, -0.5, 0.15, -0.15, 0.04, -0.04, 0.01, -0.01];

#[derive(Clone, Debug)]
pub(super) struct Constants {
    pub(super) chips: Vec<Chip>,
    pub(super) frameworks: Vec<Framework>,
}

impl Constants {
    /// `(ours − measured) / measured`; `None` if the run cannot be computed.
    fn error(&self, run: &MeasuredRun) -> Option<f64> {
        let chip = run.request.card.chip_among(&self.chips);
        let framework = self.frameworks.iter().find(|known| known.name == run.software)?;
        let found = run.compute_with(compose(&chip, framework)).ok()?;
        Some(found.step.step_seconds / run.measured_seconds - 1.0)
    }

    /// Returns the constant's owners, of which one may be unrelated.
    fn owners(&self, constant: &Constant, of: usize) -> (Chip, Framework) {
        let [chip, framework] = if constant.is_of_chip() { [of, 0] } else { [0, of] };
        (self.chips[chip], self.frameworks[framework])
    }

    fn name(&self, constant: &Constant, of: usize) -> &'static str {
        let (chip, framework) = self.owners(constant, of);
        if constant.is_of_chip() { chip.name } else { framework.name }
    }

    fn value(&self, constant: &Constant, of: usize) -> f64 {
        let (mut chip, mut framework) = self.owners(constant, of);
        *constant.of(&mut chip, &mut framework)
    }

    /// Versions of one family share their constants.
    fn set(&mut self, constant: &Constant, of: usize, value: f64) {
        let (mut chip, mut framework) = self.owners(constant, of);
        *constant.of(&mut chip, &mut framework) = value;
        if constant.is_of_chip() {
            self.chips[of] = chip;
            return;
        }
        let family = family(&self.frameworks[of]);
        for version in self.frameworks.iter_mut().filter(|version| self::family(version) == family)
        {
            *constant.of(&mut chip, version) = value;
        }
    }
}

struct Coordinate<'r> {
    constant: &'static Constant,
    of: usize,
    start: f64,
    runs: Vec<(&'r MeasuredRun, f64)>,
}

/// `kept` lists constants that must not change, with their chip or framework. `watch` receives the
/// mean absolute error after each round.
pub(super) fn fit(
    start: &Constants,
    runs: &[&MeasuredRun],
    kept: &[(&str, &str)],
    watch: &mut dyn FnMut(usize, f64),
) -> Constants {
    let mut best = start.clone();
    let weights = weights(runs);
    let mut coordinates = coordinates(start, runs, &weights);
    coordinates.retain(|coordinate| {
        !kept.contains(&(start.name(coordinate.constant, coordinate.of), coordinate.constant.name))
    });
    for round in 0..ROUNDS {
        for coordinate in &coordinates {
            descend(&mut best, coordinate);
        }
        let errors: Vec<f64> = runs.iter().filter_map(|run| best.error(run)).collect();
        let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len().max(1) as f64;
        watch(round, mean);
    }
    best
}

/// The total weight of runs with the same software, chip and model is the square root of their number.
/// Versions of Megatron-Bridge differ only by their features and share constants.
fn family(framework: &Framework) -> &'static str {
    let bridge = "megatron-bridge";
    if framework.name.starts_with(bridge) { bridge } else { framework.name }
}

fn is_version(framework: &Framework, software: &str) -> bool {
    let family = family(framework);
    software == framework.name || family != framework.name && software.starts_with(family)
}

fn weights(runs: &[&MeasuredRun]) -> Vec<f64> {
    let mut counts: BTreeMap<(&str, &str, &str), f64> = BTreeMap::new();
    for run in runs {
        *counts.entry((&run.software, &run.accelerator, &run.model)).or_default() += 1.0;
    }
    runs.iter()
        .map(|run| {
            let count = counts.get(&(&*run.software, &*run.accelerator, &*run.model));
            1.0 / count.copied().unwrap_or(1.0_f64).sqrt()
        })
        .collect()
}

fn coordinates<'r>(
    start: &Constants,
    runs: &[&'r MeasuredRun],
    weights: &[f64],
) -> Vec<Coordinate<'r>> {
    let mut coordinates = Vec::new();
    let mut add = |is_of_chip: bool, of: usize, concerns: &dyn Fn(&MeasuredRun) -> bool| {
        let both = runs.iter().copied().zip(weights.iter().copied());
        let mine: Vec<(&MeasuredRun, f64)> = both.filter(|(run, _)| concerns(run)).collect();
        let constants = all().filter(|one| one.is_of_chip() == is_of_chip && !mine.is_empty());
        for constant in constants {
            let start = start.value(constant, of);
            coordinates.push(Coordinate { constant, of, start, runs: mine.clone() });
        }
    };
    for (of, chip) in start.chips.iter().enumerate() {
        add(true, of, &|run| run.request.card.chip_among(&start.chips).name == chip.name);
    }
    for (of, framework) in start.frameworks.iter().enumerate() {
        let is_first = start.frameworks.iter().position(|one| family(one) == family(framework));
        if is_first == Some(of) {
            add(false, of, &|run| is_version(framework, &run.software));
        }
    }
    coordinates
}

fn cost(constants: &Constants, coordinate: &Coordinate<'_>, value: f64) -> f64 {
    let far = (value / coordinate.start).ln() / coordinate.constant.width;
    let errors: f64 = coordinate
        .runs
        .iter()
        .map(|(run, weight)| {
            let error = constants.error(run).map_or(2.0, |error| (1.0 + error).ln().abs());
            weight * error
        })
        .sum();
    errors + PULL * far * far
}

fn descend(best: &mut Constants, coordinate: &Coordinate<'_>) {
    let (constant, of) = (coordinate.constant, coordinate.of);
    let mut value = best.value(constant, of);
    let mut reached = cost(best, coordinate, value);
    let [low, high] = constant.limits;
    for step in STEPS {
        loop {
            let tried = (value.max(low) * f64::exp(step)).clamp(low, high);
            if (tried / value - 1.0).abs() < 1e-9 {
                break;
            }
            best.set(constant, of, tried);
            let cost = cost(best, coordinate, tried);
            if cost >= reached - 1e-9 {
                best.set(constant, of, value);
                break;
            }
            (value, reached) = (tried, cost);
        }
    }
}
