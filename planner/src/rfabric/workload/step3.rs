// SPDX-License-Identifier: Apache-2.0
//! Attention and feed-forward on different GPUs (Step-3, arXiv 2507.19427): in every decode step,
//! hidden states go back and forth for each layer.
//!
//! Bytes per token and layer: h to the feed-forward GPUs in FP8, 2·h back in BF16. Every attention
//! GPU communicates with every feed-forward GPU. The published pipeline leaves 16.6 ms of a 50 ms
//! token for communication.

use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::place::Place;

/// Returns the traffic of one decode step of `tokens` over all attention GPUs.
#[must_use]
pub fn traffic(
    leaves: usize,
    attention: &Place,
    feed_forward: &Place,
    hidden: u32,
    layers: u32,
    tokens: u64,
) -> Demand {
    let mut demand = Demand::none(leaves);
    let one_way = tokens * u64::from(hidden) * u64::from(layers);
    let pairs = u64::from(attention.gpus) * u64::from(feed_forward.gpus);
    for a in 0..attention.gpus {
        for f in 0..feed_forward.gpus {
            let (a, f) = (attention.leaf(a), feed_forward.leaf(f));
            demand.add(a, f, Bytes(one_way / pairs));
            demand.add(f, a, Bytes(2 * one_way / pairs));
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_three_hidden_widths_per_layer() {
        let attention = Place { first_leaf: 0, gpus_per_leaf: 4, gpus: 8 };
        let feed_forward = Place { first_leaf: 2, ..attention };
        let demand = traffic(4, &attention, &feed_forward, 7168, 61, 64);
        assert_eq!(demand.total(), Bytes(64 * 3 * 7168 * 61), "1.3 MB a token");
    }
}
