// SPDX-License-Identifier: Apache-2.0
//! Which fault a stretch of a run belongs to: the earliest one that is still in effect in it.
//!
//! One run with the faults and one without are all that is needed, so what is attributed adds up however many faults there
//! are. Something that recurs, a step or a phase, keeps the change that a fault brought: later occurrences attribute only
//! the difference from the one before.

use std::collections::BTreeMap;

use lightloom_units::SimTime;

use super::JudgedRun;

impl JudgedRun<'_> {
    /// When a fault of this run began to be in effect. `None` if it was there from the start, or never began.
    pub(super) fn began(&self, fault: usize) -> Option<SimTime> {
        let log = &self.log.faults[fault];
        log.mattered.or(log.at).filter(|_| !self.start.events[fault].from_start)
    }

    /// The fault to which a change between two instants belongs. First those count that began then, next those still in
    /// effect, then those that are over; among these the `likely` ones, and of them the earliest, or the last one that is
    /// over. `None` if none began by then.
    pub(super) fn culprit(
        &self,
        (from, to): (SimTime, SimTime),
        likely: &dyn Fn(usize) -> bool,
    ) -> Option<usize> {
        let began = |fault: usize| Some((fault, self.began(fault).filter(|at| *at <= to)?));
        let rank = |(fault, at): &(usize, SimTime)| {
            let is_over = self.log.faults[*fault].over() <= from;
            let state = if *at > from { 0 } else { 1 + u8::from(is_over) };
            let order = if is_over { u64::MAX - at.0 } else { at.0 };
            (state, !likely(*fault), order)
        };
        (0..self.log.faults.len()).filter_map(began).min_by_key(rank).map(|(fault, _)| fault)
    }
}

/// What occurrences of something took more than without faults, in `N` parts, and the faults to which that belongs.
#[derive(Default)]
pub(super) struct Levels<const N: usize>(BTreeMap<usize, [i64; N]>);

impl<const N: usize> Levels<N> {
    /// Another occurrence, with what it took more in all: the change belongs to `fault`. Returns the part of each fault.
    pub(super) fn next(
        &mut self,
        fault: Option<usize>,
        more: [i64; N],
    ) -> impl Iterator<Item = (usize, &[i64; N])> {
        if let Some(fault) = fault {
            let known = |part: usize| self.0.values().map(|level| level[part]).sum::<i64>();
            let change: [i64; N] = std::array::from_fn(|part| more[part] - known(part));
            let level = self.0.entry(fault).or_insert([0; N]);
            level.iter_mut().zip(change).for_each(|(level, change)| *level += change);
        }
        self.0.iter().map(|(fault, level)| (*fault, level))
    }
}
