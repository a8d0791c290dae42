// SPDX-License-Identifier: Apache-2.0
//! Explains deviations from published values. It evaluates every combination of unstated
//! assumptions, and finds the fewest changes to our choices that reach the published range.

use rayon::prelude::*;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assumption {
    pub about: &'static str,
    pub choices: Vec<String>,
}

impl Assumption {
    fn departure(&self, choice: usize) -> Departure {
        Departure { about: self.about, choice: self.choices[choice].clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Departure {
    pub about: &'static str,
    pub choice: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub departures: Vec<Departure>,
    pub figure: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedRange {
    pub low: f64,
    pub high: f64,
    /// The value that means no effect. `None` if there is no such value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_effect: Option<f64>,
    pub unit: &'static str,
}

impl PublishedRange {
    pub const fn times(low: f64, high: f64) -> Self {
        Self { low, high, no_effect: Some(1.0), unit: "×" }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Why {
    pub claim: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<&'static str>,
    #[serde(flatten)]
    pub published: PublishedRange,
    pub ours: f64,
    pub assumptions: Vec<Assumption>,
    pub combinations: usize,
    pub within: usize,
    pub least: f64,
    pub most: f64,
    pub alone: Vec<Outcome>,
    /// Minimal sets of departures that reach the range, fewest departures first.
    pub minimal: Vec<Outcome>,
    /// Choices, including ours, that never reach the range in any combination.
    pub never: Vec<Departure>,
}

/// Computes `figure` for every combination of choices. A combination has one index per assumption.
/// The figure is NaN if it cannot be computed.
pub fn explain(
    claim: &str,
    sentence: Option<&'static str>,
    published: PublishedRange,
    assumptions: Vec<Assumption>,
    figure: impl Fn(&[usize]) -> f64 + Sync,
) -> Why {
    let sizes: Vec<usize> = assumptions.iter().map(|one| one.choices.len()).collect();
    let all = combinations(&sizes);
    let figures: Vec<f64> = all.par_iter().map(|choices| figure(choices)).collect();
    let outcomes: Vec<Outcome> = all
        .iter()
        .zip(&figures)
        .map(|(choices, figure)| Outcome {
            departures: departures(&assumptions, choices),
            figure: *figure,
        })
        .collect();
    let within = published.low..=published.high;
    let inside: Vec<usize> = (0..all.len()).filter(|at| within.contains(&figures[*at])).collect();
    let mut minimal: Vec<usize> = inside
        .iter()
        .copied()
        .filter(|at| !inside.iter().any(|other| is_part(&all[*other], &all[*at])))
        .collect();
    minimal.sort_by_key(|at| (outcomes[*at].departures.len(), *at));
    let never = (0..sizes.len())
        .flat_map(|about| (0..sizes[about]).map(move |choice| (about, choice)))
        .filter(|(about, choice)| !inside.iter().any(|at| all[*at][*about] == *choice))
        .map(|(about, choice)| assumptions[about].departure(choice))
        .collect();
    Why {
        claim: claim.to_owned(),
        sentence,
        published,
        ours: figures[0],
        combinations: figures.iter().filter(|figure| !figure.is_nan()).count(),
        within: inside.len(),
        least: figures.iter().copied().fold(f64::INFINITY, f64::min),
        most: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        alone: outcomes.iter().filter(|one| one.departures.len() == 1).cloned().collect(),
        minimal: minimal.into_iter().map(|at| outcomes[at].clone()).collect(),
        never,
        assumptions,
    }
}

fn departures(assumptions: &[Assumption], choices: &[usize]) -> Vec<Departure> {
    let departed = assumptions.iter().zip(choices).filter(|(_, choice)| **choice > 0);
    departed.map(|(assumption, choice)| assumption.departure(*choice)).collect()
}

pub fn combinations(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for mut number in 0..sizes.iter().product() {
        let mut choices = Vec::new();
        for size in sizes {
            choices.push(number % size);
            number /= size;
        }
        all.push(choices);
    }
    all
}

pub fn assumption<T>(about: &'static str, choices: &[(T, &str)]) -> Assumption {
    Assumption { about, choices: choices.iter().map(|(_, name)| (*name).to_owned()).collect() }
}

fn is_part(less: &[usize], more: &[usize]) -> bool {
    less != more && less.iter().zip(more).all(|(less, more)| *less == 0 || less == more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Assumption> {
        let assumption = |about, choices: &[&str]| Assumption {
            about,
            choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        };
        vec![
            assumption("a", &["1", "2", "5"]),
            assumption("b", &["1", "3"]),
            assumption("c", &["1", "10"]),
        ]
    }

    /// In a product of three factors, 2·3 and a single 5 reach the range from 5 to 6, but 10 never does.
    #[test]
    fn finds_the_fewest_departures_and_names_useless_ones() {
        let factors = [vec![1.0, 2.0, 5.0], vec![1.0, 3.0], vec![1.0, 10.0]];
        let why = explain("x", None, PublishedRange::times(5.0, 6.0), three(), |choices| {
            choices.iter().zip(&factors).map(|(choice, factor)| factor[*choice]).product()
        });
        let departure = |about, choice: &str| Departure { about, choice: choice.to_owned() };
        let minimal: Vec<Vec<Departure>> =
            why.minimal.iter().map(|outcome| outcome.departures.clone()).collect();
        assert_eq!(
            minimal,
            [vec![departure("a", "5")], vec![departure("a", "2"), departure("b", "3")]]
        );
        assert_eq!(why.never, [departure("a", "1"), departure("c", "10")]);
        assert_eq!((why.combinations, why.within, why.alone.len()), (12, 2, 4));
        assert_eq!((why.ours, why.least, why.most), (1.0, 1.0, 150.0));
    }

    #[test]
    fn figure_within_the_range_needs_no_departure() {
        let why = explain("x", None, PublishedRange::times(0.0, 1.0), three(), |_| 1.0);
        assert_eq!(why.minimal.len(), 1);
        assert!(why.minimal[0].departures.is_empty() && why.never.is_empty());
    }
}
