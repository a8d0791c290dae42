// SPDX-License-Identifier: Apache-2.0
//! Histograms (HdrHistogram) of the backlogs that packets meet at output ports, one per link class.

use std::sync::Arc;

use hdrhistogram::Histogram;
use lightloom_units::Bytes;

use crate::engine::LinkId;

const MOST_BYTES: u64 = 1 << 32;
const DIGITS: u8 = 3;
/// Log2 of half the linear range. Values up to 2¹¹ are exact, and larger values have three significant digits.
const HALF_BITS: u32 = 10;

#[derive(Clone, Debug, Default)]
pub struct QueueHistograms {
    classes: Arc<[u8]>,
    bars: Vec<Vec<u64>>,
}

impl QueueHistograms {
    pub(crate) fn new(classes: Vec<u8>) -> Self {
        let count = classes.iter().max().map_or(0, |class| usize::from(*class) + 1);
        Self { classes: classes.into(), bars: vec![Vec::new(); count] }
    }

    pub(crate) fn class(&self, link: LinkId) -> u8 {
        self.classes.get(link.index()).copied().unwrap_or_default()
    }

    pub(crate) fn local(&self, links: &[LinkId]) -> Self {
        let classes: Vec<u8> = links.iter().map(|link| self.class(*link)).collect();
        Self { classes: classes.into(), bars: vec![Vec::new(); self.bars.len()] }
    }

    #[inline(always)]
    pub(crate) fn recorder(&mut self, link: LinkId) -> impl FnMut(Bytes) {
        let class = self.classes.get(link.index());
        let mut bars = class.and_then(|class| self.bars.get_mut(usize::from(*class)));
        move |backlog| {
            let Some(bars) = &mut bars else { return };
            match bars.get_mut(bar_of(backlog)) {
                Some(packets) => *packets += 1,
                None => count_first(bars, backlog),
            }
        }
    }

    pub(crate) fn leap(&mut self, before: &Self, times: u32) {
        for (bars, before) in self.bars.iter_mut().zip(&before.bars) {
            let known = before.iter().copied().chain(std::iter::repeat(0));
            for (packets, known) in bars.iter_mut().zip(known) {
                *packets += (*packets - known) * u64::from(times);
            }
        }
    }

    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().cloned().unwrap_or_default();
        for (bars, more) in parts.flat_map(|part| (0..).zip(&part.bars)) {
            let bars: &mut Vec<u64> = &mut all.bars[bars];
            bars.resize(bars.len().max(more.len()), 0);
            bars.iter_mut().zip(more).for_each(|(packets, more)| *packets += more);
        }
        all
    }

    /// Includes packets that met an empty queue. `None` if no packet arrived.
    pub fn of_class(&self, class: usize) -> Option<Histogram<u64>> {
        let bars = self.bars.get(class)?.iter().enumerate();
        let mut bars = bars.filter(|(_, packets)| **packets > 0).peekable();
        bars.peek()?;
        let mut all =
            Histogram::new_with_bounds(1, MOST_BYTES, DIGITS).expect("the bounds are sound");
        for (bar, packets) in bars {
            all.saturating_record_n(least_in(bar), *packets);
        }
        Some(all)
    }
}

#[inline(always)]
fn bar_of(backlog: Bytes) -> usize {
    let bytes = backlog.0;
    let dropped = u64::BITS - 1 - HALF_BITS - (bytes | ((2 << HALF_BITS) - 1)).leading_zeros();
    ((u64::from(dropped) << HALF_BITS) + (bytes >> dropped)) as usize
}

fn least_in(bar: usize) -> u64 {
    let dropped = (bar >> HALF_BITS).saturating_sub(1);
    ((bar - (dropped << HALF_BITS)) as u64) << dropped
}

#[cold]
fn count_first(bars: &mut Vec<u64>, backlog: Bytes) {
    let bar = bar_of(backlog.min(Bytes(MOST_BYTES)));
    bars.resize(bars.len().max(bar + 1), 0);
    bars[bar] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_histograms_add_up_and_keep_classes_separate() {
        let mut one = QueueHistograms::new(vec![0, 1, 1]);
        let mut other = one.clone();
        for bytes in 0..100 {
            one.recorder(LinkId(0))(Bytes(0));
            one.recorder(LinkId(1))(Bytes(bytes));
            other.recorder(LinkId(2))(Bytes(4_096 * bytes));
        }
        let all = QueueHistograms::merge([&one, &other]);
        assert_eq!(all.of_class(0).unwrap().max(), 0);
        let second = all.of_class(1).unwrap();
        assert_eq!((second.len(), second.value_at_quantile(0.5)), (200, 98));
        assert!(second.max().abs_diff(4_096 * 99) < 500, "three digits: {}", second.max());
        assert!(all.of_class(2).is_none());
    }

    #[test]
    fn histogram_bars_match_three_significant_digits() {
        let histogram = Histogram::<u64>::new_with_bounds(1, MOST_BYTES, DIGITS).unwrap();
        let near = |bytes: u64| [bytes.saturating_sub(1), bytes, bytes + 1];
        let bytes = (0..33).flat_map(|bit| near(1 << bit)).chain((0..5_000).map(|n| n * 857_431));
        for bytes in bytes.filter(|bytes| *bytes <= MOST_BYTES) {
            let least = least_in(bar_of(Bytes(bytes)));
            assert_eq!(least, histogram.lowest_equivalent(bytes), "{bytes}");
        }
    }

    #[test]
    fn repeated_stretch_counts_each_repetition() {
        let come = |queues: &mut QueueHistograms| {
            for bytes in 0..50 {
                queues.recorder(LinkId(0))(Bytes(4_096 * (bytes / 2)));
            }
        };
        let mut before = QueueHistograms::new(vec![0]);
        before.recorder(LinkId(0))(Bytes(70_000));
        let mut leapt = before.clone();
        come(&mut leapt);
        let mut shown = leapt.clone();
        leapt.leap(&before, 3);
        (0..3).for_each(|_| come(&mut shown));
        assert_eq!(leapt.of_class(0).unwrap(), shown.of_class(0).unwrap());
    }
}
