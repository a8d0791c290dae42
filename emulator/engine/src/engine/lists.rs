// SPDX-License-Identifier: Apache-2.0
//! Groups the arrivals of a window by output port and sorts them by time without branches. The
//! lists are short, so a mispredicted branch costs more than a comparison.

use std::hint::select_unpredictable;

/// A key has a time in its upper half and an index in its lower half.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    keys: Vec<u64>,
    ends: Vec<u32>,
    stride: usize,
}

/// Makes lists start in different cache lines.
const BETWEEN: usize = 8;

/// Above this number of keys, the lists get room for the longest of them instead of for all keys.
const MANY: usize = 1 << 25;

impl Lists {
    pub(crate) fn new(count: usize) -> Self {
        Self { keys: Vec::new(), ends: vec![0; count], stride: 0 }
    }

    #[inline(always)]
    pub(crate) fn has_room(&self, count: usize) -> bool {
        count + BETWEEN <= self.stride
    }

    /// Makes room for `count` keys, one for each of `places`, the lists that they will be added to.
    pub(crate) fn make_room(&mut self, count: usize, places: impl Iterator<Item = usize>) {
        let mut longest = count;
        if count * self.ends.len() > MANY {
            let mut lengths = vec![0; self.ends.len()];
            places.for_each(|place| lengths[place] += 1);
            longest = lengths.into_iter().max().unwrap_or(0);
        }
        if !self.has_room(longest) {
            self.widen(longest.next_power_of_two().max(32) + BETWEEN);
        }
    }

    #[inline(always)]
    pub(crate) fn adding(&mut self) -> Adding<'_> {
        Adding { keys: &mut self.keys, ends: &mut self.ends }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self, list: usize) -> bool {
        self.ends[list] as usize == list * self.stride
    }

    #[inline(always)]
    pub(crate) fn take_in_order(&mut self, list: usize) -> &mut [u64] {
        let begin = list * self.stride;
        let length = std::mem::replace(&mut self.ends[list], begin as u32) as usize - begin;
        let keys = &mut self.keys[begin..][..self.stride];
        sort(keys, length);
        &mut keys[..length]
    }

    pub(crate) fn take_all_in_order(&mut self, all: &mut Vec<u64>) {
        for (list, end) in self.ends.iter_mut().enumerate() {
            let begin = list * self.stride;
            let end = std::mem::replace(end, begin as u32) as usize;
            all.extend_from_slice(&self.keys[begin..end]);
        }
        all.sort_unstable();
    }

    fn widen(&mut self, stride: usize) {
        let mut wider = vec![0; self.ends.len() * stride];
        for (list, end) in self.ends.iter_mut().enumerate() {
            let from = &self.keys[list * self.stride..*end as usize];
            wider[list * stride..][..from.len()].copy_from_slice(from);
            *end = (list * stride + from.len()) as u32;
        }
        self.keys = wider;
        self.stride = stride;
    }
}

pub(crate) struct Adding<'l> {
    keys: &'l mut [u64],
    ends: &'l mut [u32],
}

impl Adding<'_> {
    #[inline(always)]
    pub(crate) fn push(&mut self, list: usize, key: u64) {
        let end = &mut self.ends[list];
        self.keys[*end as usize] = key;
        *end += 1;
    }
}

/// Up to sixteen keys are sorted by a network (Knuth, TAOCP 3, 5.3.4), which needs room for padding.
#[inline(always)]
fn sort(keys: &mut [u64], length: usize) {
    match length {
        0 | 1 => {}
        2 => (keys[0], keys[1]) = in_order(keys[0], keys[1]),
        _ if keys[..length].is_sorted() => {}
        3..=4 => sort_4(keys, length),
        5..=8 => sort_8(keys, length),
        9..=16 => sort_16(keys, length),
        _ => keys[..length].sort_unstable(),
    }
}

#[inline(always)]
fn in_order(one: u64, other: u64) -> (u64, u64) {
    let right = one <= other;
    (select_unpredictable(right, one, other), select_unpredictable(right, other, one))
}

/// A sorting network of `count` inputs for `length` keys, padded with the largest key.
macro_rules! network {
    ($count:literal, $keys:ident, $length:ident: $($low:literal $high:literal),*) => {
        let Some(keys) = $keys.first_chunk_mut::<$count>() else { return };
        let mut places = [u64::MAX; $count];
        for place in 0..$count {
            places[place] = select_unpredictable(place < $length, keys[place], u64::MAX);
        }
        $((places[$low], places[$high]) = in_order(places[$low], places[$high]);)*
        *keys = places;
    };
}

#[inline(always)]
#[rustfmt::skip]
fn sort_4(keys: &mut [u64], length: usize) {
    network!(4, keys, length:
        0 1, 2 3, 0 2, 1 3, 1 2
    );
}

#[inline(always)]
#[rustfmt::skip]
fn sort_8(keys: &mut [u64], length: usize) {
    network!(8, keys, length:
        0 1, 2 3, 4 5, 6 7, 0 2, 1 3, 4 6, 5 7, 1 2, 5 6, 0 4, 1 5, 2 6, 3 7, 2 4, 3 5, 1 2, 3 4, 5 6
    );
}

#[inline(never)]
#[rustfmt::skip]
fn sort_16(keys: &mut [u64], length: usize) {
    network!(16, keys, length:
        0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15, 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15, 1 2, 5
        6, 9 10, 13 14, 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15, 2 4, 3 5, 10 12, 11 13, 1 2, 3 4, 5 6,
        9 10, 11 12, 13 14, 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15, 4 8, 5 9, 6 10, 7 11, 2 4, 3 5, 6
        8, 7 9, 10 12, 11 13, 1 2, 3 4, 5 6, 7 8, 9 10, 11 12, 13 14
    );
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sorting_networks_sort_every_input() {
        // Zero-one principle (TAOCP 3, 5.3.4): a network that sorts all sequences of zeros and ones is correct.
        for bits in 0u32..1 << 16 {
            for length in 0..=16 {
                let keys = (0..length).map(|place| u64::from(bits >> place & 1));
                let mut sorted: Vec<u64> = keys.chain([7; 16]).collect();
                let mut wanted = sorted[..length].to_vec();
                wanted.sort_unstable();
                sort(&mut sorted, length);
                assert_eq!(sorted[..length], wanted);
            }
        }
    }

    #[test]
    fn many_lists_have_room_for_the_longest_and_not_for_all_keys() {
        let (places, lists) = ([1usize, 7, 7, 1, 7], 1 << 12);
        let mut many = Lists::new(lists);
        let keys = MANY / lists + 1;
        many.make_room(keys, places.into_iter());
        let mut adding = many.adding();
        (0u64..).zip(places).for_each(|(key, place)| adding.push(place, key));
        assert_eq!(many.keys.len(), lists * (32 + BETWEEN));
        assert_eq!(many.take_in_order(7), [1, 2, 4]);
    }

    proptest! {
        #[test]
        fn lists_stay_separate_and_ordered(
            pushed in prop::collection::vec((0usize..3, 0u64..1 << 40), 0..300),
        ) {
            let mut lists = Lists::new(3);
            let mut wanted = vec![Vec::new(); 3];
            for (count, (list, key)) in pushed.into_iter().enumerate() {
                lists.make_room(count + 1, iter::empty());
                lists.adding().push(list, key);
                wanted[list].push(key);
            }
            for (list, wanted) in wanted.iter_mut().enumerate() {
                wanted.sort_unstable();
                prop_assert_eq!(lists.is_empty(list), wanted.is_empty());
                prop_assert_eq!(lists.take_in_order(list), &wanted[..]);
                prop_assert!(lists.is_empty(list));
            }
        }

        #[test]
        fn all_lists_are_taken_in_order(keys in prop::collection::vec(any::<u64>(), 0..300)) {
            let (mut lists, mut all) = (Lists::new(3), Vec::new());
            lists.make_room(keys.len(), iter::empty());
            let mut adding = lists.adding();
            keys.iter().for_each(|key| adding.push((key % 3) as usize, *key));
            lists.take_all_in_order(&mut all);
            let mut wanted = keys;
            wanted.sort_unstable();
            prop_assert_eq!(all, wanted);
            prop_assert!((0..3).all(|list| lists.is_empty(list)));
        }
    }
}
