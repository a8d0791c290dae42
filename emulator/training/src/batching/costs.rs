// SPDX-License-Identifier: Apache-2.0

use crate::step::Server;

#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaCosts {
    pub gpus: u32,
    /// Seconds per decode step by batch size (from 0), without reading the caches.
    pub decode: Vec<f64>,
    pub cached_token: f64,
    pub cache_tokens: u64,
    /// Prompt time: a constant, seconds per token, and seconds per token squared.
    pub prompt: [f64; 3],
    /// Prompt tokens between two decode steps.
    pub prompt_tokens: u64,
}

impl ReplicaCosts {
    /// Computes the costs for batches of up to `most` requests. `None` if the weights do not fit.
    pub fn of<'a>(replica: impl Into<Server<'a>>, most: u32) -> Option<Self> {
        assert!(most > 0, "a batch has at least one request");
        let replica = replica.into();
        let decode = (0..=most).map(|batch| replica.decode_seconds(batch.max(1))).collect();
        // The prompt time is quadratic in the prompt length, so three samples determine it.
        let [one, half, whole] = [512_u32, 4_096, 16_384].map(|at| replica.prompt_seconds(at));
        let slope = [(half - one) / 3_584.0, (whole - half) / 12_288.0];
        let square = (slope[1] - slope[0]) / (16_384.0 - 512.0);
        let linear = slope[0] - square * (512.0 + 4_096.0);
        let constant = one - 512.0 * linear - 512.0 * 512.0 * square;
        Some(Self {
            gpus: replica.replica.gpus,
            decode,
            cached_token: replica.cached_token_seconds(),
            cache_tokens: replica.cache_tokens()?,
            prompt: [constant.max(0.0), linear, square],
            prompt_tokens: u64::MAX,
        })
    }
}

pub trait StepCosts {
    fn most(&self) -> usize;
    fn cache_tokens(&self) -> u64;
    fn longest(&self) -> u64 {
        self.cache_tokens()
    }
    fn prompt_seconds(&self, tokens: u32) -> f64;
    fn prompt_tokens(&self) -> u64 {
        u64::MAX
    }
    fn steps_seconds(&self, steps: u64, batch: usize, cached: u64) -> f64;

    fn whole_steps(&self, batch: usize, cached: u64, seconds: f64) -> u64 {
        let mut above = 1;
        while self.steps_seconds(above, batch, cached) <= seconds {
            above *= 2;
        }
        let mut below = above / 2;
        while above - below > 1 {
            let middle = below.midpoint(above);
            let fits = self.steps_seconds(middle, batch, cached) <= seconds;
            *(if fits { &mut below } else { &mut above }) = middle;
        }
        below
    }
}

impl StepCosts for ReplicaCosts {
    fn most(&self) -> usize {
        self.decode.len() - 1
    }

    fn cache_tokens(&self) -> u64 {
        self.cache_tokens
    }

    fn prompt_seconds(&self, tokens: u32) -> f64 {
        let tokens = f64::from(tokens);
        let [constant, linear, square] = self.prompt;
        if tokens == 0.0 { 0.0 } else { constant + tokens * (linear + tokens * square) }
    }

    fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    fn steps_seconds(&self, steps: u64, batch: usize, cached: u64) -> f64 {
        let steps = steps as f64;
        let read = steps * cached as f64 + batch as f64 * steps * (steps - 1.0) / 2.0;
        steps * self.decode[batch] + self.cached_token * read
    }

    fn whole_steps(&self, batch: usize, cached: u64, seconds: f64) -> u64 {
        // Solve steps · linear + steps² · square = seconds, then correct the rounding.
        let square = self.cached_token * batch as f64 / 2.0;
        let linear = self.decode[batch] + self.cached_token * cached as f64 - square;
        let root = (linear * linear + 4.0 * square * seconds).sqrt();
        let mut steps = (2.0 * seconds / (linear + root)) as u64;
        while self.steps_seconds(steps + 1, batch, cached) <= seconds {
            steps += 1;
        }
        while steps > 0 && self.steps_seconds(steps, batch, cached) > seconds {
            steps -= 1;
        }
        steps
    }
}
