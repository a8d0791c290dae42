// SPDX-License-Identifier: Apache-2.0
//! Prefill and decode on different GPUs (as Frontier simulates, arXiv 2508.03148): the cache of a
//! prompt moves when the decode instance pulls it.
//!
//! Bytes: prompt tokens × cache bytes per token. The pull waits until the instance has room, so what is
//! moved in a phase is bounded by the free cache: the rest waits at the prefill side.

use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::card::ModelCard;
use super::place::Place;

/// A prompt: which prefill GPU has its cache, how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The prefill GPU.
    pub gpu: u32,
    /// Tokens.
    pub tokens: u64,
}

/// What is pulled in a phase, and how many prompts wait for room.
///
/// Prompts go in order to the decode GPU with most room; a prompt that fits nowhere holds up those
/// after it (back-pressure).
#[must_use]
pub fn pull(
    leaves: usize,
    card: &ModelCard,
    prefill: &Place,
    decode: &Place,
    prompts: &[Prompt],
    room: Bytes,
) -> (Demand, usize) {
    let mut demand = Demand::none(leaves);
    let mut rooms = vec![room.0; decode.gpus as usize];
    for (at, prompt) in prompts.iter().enumerate() {
        let size = card.cache_bytes_per_token().0 * prompt.tokens;
        let widest = (0..rooms.len()).max_by_key(|gpu| (rooms[*gpu], usize::MAX - gpu));
        let Some(gpu) = widest.filter(|gpu| rooms[*gpu] >= size) else {
            return (demand, prompts.len() - at);
        };
        rooms[gpu] -= size;
        demand.add(prefill.leaf(prompt.gpu), decode.leaf(gpu as u32), Bytes(size));
    }
    (demand, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rfabric::testing::dense_card;
    use lightloom_units::id::LeafId;

    #[test]
    fn caches_are_pulled_until_the_room_is_full() {
        let prefill = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 2 };
        let decode = Place { first_leaf: 2, ..prefill };
        let prompts = [0, 1, 0, 1].map(|gpu| Prompt { gpu, tokens: 1_000 });
        let room = Bytes(1_500 * (320 << 10));
        let (demand, waiting) = pull(4, &dense_card(), &prefill, &decode, &prompts, room);
        assert_eq!(waiting, 2);
        assert_eq!(demand.bytes(LeafId(0), LeafId(2)), Bytes(1_000 * (320 << 10)));
        assert_eq!(demand.bytes(LeafId(1), LeafId(3)), Bytes(1_000 * (320 << 10)));
        assert_eq!(demand.total(), Bytes(2_000 * (320 << 10)));
    }
}
