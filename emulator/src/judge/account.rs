// SPDX-License-Identifier: Apache-2.0
//! Attributes delays to faults. The attributed delays add up to the difference from the baseline.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lightloom_units::SimTime;

use super::JudgedRun;

impl JudgedRun<'_> {
    pub(super) fn began(&self, fault: usize) -> Option<SimTime> {
        let log = &self.log.faults[fault];
        log.mattered.or(log.at).filter(|_| !self.start.events[fault].from_start)
    }

    fn is_over(&self, fault: usize, at: SimTime) -> bool {
        self.log.faults[fault].over() <= at
    }

    /// Returns the fault that most likely caused a change in `from..to`. Prefers `able` faults, then faults that began
    /// in the interval, then active ones, then `likely` ones. Among equals, chooses the earliest fault, or the latest
    /// if all of them are over.
    pub(super) fn culprit(
        &self,
        from: SimTime,
        to: SimTime,
        able: &dyn Fn(usize) -> bool,
        likely: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let began = (0..self.log.faults.len())
            .filter_map(|fault| Some((fault, self.began(fault).filter(|at| *at <= to)?)));
        let culprit = began.min_by_key(|(fault, at)| {
            let is_over = self.is_over(*fault, from);
            let state = if *at > from { 0 } else { 1 + u8::from(is_over) };
            let order = if is_over { u64::MAX - at.0 } else { at.0 };
            (!able(*fault), state, !likely(*fault), order)
        });
        culprit.map(|(fault, _)| fault)
    }
}

#[derive(Default)]
pub(super) struct Levels<const N: usize>(BTreeMap<usize, [i64; N]>);

impl<const N: usize> Levels<N> {
    pub(super) fn next(
        &mut self,
        ran: &JudgedRun<'_>,
        from: SimTime,
        culprit: Option<usize>,
        more: [i64; N],
    ) -> impl Iterator<Item = (usize, &[i64; N])> {
        let mut faults: Vec<usize> = self.0.keys().copied().collect();
        faults.sort_by_key(|fault| Reverse((ran.is_over(*fault, from), ran.began(*fault))));
        for (part, more) in more.into_iter().enumerate() {
            let mut change = more - self.0.values().map(|level| level[part]).sum::<i64>();
            for fault in &faults {
                let level = &mut self.0.get_mut(fault).expect("the key exists")[part];
                let less = (-change).clamp(0, (*level).max(0));
                *level -= less;
                change += less;
            }
            if let Some(culprit) = culprit {
                self.0.entry(culprit).or_insert([0; N])[part] += change;
            }
        }
        self.0.iter().map(|(fault, level)| (*fault, level))
    }
}
