// SPDX-License-Identifier: Apache-2.0
//! Finds the few calibration constants that explain a user's runs of one chip and software.
//!
//! All sets of up to three constants are screened on a grid between the limits, assuming that effects
//! on the logarithm of the step time add up. The best sets are fitted by Levenberg-Marquardt. The
//! extended Bayesian information criterion (Chen and Chen 2008, γ = ½) penalizes each constant and the number
//! of sets considered. Constants that explain the runs equally well are reported as alternatives.

use std::collections::BTreeMap;

use super::calibrated::{Chip, Framework, compose};
use super::fit::{Constant, all};
use super::runs::MeasuredRun;

mod descent;

use descent::Fit;

const MOST: usize = 3;
/// Relative precision of printed step times. Smaller residuals carry no information.
const FLOOR: f64 = 1e-4;
/// A constant has no effect if its full range changes every run by less than this share.
const SHARE_THAT_SHOWS: f64 = 0.003;
const GRID: usize = 13;
const FITTED: usize = 40;
/// Criteria that differ by less than this are equally good (Kass and Raftery 1995).
const ALIKE: f64 = 2.0;
/// Logarithmic residual of a run that cannot be computed.
const REFUSED: f64 = 2.0;

pub struct Model<'r> {
    runs: &'r [&'r MeasuredRun],
    chip: Chip,
    framework: Framework,
    constants: Vec<&'static Constant>,
    start: Vec<f64>,
}

#[derive(Clone, Debug)]
pub struct Explained {
    pub moved: BTreeMap<&'static str, MovedConstant>,
    pub at_limit: Vec<&'static str>,
    pub kept: Vec<&'static str>,
    pub without_effect: Vec<&'static str>,
}

#[derive(Clone, Debug)]
pub struct MovedConstant {
    pub value: f64,
    /// 95 % confidence interval, if all other constants are correct.
    pub interval: [f64; 2],
    pub is_at_limit: bool,
    pub stands_in_for: Vec<&'static str>,
}

type ResidualProfile = Vec<(f64, Vec<f64>)>;

impl<'r> Model<'r> {
    /// `runs` must share the accelerator and the software.
    pub fn new(runs: &'r [&'r MeasuredRun], (mut chip, mut framework): (Chip, Framework)) -> Self {
        let constants: Vec<&'static Constant> = all().collect();
        let start =
            constants.iter().map(|constant| constant.of(&mut chip, &mut framework).ln()).collect();
        Self { runs, chip, framework, constants, start }
    }

    pub fn explain(&self) -> Explained {
        let nothing = Fit::nothing(self);
        let profiles: Vec<ResidualProfile> =
            (0..self.constants.len()).map(|which| self.profile(which, &nothing)).collect();
        let (effective, without): (Vec<usize>, Vec<usize>) =
            (0..self.constants.len()).partition(|which| {
                let changes = profiles[*which].iter().flat_map(|(_, changes)| changes);
                changes.fold(0.0_f64, |most, change| most.max(change.abs())) >= SHARE_THAT_SHOWS
            });
        let mut best = nothing.clone();
        let mut reached = self.criterion(&best, effective.len());
        for size in 1..=MOST.min(self.runs.len() - 1).min(effective.len()) {
            if best.squares <= self.floor() {
                break;
            }
            let found = self.best_of_size(size, &effective, &profiles, &nothing);
            let criterion = self.criterion(&found, effective.len());
            if criterion < reached {
                (best, reached) = (found, criterion);
            }
        }
        self.described(&best, &effective, &without, &profiles, &nothing)
    }

    fn floor(&self) -> f64 {
        self.runs.len() as f64 * FLOOR * FLOOR
    }

    fn misfit(&self, fit: &Fit) -> f64 {
        let runs = self.runs.len() as f64;
        runs * (fit.squares / runs + FLOOR * FLOOR).ln()
    }

    fn criterion(&self, fit: &Fit, candidates: usize) -> f64 {
        let size = fit.members.len();
        let sets: f64 =
            (0..size).map(|taken| ((candidates - taken) as f64 / (taken + 1) as f64).ln()).sum();
        self.misfit(fit) + size as f64 * (self.runs.len() as f64).ln() + sets
    }

    fn grid(&self, which: usize) -> impl Iterator<Item = f64> {
        let [low, high] = self.constants[which].limits.map(f64::ln);
        (0..GRID).map(move |step| low + (high - low) * step as f64 / (GRID - 1) as f64)
    }

    fn profile(&self, which: usize, nothing: &Fit) -> ResidualProfile {
        self.grid(which)
            .map(|value| {
                let residues = self.residues(&[which], &[value]);
                let added =
                    residues.iter().zip(&nothing.residues).map(|(with, without)| with - without);
                (value, added.collect())
            })
            .collect()
    }

    /// Ties go to software constants, because a user's runs reveal more about them.
    fn best_of_size(
        &self,
        size: usize,
        effective: &[usize],
        profiles: &[ResidualProfile],
        nothing: &Fit,
    ) -> Fit {
        let mut screened: Vec<(f64, Vec<usize>, Vec<f64>)> = Vec::new();
        sets(effective, size, &mut Vec::new(), &mut |set| {
            let (squares, values) = screen(set, profiles, &nothing.residues);
            screened.push((squares, set.to_vec(), values));
        });
        screened.sort_by(|a, b| a.0.total_cmp(&b.0));
        screened.truncate(FITTED);
        let screened =
            screened.into_iter().map(|(_, members, values)| Fit::of(self, members, values));
        screened
            .reduce(|best, fit| {
                let gain = self.misfit(&best) - self.misfit(&fit);
                // Software constants have the lower indices.
                let of_software = fit.members.iter().sum::<usize>() < best.members.iter().sum();
                let is_better = if gain.abs() < 0.01 { of_software } else { gain > 0.0 };
                if is_better { fit } else { best }
            })
            .unwrap_or_else(|| nothing.clone())
    }

    fn stand_ins(
        &self,
        best: &Fit,
        member: usize,
        effective: &[usize],
        profiles: &[ResidualProfile],
        nothing: &Fit,
    ) -> Vec<&'static str> {
        let mut names = Vec::new();
        for &other in effective.iter().filter(|other| !best.members.contains(other)) {
            let members: Vec<usize> =
                best.members.iter().map(|&one| if one == member { other } else { one }).collect();
            let (_, values) = screen(&members, profiles, &nothing.residues);
            let fit = Fit::of(self, members, values);
            if self.misfit(&fit) - self.misfit(best) < ALIKE {
                names.push(self.constants[other].name);
            }
        }
        names
    }

    fn described(
        &self,
        best: &Fit,
        effective: &[usize],
        without: &[usize],
        profiles: &[ResidualProfile],
        nothing: &Fit,
    ) -> Explained {
        let name = |which: &usize| self.constants[*which].name;
        let errors = best.errors(self);
        let moved: BTreeMap<&'static str, MovedConstant> = (0..best.members.len())
            .map(|place| {
                let (member, value) = (best.members[place], best.values[place]);
                let limits = self.constants[member].limits;
                let [low, high] = limits.map(f64::ln);
                let [value_at, below, above] =
                    [value, value - errors[place], value + errors[place]]
                        .map(|log| log.clamp(low, high).exp());
                let moved = MovedConstant {
                    value: value_at,
                    interval: [below, above],
                    is_at_limit: value - low < 1e-6 || high - value < 1e-6,
                    stands_in_for: self.stand_ins(best, member, effective, profiles, nothing),
                };
                (name(&member), moved)
            })
            .collect();
        let (at_limit, kept): (Vec<usize>, Vec<usize>) = effective
            .iter()
            .filter(|which| !best.members.contains(which))
            .filter(|which| !moved.values().any(|one| one.stands_in_for.contains(&name(which))))
            .partition(|which| best.is_pushed_out(self, **which));
        Explained {
            moved,
            at_limit: at_limit.iter().map(name).collect(),
            kept: kept.iter().map(name).collect(),
            without_effect: without.iter().map(name).collect(),
        }
    }

    /// Logarithm of computed over measured step time, with `members` at `values` (logarithms).
    fn residues(&self, members: &[usize], values: &[f64]) -> Vec<f64> {
        let (mut chip, mut framework) = (self.chip, self.framework);
        for (member, value) in members.iter().zip(values) {
            *self.constants[*member].of(&mut chip, &mut framework) = value.exp();
        }
        let calibration = compose(&chip, &framework);
        let residues = self.runs.iter().map(|run| {
            run.compute_with(calibration)
                .map_or(REFUSED, |found| (found.step.step_seconds / run.measured_seconds).ln())
        });
        residues.collect()
    }
}

fn sets(from: &[usize], size: usize, taken: &mut Vec<usize>, seen: &mut dyn FnMut(&[usize])) {
    if taken.len() == size {
        return seen(taken);
    }
    for (place, &one) in from.iter().enumerate() {
        taken.push(one);
        sets(&from[place + 1..], size, taken, seen);
        taken.pop();
    }
}

fn screen(set: &[usize], profiles: &[ResidualProfile], residues: &[f64]) -> (f64, Vec<f64>) {
    let Some((&first, rest)) = set.split_first() else {
        return (residues.iter().map(|residue| residue * residue).sum(), Vec::new());
    };
    let step = if set.len() == MOST { 3 } else { 1 };
    let mut best = (f64::MAX, Vec::new());
    for (value, added) in profiles[first].iter().step_by(step) {
        let with: Vec<f64> = residues.iter().zip(added).map(|(one, more)| one + more).collect();
        let (squares, mut values) = screen(rest, profiles, &with);
        if squares < best.0 {
            values.insert(0, *value);
            best = (squares, values);
        }
    }
    best
}
