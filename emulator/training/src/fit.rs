// SPDX-License-Identifier: Apache-2.0
//! Fits chips and frameworks to tables of runs.
//!
//! Cyclic coordinate descent on the logarithms of the bounded constants minimizes the mean absolute logarithmic error.
//! A penalty on the distance from the start keeps undetermined constants plausible.

use std::collections::BTreeMap;

use super::calibrated::{Chip, Framework, compose};
use super::runs::MeasuredRun;

#[derive(Clone, Debug)]
pub struct Constants {
    pub chips: Vec<Chip>,
    pub frameworks: Vec<Framework>,
}

#[derive(Clone, Copy, Debug)]
pub struct Constant {
    pub name: &'static str,
    place: Place,
    low: f64,
    high: f64,
    /// Change of the logarithm that costs as much as an error of 1 in one run.
    width: f64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Chip(fn(&mut Chip) -> &mut f64),
    Framework(fn(&mut Framework) -> &mut f64),
}

const PULL: f64 = 0.02;
const ROUNDS: usize = 12;
const STEPS: [f64; 8] = [0.5, -0.5, 0.15, -0.15, 0.04, -0.04, 0.01, -0.01];

pub const OF_CHIP: &[Constant] = &[
    chip("chip gemm bf16", |c| &mut c.gemm[0], (0.3, 0.87), 0.1),
    chip("chip gemm fp8", |c| &mut c.gemm[1], (0.2, 0.85), 0.2),
    chip("chip gemm mxfp8", |c| &mut c.gemm[2], (0.2, 0.85), 0.2),
    chip("chip gemm fp4", |c| &mut c.gemm[3], (0.1, 0.85), 0.3),
    chip("chip lost operations", |c| &mut c.lost_flops, (1e8, 3e10), 1.0),
    chip("chip attention", |c| &mut c.attention, (0.15, 0.85), 0.3),
    chip("chip memory", |c| &mut c.memory, (0.3, 0.92), 0.2),
];

pub const OF_FRAMEWORK: &[Constant] = &[
    framework("gemm", |f| &mut f.gemm, (0.5, 1.0), 0.1),
    framework("low", |f| &mut f.low, (0.5, 1.2), 0.1),
    framework("attention", |f| &mut f.attention, (0.3, 1.5), 0.3),
    framework("memory", |f| &mut f.memory, (0.5, 1.2), 0.2),
    framework("expert", |f| &mut f.expert, (0.2, 1.0), 0.3),
    framework("expert low", |f| &mut f.expert_low, (0.1, 1.0), 0.3),
    framework("launch", |f| &mut f.launch, (1e-5, 5e-3), 1.0),
    framework("expert launch", |f| &mut f.expert_launch[0], (1e-5, 2e-2), 1.0),
    framework("expert launch free", |f| &mut f.expert_launch[1], (1e-5, 2e-2), 1.0),
    framework("expert launch overlapped", |f| &mut f.expert_launch[2], (1e-5, 2e-2), 1.0),
    framework("TP exposed inside", |f| &mut f.tensor_exposed[0], (0.03, 1.0), 0.7),
    framework("TP exposed across", |f| &mut f.tensor_exposed[1], (0.3, 1.0), 0.5),
    framework("EP exposed inside", |f| &mut f.expert_exposed[0], (0.03, 3.0), 0.7),
    framework("EP exposed across", |f| &mut f.expert_exposed[1], (0.03, 3.0), 0.7),
    framework("pipeline exposed", |f| &mut f.pipeline_exposed, (0.01, 1.0), 1.0),
    framework("DP exposed", |f| &mut f.data_exposed, (0.01, 1.0), 0.7),
    framework("gather exposed", |f| &mut f.gather_exposed, (0.01, 1.0), 0.7),
    framework("growth", |f| &mut f.jitter, (1e-4, 0.05), 1.0),
    framework("optimizer launch", |f| &mut f.optimizer_launch, (1e-5, 2e-2), 1.0),
];

const fn chip(
    name: &'static str,
    place: fn(&mut Chip) -> &mut f64,
    (low, high): (f64, f64),
    width: f64,
) -> Constant {
    Constant { name, place: Place::Chip(place), low, high, width }
}

const fn framework(
    name: &'static str,
    place: fn(&mut Framework) -> &mut f64,
    (low, high): (f64, f64),
    width: f64,
) -> Constant {
    Constant { name, place: Place::Framework(place), low, high, width }
}

impl Constants {
    /// `(ours − measured) / measured`; `None` if the run cannot be computed.
    #[must_use]
    pub fn error(&self, run: &MeasuredRun) -> Option<f64> {
        let chip = run.request.card.chip_among(&self.chips);
        let framework = self.frameworks.iter().find(|known| known.name == run.software)?;
        let found = run.compute_with(compose(&chip, framework)).ok()?;
        Some(found.step.step_seconds / run.measured_seconds - 1.0)
    }

    fn place(&mut self, constant: &Constant, of: usize) -> &mut f64 {
        match constant.place {
            Place::Chip(place) => place(&mut self.chips[of]),
            Place::Framework(place) => place(&mut self.frameworks[of]),
        }
    }

    fn set(&mut self, constant: &Constant, of: usize, value: f64) {
        let Place::Framework(place) = constant.place else {
            *self.place(constant, of) = value;
            return;
        };
        let family = self.frameworks[of].family();
        for version in self.frameworks.iter_mut().filter(|version| version.family() == family) {
            *place(version) = value;
        }
    }
}

pub fn set(chip: &mut Chip, framework: &mut Framework, name: &str, value: f64) -> bool {
    let constant = all().find(|constant| constant.name == name);
    if let Some(constant) = constant {
        *constant.of(chip, framework) = value;
    }
    constant.is_some()
}

pub fn all() -> impl Iterator<Item = &'static Constant> {
    OF_FRAMEWORK.iter().chain(OF_CHIP)
}

impl Constant {
    #[must_use]
    pub fn of<'c>(&self, chip: &'c mut Chip, framework: &'c mut Framework) -> &'c mut f64 {
        match self.place {
            Place::Chip(place) => place(chip),
            Place::Framework(place) => place(framework),
        }
    }

    fn owner(&self, constants: &Constants, of: usize) -> &'static str {
        match self.place {
            Place::Chip(_) => constants.chips[of].name,
            Place::Framework(_) => constants.frameworks[of].name,
        }
    }

    #[must_use]
    pub fn limits(&self) -> [f64; 2] {
        [self.low, self.high]
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
#[must_use]
pub fn fit(
    start: &Constants,
    runs: &[&MeasuredRun],
    kept: &[(&str, &str)],
    watch: &mut dyn FnMut(usize, f64),
) -> Constants {
    let mut best = start.clone();
    let weights = weights(runs);
    let mut coordinates = coordinates(start, runs, &weights);
    coordinates.retain(|coordinate| {
        !kept.contains(&(coordinate.constant.owner(start, coordinate.of), coordinate.constant.name))
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
    let mut all = Vec::new();
    let mut add =
        |constants: &'static [Constant], of: usize, concerns: &dyn Fn(&MeasuredRun) -> bool| {
            let mine: Vec<(&MeasuredRun, f64)> = runs
                .iter()
                .zip(weights)
                .filter(|(run, _)| concerns(run))
                .map(|(run, weight)| (*run, *weight))
                .collect();
            for constant in constants.iter().filter(|_| !mine.is_empty()) {
                let start = *start.clone().place(constant, of);
                all.push(Coordinate { constant, of, start, runs: mine.clone() });
            }
        };
    for (of, chip) in start.chips.iter().enumerate() {
        add(OF_CHIP, of, &|run| run.request.card.chip_among(&start.chips).name == chip.name);
    }
    for (of, framework) in start.frameworks.iter().enumerate() {
        let is_first = start.frameworks.iter().position(|one| one.family() == framework.family());
        if is_first == Some(of) {
            add(OF_FRAMEWORK, of, &|run| framework.is_version(&run.software));
        }
    }
    all
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
    let mut value = *best.place(constant, of);
    let mut reached = cost(best, coordinate, value);
    for step in STEPS {
        loop {
            let tried =
                (value.max(constant.low) * f64::exp(step)).clamp(constant.low, constant.high);
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
