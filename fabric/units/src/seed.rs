// SPDX-License-Identifier: Apache-2.0
//! Random numbers from one seed per run, split into streams that are identified by purpose and
//! index. An additional draw in one place does not change the numbers elsewhere, and work split
//! over threads draws the same numbers as sequential work.

use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// A small and fast generator whose fixed algorithm makes output reproducible.
pub type Stream = Xoshiro256PlusPlus;

/// The seed of a run, printed with every result that depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(pub u64);

impl Seed {
    pub const USUAL: Self = Self(1);

    /// Returns the random stream for item `index` of the purpose `label`.
    pub fn stream(self, label: &str, index: u64) -> Stream {
        Stream::seed_from_u64(mix(self.0 ^ mix(fnv1a(label) ^ mix(index))))
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", OOPSLA 2014). Every input bit affects every output bit.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::RngExt;

    #[test]
    fn streams_differ_by_seed_label_and_index_and_repeat() {
        let first = |seed: u64, label: &str, index| Seed(seed).stream(label, index).random::<u64>();
        assert_eq!(first(1, "faults", 0), first(1, "faults", 0));
        let all = [
            first(1, "faults", 0),
            first(2, "faults", 0),
            first(1, "links", 0),
            first(1, "faults", 1),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }
}
