// SPDX-License-Identifier: Apache-2.0
//! Shared prompt prefixes: their assignment to requests, and the resulting statistics.

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde::Serialize;

use crate::batching::{Prefix, PrefixCounts, PrefixSharing};
use crate::rollout::Lengths;

/// Distribution of the shared beginnings of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharedPrefixes {
    pub count: u32,
    /// Tokens of a prefix, in addition to those of the prompt.
    pub tokens: Lengths,
    /// Zipf exponent of their popularity; 0 for equal popularity.
    pub zipf: f64,
    pub segment: u32,
    /// Share of a prefill replica's cache that is reserved for prefixes.
    pub room: f64,
}

impl SharedPrefixes {
    pub(super) fn draw(&self, count: usize, seed: Seed) -> Vec<Prefix> {
        let tokens = self.tokens.draw(self.count as usize, seed, 102);
        let mut sum = 0.0;
        let shares = (1..=self.count).map(|rank| {
            sum += f64::from(rank).powf(-self.zipf);
            sum
        });
        let shares: Vec<f64> = shares.collect();
        let mut stream = seed.stream("serving.prefixes", 0);
        let mut one = || {
            let drawn = stream.random::<f64>() * sum;
            let at = shares.partition_point(|share| *share < drawn).min(shares.len() - 1);
            Prefix { id: at as u32, tokens: tokens[at] }
        };
        (0..count).map(|_| one()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrefixResult {
    pub sharing: PrefixSharing,
    /// Share of the prompt tokens found in a cache.
    pub hit_share: f64,
    pub hit_tokens: u64,
    pub prefilled_tokens: u64,
    pub moved_bytes: u64,
    /// Prefilled tokens of the busiest replica relative to the mean.
    pub busiest_prefill: f64,
    /// Bytes sent by the busiest replica relative to the mean; `None` if none were sent.
    pub busiest_sender: Option<f64>,
}

impl PrefixResult {
    /// Computes the statistics from token counts and the cache bytes per token.
    pub(super) fn of(sharing: PrefixSharing, counts: &PrefixCounts, bytes: f64) -> Self {
        let busiest = |of: &[u64]| {
            let all: u64 = of.iter().sum();
            let most = of.iter().max().copied().unwrap_or(0);
            (all > 0).then(|| most as f64 * of.len() as f64 / all as f64)
        };
        let prefilled_tokens = counts.prefilled.iter().sum::<u64>();
        Self {
            sharing,
            hit_share: counts.hit as f64 / (counts.hit + prefilled_tokens).max(1) as f64,
            hit_tokens: counts.hit,
            prefilled_tokens,
            moved_bytes: (counts.moved as f64 * bytes).round() as u64,
            busiest_prefill: busiest(&counts.prefilled).unwrap_or(1.0),
            busiest_sender: busiest(&counts.sent),
        }
    }
}
