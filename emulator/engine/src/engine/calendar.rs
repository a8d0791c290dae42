// SPDX-License-Identifier: Apache-2.0
//! A calendar queue (Brown, CACM 31(10), 1988) of the transmissions that end at a switch's ports during one window.

use super::shard::SimSpan;

const DAYS: usize = 64;
const NONE: u16 = u16::MAX;

/// Ends after the window are not entered.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    span: SimSpan,
    /// Log2 of the length of a day.
    day: u32,
    /// One bit for each day with entries.
    filled: u64,
    /// The first place of each day, and the next place of the same day for each place.
    first: [u16; DAYS],
    next: Box<[u16]>,
    /// Entries by place: time in the window, and place in the lower 16 bits.
    entries: Box<[u64]>,
    earliest: u64,
}

impl Calendar {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            span: SimSpan { start: 0, end: 0 },
            day: 0,
            filled: 0,
            first: [NONE; DAYS],
            next: vec![NONE; places].into_boxed_slice(),
            entries: vec![0; places].into_boxed_slice(),
            earliest: u64::MAX,
        }
    }

    pub(crate) fn begin(&mut self, span: SimSpan) {
        let bits = u64::BITS - (span.end - span.start).leading_zeros();
        self.day = bits.saturating_sub(DAYS.ilog2());
        (self.span, self.filled, self.earliest) = (span, 0, u64::MAX);
    }

    /// The place must not be in the calendar, and the time must not be before the earliest entry that was taken.
    #[inline]
    pub(crate) fn enter(&mut self, place: usize, time: u64) {
        if time >= self.span.end {
            return;
        }
        let offset = time - self.span.start;
        let day = (offset >> self.day) as usize % DAYS;
        let is_first = self.filled & (1 << day) == 0;
        self.next[place] = if is_first { NONE } else { self.first[day] };
        self.first[day] = place as u16;
        self.entries[place] = offset << 16 | place as u64;
        self.filled |= 1 << day;
        self.earliest = self.earliest.min(self.entries[place]);
    }

    /// After the window if the calendar is empty.
    #[inline]
    pub(crate) fn time(&self) -> u64 {
        self.span.start + (self.earliest >> 16)
    }

    /// Removes the earliest entry and returns its place.
    #[inline]
    pub(crate) fn take(&mut self) -> usize {
        let place = self.earliest as u16;
        let day = self.filled.trailing_zeros() as usize % DAYS;
        let rest = self.next[usize::from(place)];
        if self.first[day] == place {
            self.first[day] = rest;
            if rest == NONE {
                self.filled &= self.filled - 1;
            }
        } else {
            let mut before = usize::from(self.first[day]);
            while self.next[before] != place {
                before = usize::from(self.next[before]);
            }
            self.next[before] = rest;
        }
        self.find_earliest();
        usize::from(place)
    }

    #[inline]
    fn find_earliest(&mut self) {
        self.earliest = u64::MAX;
        if self.filled == 0 {
            return;
        }
        let mut place = self.first[self.filled.trailing_zeros() as usize % DAYS];
        while place != NONE {
            self.earliest = self.earliest.min(self.entries[usize::from(place)]);
            place = self.next[usize::from(place)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn calendar_returns_the_first_of_equal_minima(
            length in 1u64..1_000,
            steps in prop::collection::vec((0usize..20, 0u64..300, any::<bool>()), 1..80),
        ) {
            let mut calendar = Calendar::new(20);
            calendar.begin(SimSpan { start: 1_000, end: 1_000 + length });
            let mut times = [u64::MAX; 20];
            let mut now = 1_000;
            for (place, later, takes) in steps {
                let least = times.iter().copied().min().unwrap();
                prop_assert_eq!(calendar.time().min(3_000), least.min(3_000));
                if takes && least != u64::MAX {
                    let first = times.iter().position(|time| *time == least).unwrap();
                    prop_assert_eq!(calendar.take(), first);
                    (times[first], now) = (u64::MAX, least);
                } else if times[place] == u64::MAX {
                    calendar.enter(place, now + later);
                    if now + later < 1_000 + length {
                        times[place] = now + later;
                    }
                }
            }
        }
    }
}
