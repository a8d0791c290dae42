// SPDX-License-Identifier: Apache-2.0
//! What replicas take for prompts and decode steps, and what they hold.

use crate::step::Server;

/// What a replica takes, in seconds, and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaCosts {
    /// GPUs of a replica.
    pub gpus: u32,
    /// A decode step by size of its batch, without reading caches; that of none first.
    pub decode: Vec<f64>,
    /// What each token in the caches adds to a decode step.
    pub cached_token: f64,
    /// Tokens that fit into the caches.
    pub cache_tokens: u64,
    /// A prompt of one token, and how much each further one, and each pair of them, adds.
    pub prompt: [f64; 3],
}

impl ReplicaCosts {
    /// Those of `replica` with batches of up to `most`. `None` where its weights do not fit.
    ///
    /// # Panics
    /// If `most` is 0.
    #[must_use]
    pub fn of<'a>(replica: impl Into<Server<'a>>, most: u32) -> Option<Self> {
        assert!(most > 0, "a batch has a request");
        let replica = replica.into();
        let decode = (0..=most).map(|batch| replica.decode_seconds(batch.max(1))).collect();
        // A forward pass is a constant, products and a square of attention: three prompts give all of it.
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
        })
    }

    /// Seconds of a prompt.
    #[must_use]
    pub fn prompt_seconds(&self, tokens: u32) -> f64 {
        let tokens = f64::from(tokens);
        let [constant, linear, square] = self.prompt;
        if tokens == 0.0 { 0.0 } else { constant + tokens * (linear + tokens * square) }
    }

    /// Seconds of `steps` decode steps of `batch` requests that begin with `cached` tokens in all.
    #[must_use]
    pub fn steps_seconds(&self, steps: u64, batch: usize, cached: u64) -> f64 {
        let steps = steps as f64;
        let read = steps * cached as f64 + batch as f64 * steps * (steps - 1.0) / 2.0;
        steps * self.decode[batch] + self.cached_token * read
    }
}

/// What a replica takes, however it decodes.
pub trait StepCosts {
    /// The most requests that it decodes at once.
    fn most(&self) -> usize;
    /// Tokens that fit into its caches.
    fn cache_tokens(&self) -> u64;
    /// Tokens of the longest request that it can hold.
    fn longest(&self) -> u64 {
        self.cache_tokens()
    }
    /// Seconds of a prompt of which so many tokens are in the caches already.
    fn prompt_seconds(&self, tokens: u32, cached: u32) -> f64;
    /// Seconds of `steps` decode steps of `batch` requests that begin with `cached` tokens in all.
    fn steps_seconds(&self, steps: u64, batch: usize, cached: u64) -> f64;

    /// How many whole steps fit into so many seconds.
    fn whole_steps(&self, batch: usize, cached: u64, seconds: f64) -> u64 {
        let fits = |steps| self.steps_seconds(steps, batch, cached) <= seconds;
        let mut above = 1;
        while fits(above) {
            above *= 2;
        }
        let mut below = above / 2;
        while above - below > 1 {
            let middle = below.midpoint(above);
            *(if fits(middle) { &mut below } else { &mut above }) = middle;
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

    fn prompt_seconds(&self, tokens: u32, cached: u32) -> f64 {
        if cached == 0 {
            return self.prompt_seconds(tokens);
        }
        let [constant, linear, square] = self.prompt;
        let (tokens, cached) = (f64::from(tokens), f64::from(cached));
        constant + (tokens - cached) * (linear + (tokens + cached) * square)
    }

    fn steps_seconds(&self, steps: u64, batch: usize, cached: u64) -> f64 {
        self.steps_seconds(steps, batch, cached)
    }

    fn whole_steps(&self, batch: usize, cached: u64, seconds: f64) -> u64 {
        // steps · linear + steps² · square = seconds.
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
