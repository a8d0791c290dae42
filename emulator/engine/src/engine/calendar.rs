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
    first: [u16; DAYS],
    entries: Box<[CalendarEntry]>,
    /// Smallest key, or [`u64::MAX`].
    earliest: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct CalendarEntry {
    /// Time after the start of the window, and the place in the lower 16 bits.
    key: u64,
    next: u16,
}

impl Calendar {
    pub(crate) fn new(places: usize) -> Self {
        Self {
            span: SimSpan { start: 0, end: 0 },
            day: 0,
            filled: 0,
            first: [NONE; DAYS],
            entries: vec![CalendarEntry::default(); places].into_boxed_slice(),
            earliest: u64::MAX,
        }
    }

    pub(crate) fn begin(&mut self, span: SimSpan) {
        let bits = u64::BITS - (span.end - span.start).leading_zeros();
        self.day = bits.saturating_sub(DAYS.ilog2());
        (self.span, self.filled, self.earliest) = (span, 0, u64::MAX);
        self.first = [NONE; DAYS];
    }

    /// The place must not be in the calendar, and the time must not be before the window.
    #[inline(always)]
    pub(crate) fn enter(&mut self, place: usize, time: u64) {
        if time >= self.span.end {
            return;
        }
        let after = time - self.span.start;
        let day = (after >> self.day) as usize % DAYS;
        let key = after << 16 | place as u64;
        self.entries[place] = CalendarEntry { key, next: self.first[day] };
        self.first[day] = place as u16;
        self.filled |= 1 << day;
        self.earliest = self.earliest.min(key);
    }

    /// Removes the earliest entry and returns its place, if its time is at most `after` the start of the window.
    #[inline(always)]
    pub(crate) fn take_until(&mut self, after: u64) -> Option<usize> {
        if self.earliest >> 16 > after {
            return None;
        }
        let place = self.earliest as u16;
        let day = self.filled.trailing_zeros() as usize % DAYS;
        let rest = self.entries[usize::from(place)].next;
        if self.first[day] == place {
            self.first[day] = rest;
            self.filled &= if rest == NONE { self.filled - 1 } else { u64::MAX };
        } else {
            self.unlink(day, place);
        }
        self.find_earliest();
        Some(usize::from(place))
    }

    fn unlink(&mut self, day: usize, place: u16) {
        let mut before = usize::from(self.first[day]);
        while self.entries[before].next != place {
            before = usize::from(self.entries[before].next);
        }
        self.entries[before].next = self.entries[usize::from(place)].next;
    }

    #[inline(always)]
    fn find_earliest(&mut self) {
        let (mut earliest, mut place) = (u64::MAX, NONE);
        if self.filled != 0 {
            place = self.first[self.filled.trailing_zeros() as usize % DAYS];
        }
        while place != NONE {
            let CalendarEntry { key, next } = self.entries[usize::from(place)];
            (earliest, place) = (earliest.min(key), next);
        }
        self.earliest = earliest;
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
                if takes && least < u64::MAX {
                    let first = times.iter().position(|time| *time == least);
                    if least > now {
                        prop_assert_eq!(calendar.take_until(now - 1_000), None);
                    }
                    prop_assert_eq!(calendar.take_until(length), first);
                    (times[first.unwrap()], now) = (u64::MAX, least);
                } else if takes {
                    prop_assert_eq!(calendar.take_until(length), None);
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
