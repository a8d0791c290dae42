// SPDX-License-Identifier: Apache-2.0
//! Core-attention disaggregation (DistCA, arXiv 2510.18121): GPUs send query and key-value shards
//! of long documents to attention servers and receive the output.
//!
//! Bytes of a task of t tokens (our own formula, from the shapes): query t·n_q·d·b and key-value
//! 2·t·n_kv·d·b to the server, output t·n_q·d·b back.

use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::place::Place;

/// Shapes of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Query heads.
    pub query_heads: u32,
    /// Key-value heads.
    pub key_value_heads: u32,
    /// Width of a head.
    pub head_size: u32,
    /// Bytes per element.
    pub element_bytes: u32,
}

impl Attention {
    /// Returns the bytes of query, keys and values of `tokens`.
    #[must_use]
    pub fn there(&self, tokens: u64) -> Bytes {
        let heads = u64::from(self.query_heads) + 2 * u64::from(self.key_value_heads);
        Bytes(tokens * heads * u64::from(self.head_size) * u64::from(self.element_bytes))
    }

    /// Returns the bytes of the output of `tokens`.
    #[must_use]
    pub fn back(&self, tokens: u64) -> Bytes {
        let heads = u64::from(self.query_heads);
        Bytes(tokens * heads * u64::from(self.head_size) * u64::from(self.element_bytes))
    }

    /// Moves tokens above the mean to the least loaded GPUs. `tokens[i]` is the load of GPU i.
    #[must_use]
    pub fn balance(&self, leaves: usize, place: &Place, tokens: &[u64]) -> Demand {
        let mut demand = Demand::none(leaves);
        let mean = tokens.iter().sum::<u64>() / tokens.len() as u64;
        let mut load = tokens.to_vec();
        loop {
            let richest = (0..load.len()).max_by_key(|gpu| (load[*gpu], usize::MAX - gpu));
            let poorest = (0..load.len()).min_by_key(|gpu| (load[*gpu], *gpu));
            let (Some(rich), Some(poor)) = (richest, poorest) else { return demand };
            let moved = (load[rich] - mean).min(mean.saturating_sub(load[poor]));
            if moved == 0 {
                return demand;
            }
            load[rich] -= moved;
            load[poor] += moved;
            let (from, to) = (place.leaf(rich as u32), place.leaf(poor as u32));
            demand.add(from, to, self.there(moved));
            demand.add(to, from, self.back(moved));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::id::LeafId;

    const ATTENTION: Attention =
        Attention { query_heads: 64, key_value_heads: 8, head_size: 128, element_bytes: 2 };

    #[test]
    fn long_document_ships_its_excess_over_the_mean() {
        let place = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 4 };
        let demand = ATTENTION.balance(4, &place, &[10_000, 2_000, 4_000, 4_000]);
        assert_eq!(demand.bytes(LeafId(0), LeafId(1)), Bytes(3_000 * 80 * 128 * 2));
        assert_eq!(demand.bytes(LeafId(1), LeafId(0)), Bytes(3_000 * 64 * 128 * 2));
        assert_eq!(demand.bytes(LeafId(0), LeafId(2)), Bytes(1_000 * 80 * 128 * 2));
    }

    #[test]
    fn balanced_documents_ship_nothing() {
        let place = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 3 };
        assert_eq!(ATTENTION.balance(3, &place, &[7, 7, 7]).total(), Bytes(0));
    }
}
