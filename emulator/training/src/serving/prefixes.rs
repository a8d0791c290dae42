// SPDX-License-Identifier: Apache-2.0
//! Prefixes that prompts share: which request has which, and what came of them.

use lightloom_units::seed::Seed;
use rand::RngExt;
use serde::Serialize;

use crate::batching::{Prefix, PrefixCounts, PrefixSharing};
use crate::rollout::Lengths;

/// Beginnings of prompts that requests share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharedPrefixes {
    /// How many there are.
    pub count: u32,
    /// Their tokens, before those of a prompt.
    pub tokens: Lengths,
    /// Exponent of their popularity (Zipf); 0 if each is as likely.
    pub zipf: f64,
    /// Tokens of a segment.
    pub segment: u32,
    /// Share of the caches of a replica that works on prompts, for them.
    pub room: f64,
}

impl SharedPrefixes {
    /// So many requests' prefixes.
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

/// What came of shared prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PrefixResult {
    /// Who held them.
    pub sharing: PrefixSharing,
    /// Share of the tokens of prompts that were found.
    pub hit_share: f64,
    /// Those.
    pub hit_tokens: u64,
    /// The others.
    pub prefilled_tokens: u64,
    /// Bytes of prefixes that went from replica to replica.
    pub moved_bytes: u64,
    /// Tokens that the busiest replica worked on ÷ the mean.
    pub busiest_prefill: f64,
    /// Bytes that the busiest replica sent ÷ the mean; `None` if none was sent.
    pub busiest_sender: Option<f64>,
}

impl PrefixResult {
    /// From counts of tokens, each of so many bytes.
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
