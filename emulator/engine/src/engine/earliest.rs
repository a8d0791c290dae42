// SPDX-License-Identifier: Apache-2.0
//! A tournament tree (Knuth, TAOCP 3, 5.2.3) that finds the minimum of times that change individually.

/// [`u64::MAX`] means never.
#[derive(Clone, Debug)]
pub(crate) struct Earliest {
    /// Leaves are in the second half; each inner node is the minimum of its children.
    times: Vec<u64>,
}

impl Earliest {
    pub(crate) fn new(places: usize) -> Self {
        Self { times: vec![u64::MAX; 2 * places.next_power_of_two()] }
    }

    fn width(&self) -> usize {
        self.times.len() / 2
    }

    pub(crate) fn take(&mut self, times: &[u64]) {
        let width = self.width();
        self.times[width..][..times.len()].copy_from_slice(times);
        for at in (1..width).rev() {
            self.times[at] = self.times[2 * at].min(self.times[2 * at + 1]);
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, place: usize, time: u64) {
        let mut at = self.width() + place;
        self.times[at] = time;
        while at > 1 {
            let earlier = self.times[at].min(self.times[at ^ 1]);
            at /= 2;
            if self.times[at] == earlier {
                return;
            }
            self.times[at] = earlier;
        }
    }

    #[inline]
    pub(crate) fn time(&self) -> u64 {
        self.times[1]
    }

    #[inline]
    pub(crate) fn place(&self) -> usize {
        let (mut at, earliest) = (1, self.time());
        while at < self.width() {
            at *= 2;
            at += usize::from(self.times[at] != earliest);
        }
        at - self.width()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn earliest_is_the_first_of_equal_minima(
            begin in prop::collection::vec(0u64..9, 1..20),
            changes in prop::collection::vec((0usize..20, 0u64..9), 0..40),
        ) {
            let mut times = begin;
            let mut earliest = Earliest::new(times.len());
            earliest.take(&times);
            for (place, time) in changes {
                let place = place % times.len();
                times[place] = time;
                earliest.set(place, time);
                let least = *times.iter().min().unwrap();
                prop_assert_eq!(earliest.time(), least);
                prop_assert_eq!(earliest.place(), times.iter().position(|at| *at == least).unwrap());
            }
        }
    }
}
