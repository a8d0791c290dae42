// SPDX-License-Identifier: Apache-2.0
//! What packets find in the queues before links: one histogram (HdrHistogram) for each class of links.

use std::sync::Arc;

use hdrhistogram::Histogram;
use lightloom_units::Bytes;

use crate::engine::LinkId;

/// Largest backlog that is kept apart, in bytes; larger ones count as this.
const MOST_BYTES: u64 = 1 << 32;
/// Digits that are kept of a backlog.
const DIGITS: u8 = 3;
/// A histogram of three digits keeps values apart up to two of these, then half of what it kept apart before.
const HALF_BITS: u32 = 10;

/// Histograms of the bytes that stand before each packet when it comes to an output port.
#[derive(Clone, Debug, Default)]
pub struct QueueHistograms {
    /// By link: its class.
    classes: Arc<[u8]>,
    /// How many classes there are.
    count: usize,
    /// Packets by bar of the histogram and class, as many bars as were needed.
    packets: Vec<u64>,
}

impl QueueHistograms {
    /// No packet seen, over links of these classes.
    pub(crate) fn new(classes: Vec<u8>) -> Self {
        let count = classes.iter().max().map_or(0, |class| usize::from(*class) + 1);
        Self { classes: classes.into(), count, packets: Vec::new() }
    }

    /// The class of a link; 0 where nothing is kept apart.
    pub(crate) fn class(&self, link: LinkId) -> u8 {
        self.classes.get(link.index()).copied().unwrap_or_default()
    }

    /// No packet seen, over a network of its own that has these links.
    pub(crate) fn local(&self, links: &[LinkId]) -> Self {
        let classes: Vec<u8> = links.iter().map(|link| self.class(*link)).collect();
        Self { classes: classes.into(), count: self.count, packets: Vec::new() }
    }

    /// Notes a packet that found `backlog` before it.
    #[inline]
    pub(crate) fn record(&mut self, link: LinkId, backlog: Bytes) {
        let Some(class) = self.classes.get(link.index()) else { return };
        let at = bar_of(backlog) * self.count + usize::from(*class);
        match self.packets.get_mut(at) {
            Some(packets) => *packets += 1,
            None => count_first(&mut self.packets, at),
        }
    }

    /// What has come since they were `before` has come so many times more.
    pub(crate) fn leap(&mut self, before: &Self, times: u32) {
        let known = before.packets.iter().copied().chain(std::iter::repeat(0));
        for (packets, known) in self.packets.iter_mut().zip(known) {
            *packets += (*packets - known) * u64::from(times);
        }
    }

    /// Everything that several parts have seen.
    #[must_use]
    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().cloned().unwrap_or_default();
        for part in parts {
            all.packets.resize(all.packets.len().max(part.packets.len()), 0);
            all.packets.iter_mut().zip(&part.packets).for_each(|(packets, more)| *packets += more);
        }
        all
    }

    /// The histogram of a class, empty queues included; nothing if no packet came.
    #[must_use]
    pub fn of_class(&self, class: usize) -> Option<Histogram<u64>> {
        let of_class = self.packets.iter().skip(class).step_by(self.count.max(1));
        let mut bars = of_class.enumerate().filter(|(_, packets)| **packets > 0).peekable();
        bars.peek().filter(|_| class < self.count)?;
        let mut all =
            Histogram::new_with_bounds(1, MOST_BYTES, DIGITS).expect("the bounds are sound");
        for (bar, packets) in bars {
            all.saturating_record_n(least_in(bar), *packets);
        }
        Some(all)
    }
}

/// The bar of a backlog in a histogram of [`DIGITS`] digits.
#[inline]
fn bar_of(backlog: Bytes) -> usize {
    let bytes = backlog.0.min(MOST_BYTES);
    let dropped = u64::BITS - 1 - HALF_BITS - (bytes | ((2 << HALF_BITS) - 1)).leading_zeros();
    ((u64::from(dropped) << HALF_BITS) + (bytes >> dropped)) as usize
}

/// The least backlog of a bar.
fn least_in(bar: usize) -> u64 {
    let dropped = (bar >> HALF_BITS).saturating_sub(1);
    ((bar - (dropped << HALF_BITS)) as u64) << dropped
}

#[cold]
fn count_first(packets: &mut Vec<u64>, at: usize) {
    packets.resize(at, 0);
    packets.push(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_classes_stay_apart() {
        let mut one = QueueHistograms::new(vec![0, 1, 1]);
        let mut other = one.clone();
        for bytes in 0..100 {
            one.record(LinkId(0), Bytes(0));
            one.record(LinkId(1), Bytes(bytes));
            other.record(LinkId(2), Bytes(4_096 * bytes));
        }
        let all = QueueHistograms::merge([&one, &other]);
        assert_eq!(all.of_class(0).unwrap().max(), 0);
        let second = all.of_class(1).unwrap();
        assert_eq!((second.len(), second.value_at_quantile(0.5)), (200, 98));
        assert!(second.max().abs_diff(4_096 * 99) < 500, "three digits: {}", second.max());
        assert!(all.of_class(2).is_none());
    }

    #[test]
    fn a_bar_holds_what_a_histogram_of_three_digits_does_not_keep_apart() {
        let histogram = Histogram::<u64>::new_with_bounds(1, MOST_BYTES, DIGITS).unwrap();
        let near = |bytes: u64| [bytes.saturating_sub(1), bytes, bytes + 1];
        let bytes = (0..33).flat_map(|bit| near(1 << bit)).chain((0..5_000).map(|n| n * 857_431));
        for bytes in bytes.filter(|bytes| *bytes <= MOST_BYTES) {
            let least = least_in(bar_of(Bytes(bytes)));
            assert_eq!(least, histogram.lowest_equivalent(bytes), "{bytes}");
        }
    }

    #[test]
    fn what_comes_again_is_counted_as_often() {
        let come = |queues: &mut QueueHistograms| {
            for bytes in 0..50 {
                queues.record(LinkId(0), Bytes(4_096 * (bytes / 2)));
            }
        };
        let mut before = QueueHistograms::new(vec![0]);
        before.record(LinkId(0), Bytes(70_000));
        let mut leapt = before.clone();
        come(&mut leapt);
        let mut shown = leapt.clone();
        leapt.leap(&before, 3);
        (0..3).for_each(|_| come(&mut shown));
        assert_eq!(leapt.of_class(0).unwrap(), shown.of_class(0).unwrap());
    }
}
