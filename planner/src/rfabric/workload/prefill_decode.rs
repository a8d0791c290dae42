// SPDX-License-Identifier: Apache-2.0
//! Prefill and decode on different GPUs (Frontier, arXiv 2508.03148). The decode instance pulls each prompt's cache.
//!
//! A pull transfers prompt tokens × cache bytes per token. It waits until the instance has room, so
//! free cache memory limits the traffic of a phase; the remaining caches stay on the prefill side.

use lightloom_fabric::file::PromptFile;
use lightloom_units::Bytes;

use super::super::demand::Demand;
use super::card::ModelCard;
use super::place::Place;

/// Returns the traffic of all pulls in a phase, and the number of prompts still waiting for room.
///
/// Prompts are assigned in order to the decode GPU with the most room. A prompt that does not fit
/// on any GPU blocks all later ones (back-pressure).
pub fn pull(
    leaves: usize,
    card: &ModelCard,
    prefill: &Place,
    decode: &Place,
    prompts: &[PromptFile],
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
    use crate::rfabric::testkit::dense_card;
    use lightloom_units::id::LeafId;

    #[test]
    fn caches_are_pulled_until_memory_is_full() {
        let prefill = Place { first_leaf: 0, gpus_per_leaf: 1, gpus: 2 };
        let decode = Place { first_leaf: 2, ..prefill };
        let prompts = [0, 1, 0, 1].map(|gpu| PromptFile { gpu, tokens: 1_000 });
        let room = Bytes(1_500 * (320 << 10));
        let (demand, waiting) = pull(4, &dense_card(), &prefill, &decode, &prompts, room);
        assert_eq!(waiting, 2);
        assert_eq!(demand.bytes(LeafId(0), LeafId(2)), Bytes(1_000 * (320 << 10)));
        assert_eq!(demand.bytes(LeafId(1), LeafId(3)), Bytes(1_000 * (320 << 10)));
        assert_eq!(demand.total(), Bytes(2_000 * (320 << 10)));
    }
}
