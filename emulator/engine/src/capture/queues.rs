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

/// Histograms of the bytes that stand before each packet when it comes to an output port.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    /// By link: its class.
    classes: Arc<[u8]>,
    /// By class: packets that found an empty queue, which is most.
    empty: Vec<u64>,
    /// By class: the others; made when the first comes.
    waiting: Vec<Option<Box<Histogram<u64>>>>,
}

impl Queues {
    /// No packet seen, over links of these classes.
    pub(crate) fn new(classes: Vec<u8>) -> Self {
        let count = classes.iter().max().map_or(0, |class| usize::from(*class) + 1);
        Self { classes: classes.into(), empty: vec![0; count], waiting: vec![None; count] }
    }

    /// The class of a link; 0 where nothing is kept apart.
    pub(crate) fn class(&self, link: LinkId) -> u8 {
        self.classes.get(link.index()).copied().unwrap_or_default()
    }

    /// No packet seen, over a network of its own that has these links.
    pub(crate) fn local(&self, links: &[LinkId]) -> Self {
        let classes: Vec<u8> = links.iter().map(|link| self.class(*link)).collect();
        let none = vec![0; self.empty.len()];
        Self { classes: classes.into(), empty: none, waiting: vec![None; self.waiting.len()] }
    }

    /// Notes a packet that found `backlog` before it.
    #[inline]
    pub(crate) fn record(&mut self, link: LinkId, backlog: Bytes) {
        let Some(class) = self.classes.get(link.index()) else { return };
        let class = usize::from(*class);
        if backlog == Bytes::ZERO {
            self.empty[class] += 1;
        } else {
            self.waiting[class]
                .get_or_insert_with(|| Box::new(empty_histogram()))
                .saturating_record(backlog.0);
        }
    }

    /// What has come since they were `before` has come so many times more.
    pub(crate) fn leap(&mut self, before: &Self, times: u32) {
        let times = u64::from(times);
        for (class, empty) in self.empty.iter_mut().enumerate() {
            *empty += (*empty - before.empty[class]) * times;
            let Some(now) = &self.waiting[class] else { continue };
            let mut grown = now.clone();
            for bar in now.iter_recorded() {
                let value = bar.value_iterated_to();
                let known = before.waiting[class].as_ref().map_or(0, |seen| seen.count_at(value));
                grown.saturating_record_n(value, (bar.count_at_value() - known) * times);
            }
            self.waiting[class] = Some(grown);
        }
    }

    /// Everything that several parts have seen.
    #[must_use]
    pub fn merge<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut parts = parts.into_iter();
        let mut all = parts.next().cloned().unwrap_or_default();
        for part in parts {
            for (class, empty) in part.empty.iter().enumerate() {
                all.empty[class] += empty;
                if let Some(more) = &part.waiting[class] {
                    let sum = all.waiting[class].get_or_insert_with(|| Box::new(empty_histogram()));
                    sum.add(&**more).expect("all histograms have the same bounds");
                }
            }
        }
        all
    }

    /// The histogram of a class, empty queues included; nothing if no packet came.
    #[must_use]
    pub fn of_class(&self, class: usize) -> Option<Histogram<u64>> {
        let empty = *self.empty.get(class)?;
        let waiting = self.waiting[class].as_deref();
        if empty == 0 && waiting.is_none() {
            return None;
        }
        let mut all = waiting.cloned().unwrap_or_else(empty_histogram);
        all.saturating_record_n(0, empty);
        Some(all)
    }
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_BYTES, DIGITS).expect("the bounds are sound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_classes_stay_apart() {
        let mut one = Queues::new(vec![0, 1, 1]);
        let mut other = one.clone();
        for bytes in 0..100 {
            one.record(LinkId(0), Bytes(0));
            one.record(LinkId(1), Bytes(bytes));
            other.record(LinkId(2), Bytes(4_096 * bytes));
        }
        let all = Queues::merge([&one, &other]);
        assert_eq!(all.of_class(0).unwrap().max(), 0);
        let second = all.of_class(1).unwrap();
        assert_eq!((second.len(), second.value_at_quantile(0.5)), (200, 98));
        assert!(second.max().abs_diff(4_096 * 99) < 500, "three digits: {}", second.max());
        assert!(all.of_class(2).is_none());
    }

    #[test]
    fn what_comes_again_is_counted_as_often() {
        let come = |queues: &mut Queues| {
            for bytes in 0..50 {
                queues.record(LinkId(0), Bytes(4_096 * (bytes / 2)));
            }
        };
        let mut before = Queues::new(vec![0]);
        before.record(LinkId(0), Bytes(70_000));
        let mut leapt = before.clone();
        come(&mut leapt);
        let mut shown = leapt.clone();
        leapt.leap(&before, 3);
        (0..3).for_each(|_| come(&mut shown));
        assert_eq!(leapt.of_class(0).unwrap(), shown.of_class(0).unwrap());
    }
}
