// SPDX-License-Identifier: Apache-2.0
//! Compressed gradients (ByteComp/Espresso): compression changes the matrix, not only its size.
//!
//! A compressed tensor cannot be summed in the ring, so an all-reduce becomes an all-gather: each
//! rank sends (g−1)·ratio·S instead of 2(g−1)/g·S. On a flat ring it pays off only below a ratio of
//! 2/g. The formula is our own.

use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::super::demand::Demand;
use super::collective::{all_reduce, ring};

/// The exchange method of one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheme {
    /// All-reduced without compression.
    Plain,
    /// Compressed to this share of its size and all-gathered.
    Compressed(f64),
}

impl Scheme {
    /// Returns the scheme that sends less on a ring of `ranks`.
    #[must_use]
    pub fn best(ratio: f64, ranks: usize) -> Self {
        if ratio * (ranks as f64) < 2.0 { Self::Compressed(ratio) } else { Self::Plain }
    }
}

/// Adds the exchange of one tensor.
pub fn exchange(demand: &mut Demand, ranks: &[LeafId], size: Bytes, scheme: Scheme) {
    match scheme {
        Scheme::Plain => all_reduce(demand, ranks, size),
        Scheme::Compressed(ratio) => {
            let sent = size.0 as f64 * ratio * (ranks.len() as f64 - 1.0);
            ring(demand, ranks, Bytes(sent as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ranks: u32, scheme: Scheme) -> u64 {
        let leaves: Vec<LeafId> = (0..ranks).map(LeafId).collect();
        let mut demand = Demand::none(ranks as usize);
        exchange(&mut demand, &leaves, Bytes(1_000_000), scheme);
        demand.bytes(LeafId(0), LeafId(1)).0
    }

    #[test]
    fn compression_pays_only_below_two_over_the_ring() {
        assert_eq!(sent(4, Scheme::Plain), 1_500_000);
        assert_eq!(sent(4, Scheme::Compressed(0.1)), 300_000);
        assert!(sent(64, Scheme::Compressed(0.1)) > sent(64, Scheme::Plain));
        assert_eq!(Scheme::best(0.1, 64), Scheme::Plain);
        assert_eq!(Scheme::best(0.1, 16), Scheme::Compressed(0.1));
    }
}
