// SPDX-License-Identifier: Apache-2.0
//! A bitmap, over a sliding window, of packets received beyond the first missing one.

#[derive(Clone, Debug, Default)]
pub(crate) struct SequenceSet {
    words: Box<[u64]>,
    len: u32,
}

impl SequenceSet {
    pub(crate) fn new(window: u32) -> Self {
        let words = (window.max(64).next_power_of_two() / 64) as usize;
        Self { words: vec![0; words].into_boxed_slice(), len: 0 }
    }
    fn place(&self, number: u32) -> (usize, u64) {
        ((number / 64) as usize & (self.words.len() - 1), 1 << (number % 64))
    }
    pub(crate) fn span(&self) -> u32 {
        self.words.len() as u32 * 64
    }
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }
    pub(crate) fn contains(&self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        self.words[word] & bit != 0
    }
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        let is_new = self.words[word] & bit == 0;
        self.len += u32::from(is_new);
        self.words[word] |= bit;
        is_new
    }
    pub(crate) fn take(&mut self, number: u32) -> bool {
        let (word, bit) = self.place(number);
        let was_there = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.len -= u32::from(was_there);
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn sliding_set_matches_an_ordinary_set(offsets in prop::collection::vec((0u32..100, 0u32..3), 1..200)) {
            let mut set = SequenceSet::new(100);
            let mut model = BTreeSet::new();
            let mut base = 0;
            for (offset, steps) in offsets {
                set.insert(base + offset);
                model.insert(base + offset);
                for _ in 0..steps {
                    prop_assert_eq!(set.take(base), model.remove(&base));
                    base += 1;
                }
                prop_assert_eq!(set.contains(base + 7), model.contains(&(base + 7)));
                prop_assert_eq!(set.len() as usize, model.len());
            }
        }
    }
}
