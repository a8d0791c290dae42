// SPDX-License-Identifier: Apache-2.0
//! DSV (arXiv 2502.07590): context parallelism for sparse attention, with an all-to-all of heads
//! within small groups and a gather of the critical keys and values between them.
//!
//! Elements, for N GPUs, H heads of width D, sequence S, sparsity alpha and share sigma of remote
//! critical pairs (the paper's section 7):
//!
//! - heads: 4·H_i·(S/N)·((N−1)/N)·D for GPU i with H_i heads;
//! - sparse: 2·H·(1−alpha)·sigma·S·D;
//! - both together split N = G_heads·G_sparse and choose the split with the least time.

use lightloom_units::Bytes;
use lightloom_units::id::LeafId;

use super::super::demand::Demand;
use super::place::Place;

/// A layer of sparse attention over N GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseAttention {
    /// Heads.
    pub heads: u32,
    /// Width of a head.
    pub head_size: u32,
    /// Tokens of the sequence.
    pub sequence: u64,
    /// Share of key-value pairs that attention skips.
    pub sparsity: f64,
    /// Share of the critical pairs on other GPUs.
    pub remote_share: f64,
    /// Bytes per element.
    pub element_bytes: u32,
}

impl SparseAttention {
    fn head_bytes(&self, ranks: u32) -> f64 {
        let ranks = f64::from(ranks);
        let heads = f64::from(self.heads) / ranks;
        let tokens = self.sequence as f64 / ranks;
        let elements = 4.0 * heads * tokens * (ranks - 1.0) / ranks * f64::from(self.head_size);
        elements * f64::from(self.element_bytes)
    }

    fn sparse_bytes(&self) -> f64 {
        2.0 * f64::from(self.heads)
            * (1.0 - self.sparsity)
            * self.remote_share
            * self.sequence as f64
            * f64::from(self.head_size)
            * f64::from(self.element_bytes)
    }

    /// Returns the demand with groups of `head_ranks` consecutive GPUs and a gather across them.
    #[must_use]
    pub fn traffic(&self, leaves: usize, place: &Place, head_ranks: u32) -> Demand {
        let mut demand = Demand::none(leaves);
        let groups = place.gpus / head_ranks;
        for gpu in 0..place.gpus {
            let (group, rank) = (gpu / head_ranks, gpu % head_ranks);
            let peers = (0..head_ranks).map(|peer| group * head_ranks + peer);
            spread(&mut demand, place, gpu, peers, self.head_bytes(head_ranks));
            let peers = (0..groups).map(|other| other * head_ranks + rank);
            // In a group of G ranks, each holds H/G of the heads.
            let bytes = if groups > 1 { self.sparse_bytes() / f64::from(head_ranks) } else { 0.0 };
            spread(&mut demand, place, gpu, peers, bytes);
        }
        demand
    }
}

fn spread(
    demand: &mut Demand,
    place: &Place,
    gpu: u32,
    peers: impl Iterator<Item = u32>,
    bytes: f64,
) {
    let others: Vec<LeafId> =
        peers.filter(|peer| *peer != gpu).map(|peer| place.leaf(peer)).collect();
    for to in &others {
        demand.add(place.leaf(gpu), *to, Bytes((bytes / others.len() as f64) as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: SparseAttention = SparseAttention {
        heads: 32,
        head_size: 128,
        sequence: 64_000,
        sparsity: 0.9,
        remote_share: 0.5,
        element_bytes: 2,
    };

    #[test]
    fn bytes_follow_the_published_formulas() {
        // 4 · (32/8) · (64000/8) · 7/8 · 128 elements of 2 bytes.
        assert!((LAYER.head_bytes(8) - 4.0 * 4.0 * 8_000.0 * 0.875 * 128.0 * 2.0).abs() < 1.0);
        assert!((LAYER.sparse_bytes() - 2.0 * 32.0 * 0.1 * 0.5 * 64_000.0 * 256.0).abs() < 1.0);
    }

    #[test]
    fn heads_inside_a_node_leave_only_the_sparse_gather_to_the_fabric() {
        let place = Place { first_leaf: 0, gpus_per_leaf: 8, gpus: 32 };
        let inside = LAYER.traffic(4, &place, 8).total().0 as f64;
        assert!((inside / (32.0 * LAYER.sparse_bytes() / 8.0) - 1.0).abs() < 1e-3);
        let whole = LAYER.traffic(4, &place, 32).total().0 as f64;
        let crossing = 32.0 * LAYER.head_bytes(32) * 24.0 / 31.0;
        assert!((whole / crossing - 1.0).abs() < 1e-3);
    }
}
