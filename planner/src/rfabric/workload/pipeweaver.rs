// SPDX-License-Identifier: Apache-2.0
//! Pipelines of encoders and a language model whose messages change with every batch (PipeWeaver,
//! arXiv 2504.14145).
//!
//! Bytes over a boundary: the batch's tokens in that stage's modality × h·b of the stage, in each
//! direction. The form is our own; the paper's schedules are not imitated.

use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::place::Place;

/// A boundary between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// GPU of the previous stage.
    pub before: u32,
    /// GPU of the next stage.
    pub after: u32,
    /// The modality whose tokens cross.
    pub modality: usize,
    /// Bytes per token at this boundary.
    pub token_bytes: u32,
}

/// Returns the traffic of micro-batches, given as tokens by modality.
#[must_use]
pub fn traffic(
    leaves: usize,
    place: &Place,
    boundaries: &[Boundary],
    micro_batches: &[Vec<u64>],
) -> Demand {
    let mut demand = Demand::none(leaves);
    for boundary in boundaries {
        let tokens: u64 = micro_batches.iter().map(|batch| batch[boundary.modality]).sum();
        let size = Bytes(tokens * u64::from(boundary.token_bytes));
        let (before, after) = (place.leaf(boundary.before), place.leaf(boundary.after));
        demand.add(before, after, size);
        demand.add(after, before, size);
    }
    demand
}

#[cfg(test)]
mod tests {
    use super::*;
    use lightloom_units::id::LeafId;

    #[test]
    fn messages_follow_the_tokens_of_the_batch() {
        let place = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 3 };
        let boundary =
            |before, after, modality| Boundary { before, after, modality, token_bytes: 10 };
        let boundaries = [boundary(0, 2, 0), boundary(1, 2, 1)];
        let demand = traffic(3, &place, &boundaries, &[vec![100, 5], vec![300, 7]]);
        assert_eq!(demand.bytes(LeafId(0), LeafId(2)), Bytes(4_000));
        assert_eq!(demand.bytes(LeafId(2), LeafId(1)), Bytes(120));
    }
}
