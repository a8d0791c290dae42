// SPDX-License-Identifier: Apache-2.0

use super::{FLOOR, MOST, Model};

const STEPS: usize = 40;
const TRIALS: usize = 8;
/// Step of the numeric derivatives, and the largest step of the descent, as logarithms.
const SLOPE: f64 = 1e-5;
const FARTHEST: f64 = 1.0;

/// 97.5 % quantiles of Student's t distribution, from one degree of freedom.
const STUDENT: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) members: Vec<usize>,
    pub(super) values: Vec<f64>,
    pub(super) residues: Vec<f64>,
    pub(super) squares: f64,
}

impl Fit {
    pub(super) fn nothing(model: &Model<'_>) -> Self {
        Self::at(model, Vec::new(), Vec::new())
    }

    fn at(model: &Model<'_>, members: Vec<usize>, values: Vec<f64>) -> Self {
        let residues = model.residues(&members, &values);
        let squares = residues.iter().map(|residue| residue * residue).sum();
        Self { members, values, residues, squares }
    }

    pub(super) fn of(model: &Model<'_>, members: Vec<usize>, values: Vec<f64>) -> Self {
        let mut fit = Self::at(model, members, values);
        let mut damping = 1e-3;
        for _ in 0..STEPS {
            let slopes = fit.slopes(model);
            let before = fit.squares;
            for _ in 0..TRIALS {
                let tried = fit.step(model, &slopes, damping);
                if tried.squares < fit.squares {
                    fit = tried;
                    damping *= 0.1;
                    break;
                }
                damping *= 10.0;
            }
            let is_done = fit.squares < 1e-4 * FLOOR * FLOOR || fit.squares > before * (1.0 - 1e-6);
            if is_done {
                break;
            }
        }
        fit
    }

    fn slopes(&self, model: &Model<'_>) -> Vec<Vec<f64>> {
        (0..self.members.len())
            .map(|place| {
                let [_, high] = model.constants[self.members[place]].limits;
                let by = if self.values[place] + SLOPE > high.ln() { -SLOPE } else { SLOPE };
                let mut values = self.values.clone();
                values[place] += by;
                let moved = model.residues(&self.members, &values);
                moved
                    .iter()
                    .zip(&self.residues)
                    .map(|(with, without)| (with - without) / by)
                    .collect()
            })
            .collect()
    }

    /// Members at a limit stay fixed instead of moving beyond it.
    fn step(&self, model: &Model<'_>, slopes: &[Vec<f64>], damping: f64) -> Self {
        let limits: Vec<[f64; 2]> =
            self.members.iter().map(|one| model.constants[*one].limits.map(f64::ln)).collect();
        let down: Vec<f64> = slopes.iter().map(|slope| -dot(slope, &self.residues)).collect();
        let mut free: Vec<usize> = (0..self.members.len()).collect();
        free.retain(|place| {
            let ([low, high], value, down) = (limits[*place], self.values[*place], down[*place]);
            (value > low || down > 0.0) && (value < high || down < 0.0)
        });
        let mut matrix = [[0.0; MOST]; MOST];
        let mut wanted = [0.0; MOST];
        for (row, &a) in free.iter().enumerate() {
            for (column, &b) in free.iter().enumerate() {
                matrix[row][column] = dot(&slopes[a], &slopes[b]);
            }
            matrix[row][row] = matrix[row][row].mul_add(1.0 + damping, 1e-12);
            wanted[row] = down[a];
        }
        let steps = solve(matrix, wanted, free.len());
        let mut values = self.values.clone();
        for (row, &place) in free.iter().enumerate() {
            let [low, high] = limits[place];
            values[place] =
                (values[place] + steps[row].clamp(-FARTHEST, FARTHEST)).clamp(low, high);
        }
        Self::at(model, self.members.clone(), values)
    }

    pub(super) fn errors(&self, model: &Model<'_>) -> Vec<f64> {
        let slopes = self.slopes(model);
        let (runs, size) = (self.residues.len(), self.members.len());
        let freedom = runs.saturating_sub(size).max(1);
        let variance = self.squares.max(model.floor()) / freedom as f64;
        let quantile = STUDENT.get(freedom - 1).copied().unwrap_or(2.0);
        let mut matrix = [[0.0; MOST]; MOST];
        for (row, a) in slopes.iter().enumerate() {
            for (column, b) in slopes.iter().enumerate() {
                matrix[row][column] = dot(a, b);
            }
            matrix[row][row] += 1e-12;
        }
        (0..size)
            .map(|place| {
                let mut unit = [0.0; MOST];
                unit[place] = 1.0;
                quantile * (variance * solve(matrix, unit, size)[place]).max(0.0).sqrt()
            })
            .collect()
    }

    /// Whether moving `which` beyond its starting limit explains a tenth of the remaining error.
    pub(super) fn is_pushed_out(&self, model: &Model<'_>, which: usize) -> bool {
        let [low, high] = model.constants[which].limits.map(f64::ln);
        let value = model.start[which];
        let (is_low, is_high) = (value - low < 1e-6, high - value < 1e-6);
        if self.squares <= model.floor() || !(is_low || is_high) {
            return false;
        }
        let mut with = Self { members: self.members.clone(), ..self.clone() };
        with.members.push(which);
        with.values.push(value);
        let slopes = with.slopes(model).pop().unwrap_or_default();
        let up = -dot(&slopes, &self.residues);
        let is_outwards = if is_low { up < 0.0 } else { up > 0.0 };
        is_outwards && up * up > 0.1 * self.squares * dot(&slopes, &slopes)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Gaussian elimination on the first `size` rows of a positive definite system.
fn solve(mut matrix: [[f64; MOST]; MOST], mut wanted: [f64; MOST], size: usize) -> [f64; MOST] {
    for pivot in 0..size {
        for row in pivot + 1..size {
            let share = matrix[row][pivot] / matrix[pivot][pivot];
            let above = matrix[pivot];
            for (cell, above) in matrix[row].iter_mut().zip(above).skip(pivot) {
                *cell -= share * above;
            }
            wanted[row] -= share * wanted[pivot];
        }
    }
    for row in (0..size).rev() {
        for column in row + 1..size {
            wanted[row] -= matrix[row][column] * wanted[column];
        }
        wanted[row] /= matrix[row][row];
    }
    wanted
}
