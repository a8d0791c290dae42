// SPDX-License-Identifier: Apache-2.0
//! Decode steps of a group of attention and feed-forward instances. The slowest stage determines
//! the step time, and the cache size determines which stage is the slowest.

use super::StepCosts;
use crate::step::{AttentionFfn, LayerStages, Stages};

#[derive(Clone, Debug, PartialEq)]
pub struct StagedCosts {
    pub gpus: u32,
    pub cache_tokens: u64,
    /// Cache capacity of one attention instance, which holds a request's whole cache.
    longest: u64,
    /// Upper envelope of the step time by batch size (from 0), sorted by slope.
    steps: Vec<Vec<Line>>,
}

/// Seconds per step, linear in the cached tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    fixed: f64,
    slope: f64,
}

impl Line {
    fn plus(self, other: Self) -> Self {
        Self { fixed: self.fixed + other.fixed, slope: self.slope + other.slope }
    }

    fn at(self, cached: f64) -> f64 {
        self.fixed + self.slope * cached
    }

    fn meets(self, steeper: Self) -> f64 {
        (self.fixed - steeper.fixed) / (steeper.slope - self.slope)
    }
}

impl StagedCosts {
    /// Computes the costs for batches of up to `most` requests. `None` if the weights do not fit.
    pub fn of(group: &AttentionFfn<'_>, most: u32) -> Option<Self> {
        Some(Self {
            gpus: group.gpus(),
            cache_tokens: group.cache_tokens()?,
            longest: group.cache_tokens()? / u64::from(group.attention.count),
            steps: (0..=most).map(|batch| lines(&group.stages(batch))).collect(),
        })
    }
}

fn lines(step: &Stages) -> Vec<Line> {
    let rest = Line { fixed: step.rest, slope: 0.0 };
    let all = step.layers.iter().fold(vec![rest], |so_far, (count, layer)| {
        let layers = of_layer(step, f64::from(*count), layer);
        so_far.iter().flat_map(|one| layers.map(|layer| one.plus(layer))).collect()
    });
    highest(all)
}

/// Returns the three bounds on a layer's time: the round trip of a micro-batch, attention for all
/// micro-batches, and their slowest other stage.
fn of_layer(step: &Stages, count: f64, layer: &LayerStages) -> [Line; 3] {
    let LayerStages { attention, cached_token, there, inside, feed_forward, back } = *layer;
    let all = count * f64::from(step.micro_batches);
    let slope = count * cached_token * step.cached_share;
    let others = [there, inside, feed_forward, back];
    let slowest = others.into_iter().fold(0.0, f64::max);
    [
        Line { fixed: count * (attention + others.iter().sum::<f64>()), slope },
        Line { fixed: all * attention, slope: f64::from(step.micro_batches) * slope },
        Line { fixed: all * slowest, slope: 0.0 },
    ]
}

fn highest(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by(|a, b| a.slope.total_cmp(&b.slope).then(a.fixed.total_cmp(&b.fixed)));
    let mut kept: Vec<Line> = Vec::new();
    for line in lines {
        // Drop the flatter line if the new one is above it from the point where it would start.
        while let Some(last) = kept.last() {
            let begins = kept.len().checked_sub(2).map_or(0.0, |at| kept[at].meets(*last));
            let is_below = last.slope >= line.slope || last.meets(line) <= begins;
            if !is_below {
                break;
            }
            kept.pop();
        }
        kept.push(line);
    }
    kept
}

impl StepCosts for StagedCosts {
    fn most(&self) -> usize {
        self.steps.len() - 1
    }

    fn cache_tokens(&self) -> u64 {
        self.cache_tokens
    }

    fn longest(&self) -> u64 {
        self.longest
    }

    fn prompt_seconds(&self, _tokens: u32) -> f64 {
        0.0
    }

    fn steps_seconds(&self, steps: u64, batch: usize, cached: u64) -> f64 {
        let lines = &self.steps[batch];
        let (mut sum, mut done) = (0.0, 0);
        for (at, line) in lines.iter().enumerate() {
            let until = lines.get(at + 1).map_or(steps, |next| {
                let left = (line.meets(*next) - cached as f64) / batch.max(1) as f64;
                (left.max(0.0).ceil() as u64).clamp(done, steps)
            });
            // The time is linear within a piece, so use the average step.
            let count = (until - done) as f64;
            let middle = (done as f64 + until as f64 - 1.0) / 2.0;
            sum += count * line.at(cached as f64 + batch as f64 * middle);
            done = until;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stages(micro_batches: u32, seconds: [f64; 5]) -> Stages {
        let [attention, there, inside, feed_forward, back] = seconds;
        let cached_token = 1e-6;
        let layer = LayerStages { attention, cached_token, there, inside, feed_forward, back };
        let other = LayerStages { feed_forward: feed_forward / 3.0, ..layer };
        let cached_share = 0.5 / f64::from(micro_batches);
        Stages { micro_batches, cached_share, layers: [(3, layer), (5, other)], rest: 0.01 }
    }

    proptest! {
        #[test]
        fn combined_steps_match_single_steps(
            micro_batches in 1_u32..5,
            seconds in proptest::array::uniform5(0.0_f64..0.2),
            steps in 0_u64..400,
            batch in 1_usize..20,
            cached in 0_u64..400_000,
        ) {
            let step = stages(micro_batches, seconds);
            let costs =
                StagedCosts { gpus: 1, cache_tokens: 1, longest: 1, steps: vec![lines(&step); batch + 1] };
            let expected: f64 = (0..steps).map(|at: u64| step.seconds((cached + at * batch as u64) as f64)).sum();
            let ours = costs.steps_seconds(steps, batch, cached);
            prop_assert!((ours - expected).abs() < 1e-9 * (1.0 + expected), "{ours} {expected}");
            prop_assert_eq!(costs.whole_steps(batch, cached, ours + 1e-6), steps);
        }
    }
}
