// SPDX-License-Identifier: Apache-2.0
//! A cluster-wide pool of prefix caches (TokenLake, arXiv 2508.17219): either the query moves to
//! the cache or the cache to the query, whichever is smaller.
//!
//! Bytes for q query tokens against a segment of s tokens, one layer (our own formula, from the
//! shapes):
//!
//! - moving the query and the partial output: 2·q·n_q·d·b, and q·n_q·4 of log-sum-exp;
//! - moving the cache: 2·s·n_kv·d·b.

use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::super::demand::Demand;
use super::core_attention::Attention;

/// A request that needs a cached segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Leaf of the request.
    pub request: LeafId,
    /// Leaf of the segment.
    pub segment: LeafId,
    /// Query tokens.
    pub query_tokens: u64,
    /// Tokens of the segment.
    pub segment_tokens: u64,
}

fn ways(attention: &Attention, hit: &Hit) -> (Bytes, Bytes, Bytes) {
    let width = u64::from(attention.head_size) * u64::from(attention.element_bytes);
    let heads = u64::from(attention.query_heads);
    let query = hit.query_tokens * heads * width;
    let back = query + hit.query_tokens * heads * 4;
    let cache = 2 * hit.segment_tokens * u64::from(attention.key_value_heads) * width;
    (Bytes(query), Bytes(back), Bytes(cache))
}

/// Returns the traffic of one layer.
#[must_use]
pub fn traffic(leaves: usize, attention: &Attention, hits: &[Hit]) -> Demand {
    let mut demand = Demand::none(leaves);
    for hit in hits {
        let (query, back, cache) = ways(attention, hit);
        if query + back < cache {
            demand.add(hit.request, hit.segment, query);
            demand.add(hit.segment, hit.request, back);
        } else {
            demand.add(hit.segment, hit.request, cache);
        }
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTENTION: Attention =
        Attention { query_heads: 64, key_value_heads: 8, head_size: 128, element_bytes: 2 };

    #[test]
    fn smaller_side_is_transferred() {
        let hit =
            Hit { request: LeafId(0), segment: LeafId(1), query_tokens: 1, segment_tokens: 1_000 };
        let decode = traffic(2, &ATTENTION, &[hit]);
        assert_eq!(decode.bytes(LeafId(0), LeafId(1)), Bytes(64 * 256));
        assert_eq!(decode.bytes(LeafId(1), LeafId(0)), Bytes(64 * 256 + 64 * 4));
        let prefill = traffic(2, &ATTENTION, &[Hit { query_tokens: 4_000, ..hit }]);
        assert_eq!(prefill.bytes(LeafId(0), LeafId(1)), Bytes(0));
        assert_eq!(prefill.bytes(LeafId(1), LeafId(0)), Bytes(2 * 1_000 * 8 * 256));
    }
}
