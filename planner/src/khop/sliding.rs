// SPDX-License-Identifier: Apache-2.0
//! Sets of chains along the columns of ToRs: the dynamic program behind the placement.
//!
//! A column is one ToR, a slot one sub-line. In every slot chains follow each other, and the j-th
//! chains of all slots form the j-th set. The program goes up the columns and decides for each which
//! slots use their node there. A column that all slots use for the same set costs nothing; one that
//! only some use costs a crossing hop for every stretch of them around the inner ring of the set.
//! A slot may be ahead of the others by up to a whole chain, so a broken node does not hold up the
//! other sub-lines.
//!
//! Every column of progress earns a price, which the caller chooses: a low one finds cheap sets that take
//! more columns, a high one finds more sets. The states kept at a column are the best ones by cost less earnings.

use std::ops::Range;

use rustc_hash::FxHashMap;

/// The columns as the sets see them.
pub(super) trait Grid: Sync {
    /// K.
    fn reach(&self) -> usize;
    /// Bit i: the node of slot i in this column can be used.
    fn usable(&self, column: usize) -> u64;
    /// Whether the node of `slot` in `column` has a working fibre from `back` columns before.
    fn joined(&self, column: usize, slot: usize, back: usize) -> bool;
}

/// Sets to find one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// m: nodes of a chain.
    pub(super) length: usize,
    /// Whole sets: one chain in every slot.
    pub(super) sets: usize,
    /// Chains of a last set that is not whole.
    pub(super) rest: usize,
}

/// What a column of progress earns: `before` up to column `until`, `after` from there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    pub(super) before: f32,
    pub(super) until: usize,
    pub(super) after: f32,
}

impl Price {
    pub(super) fn even(price: f32) -> Self {
        Self { before: price, until: usize::MAX, after: price }
    }
    fn at(self, column: usize) -> f32 {
        if column < self.until { self.before } else { self.after }
    }
}

/// One chain: its slot, and its columns in rising order.
pub(super) type SlotChain = (usize, Vec<usize>);

/// Sets found.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The chains of every set; the last may have fewer.
    pub(super) sets: Vec<Vec<SlotChain>>,
    /// Crossing hops, by the program's count.
    pub(super) cost: u32,
    /// The first column after the last set.
    pub(super) end: usize,
    /// Whether all that was wanted was found.
    pub(super) complete: bool,
}

/// Crossing hops of one rank around a ring of `slots` groups, where `used` of them are under one ToR.
pub(super) fn stretches(used: u64, slots: usize) -> u32 {
    let full = u64::MAX >> (64 - slots);
    if used == full {
        return 0;
    }
    let turned = (used << 1 | used >> (slots - 1)) & full;
    (used & !turned).count_ones()
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key<const P: usize> {
    /// Nodes of each slot since the oldest open set began.
    placed: [u16; P],
    /// Columns since the last node of each open chain.
    idle: [u8; P],
    /// Bit i: the last hop of slot i rules out an equal one.
    long: u64,
}

#[derive(Clone, Copy)]
struct State<const P: usize> {
    key: Key<P>,
    cost: u32,
    /// Of the cost, what the open sets have.
    open: u32,
    sets: u32,
    trail: u32,
    score: f32,
}

/// A state reached, with the slots that used the column and those that gave up their open chain.
type Reached<const P: usize> = (State<P>, u64, u64);

struct Step {
    before: u32,
    column: u32,
    used: u64,
    dropped: u64,
}

const NO_TRAIL: u32 = u32::MAX;

/// The program for `P` slots at most.
pub(super) struct Search<'a, G, const P: usize> {
    pub(super) grid: &'a G,
    pub(super) slots: usize,
    pub(super) price: Price,
    /// States kept at a column.
    pub(super) width: usize,
}

/// The states of one column while they are collected.
struct Layer<const P: usize> {
    reached: Vec<Reached<P>>,
    index: FxHashMap<Key<P>, usize>,
}

impl<G: Grid, const P: usize> Search<'_, G, P> {
    /// Finds what is `wanted` in the first of `columns`, or the most sets where that is not possible.
    pub(super) fn run(&self, columns: Range<usize>, wanted: Wanted) -> Found {
        let key = Key { placed: [0; P], idle: [0; P], long: 0 };
        let mut states =
            vec![State { key, cost: 0, open: 0, sets: 0, trail: NO_TRAIL, score: 0.0 }];
        let mut steps: Vec<Step> = Vec::new();
        let mut layer = Layer { reached: Vec::new(), index: FxHashMap::default() };
        let begin = columns.start;
        for column in columns {
            let done = states.iter().filter(|state| self.is_complete(state, wanted));
            if let Some(best) = done.min_by_key(|state| state.cost) {
                return self.trace(&steps, best, wanted, begin);
            }
            for state in &states {
                self.expand(state, column, wanted.length, &mut layer);
            }
            layer.index.clear();
            self.thin(&mut layer.reached, self.price.at(column) * wanted.length as f32);
            states.clear();
            for (mut state, used, dropped) in layer.reached.drain(..) {
                if used | dropped != 0 {
                    let column = u32::try_from(column - begin).expect("bounded by the nodes");
                    steps.push(Step { before: state.trail, column, used, dropped });
                    state.trail = u32::try_from(steps.len() - 1).expect("bounded");
                }
                states.push(state);
            }
        }
        self.last(&steps, &states, wanted, begin)
    }

    /// The best state when the columns have come to their end.
    fn last(&self, steps: &[Step], states: &[State<P>], wanted: Wanted, begin: usize) -> Found {
        let rank = |state: &&State<P>| {
            let complete = self.is_complete(state, wanted);
            (!complete, if complete { 0 } else { u32::MAX - state.sets }, state.cost)
        };
        let best = states.iter().min_by_key(rank);
        best.map_or_else(Found::default, |best| self.trace(steps, best, wanted, begin))
    }

    fn is_complete(&self, state: &State<P>, wanted: Wanted) -> bool {
        let sets = state.sets as usize;
        let in_last = || {
            let placed = &state.key.placed[..self.slots];
            placed.iter().filter(|placed| usize::from(**placed) >= wanted.length).count()
        };
        sets > wanted.sets || sets == wanted.sets && (wanted.rest == 0 || in_last() >= wanted.rest)
    }

    /// Keeps the best states; one that is behind by two sets is of no more use.
    fn thin(&self, reached: &mut Vec<Reached<P>>, set_price: f32) {
        let best = reached.iter().map(|state| state.0.score).fold(f32::INFINITY, f32::min);
        reached.retain(|state| state.0.score <= best + 2.0 * set_price);
        if reached.len() > self.width {
            reached.select_nth_unstable_by(self.width - 1, |a, b| a.0.score.total_cmp(&b.0.score));
            reached.truncate(self.width);
        }
    }

    /// Every way to go on from `state` at `column`.
    fn expand(&self, state: &State<P>, column: usize, length: usize, layer: &mut Layer<P>) {
        let usable = self.grid.usable(column);
        let (mut can, mut forced) = (0_u64, 0_u64);
        for slot in 0..self.slots {
            let bit = 1 << slot;
            let inside = usize::from(state.key.placed[slot]) % length != 0;
            if usable & bit != 0
                && usize::from(state.key.placed[slot]) < 2 * length
                && (!inside || self.goes_on(&state.key, column, slot))
            {
                can |= bit;
            }
            if inside && usize::from(state.key.idle[slot]) + 1 >= self.grid.reach() {
                forced |= bit;
            }
        }
        let dropped = forced & !can;
        let mut state = *state;
        if dropped != 0 {
            self.give_up(&mut state, dropped, length);
            can |= dropped & usable;
        }
        let forced = forced & !dropped;
        self.take(&state, column, length, forced, dropped, layer);
        let mut above = None;
        let mut before = forced;
        while let Some(level) = self.level_above(&state, can, above) {
            let fits = |slot: &usize| can >> slot & 1 == 1 && state.key.placed[*slot] <= level;
            let used = forced | (0..self.slots).filter(fits).fold(0, |used, slot| used | 1 << slot);
            if used != before {
                self.take(&state, column, length, used, dropped, layer);
            }
            (before, above) = (used, Some(level));
        }
    }

    fn goes_on(&self, key: &Key<P>, column: usize, slot: usize) -> bool {
        let (reach, back) = (self.grid.reach(), usize::from(key.idle[slot]) + 1);
        let excluded = reach % 2 == 1 && back == reach && key.long >> slot & 1 == 1;
        back <= reach && !excluded && self.grid.joined(column, slot, back)
    }

    /// The least progress above `above` of a slot that can use the column.
    fn level_above(&self, state: &State<P>, can: u64, above: Option<u16>) -> Option<u16> {
        let slots = (0..self.slots).filter(|slot| can >> slot & 1 == 1);
        let levels = slots.map(|slot| state.key.placed[slot]);
        levels.filter(|level| above.is_none_or(|above| *level > above)).min()
    }

    /// The open chains of `slots` cannot go on: their nodes are free again, and the others of the set
    /// cross at each. Where no slot has a node left, the set costs nothing.
    fn give_up(&self, state: &mut State<P>, slots: u64, length: usize) {
        let mut lost = 0;
        for slot in (0..self.slots).filter(|slot| slots >> slot & 1 == 1) {
            let inside = state.key.placed[slot] % u16::try_from(length).expect("a chain is short");
            lost += u32::from(inside);
            state.key.placed[slot] -= inside;
            state.key.idle[slot] = 0;
            state.key.long &= !(1 << slot);
        }
        if state.key.placed[..self.slots].iter().all(|placed| *placed == 0) {
            state.cost -= state.open;
            state.open = 0;
        } else {
            state.cost += lost;
            state.open += lost;
        }
    }

    /// The slots in `used` use the column.
    fn take(
        &self,
        state: &State<P>,
        column: usize,
        length: usize,
        used: u64,
        dropped: u64,
        layer: &mut Layer<P>,
    ) {
        let mut next = *state;
        let (mut first, mut second) = (0_u64, 0_u64);
        for slot in 0..self.slots {
            let placed = usize::from(state.key.placed[slot]);
            let inside = placed % length;
            if used >> slot & 1 == 0 {
                next.key.idle[slot] += u8::from(inside > 0);
                continue;
            }
            *(if placed < length { &mut first } else { &mut second }) |= 1 << slot;
            let back = usize::from(state.key.idle[slot]) + 1;
            let reach = self.grid.reach();
            let long = reach % 2 == 1 && back == reach && inside > 0 && inside + 1 < length;
            next.key.long = next.key.long & !(1 << slot) | u64::from(long) << slot;
            next.key.placed[slot] += 1;
            next.key.idle[slot] = 0;
        }
        let cost = stretches(first, self.slots) + stretches(second, self.slots);
        next.cost += cost;
        next.open += cost;
        let whole = |placed: &u16| usize::from(*placed) >= length;
        if next.key.placed[..self.slots].iter().all(whole) {
            for placed in &mut next.key.placed[..self.slots] {
                *placed -= u16::try_from(length).expect("a chain is short");
            }
            next.sets += 1;
            next.open = 0;
        }
        let placed: u32 = next.key.placed[..self.slots].iter().map(|n| u32::from(*n)).sum();
        let progress = next.sets as f32 * length as f32 + placed as f32 / self.slots as f32;
        next.score = next.cost as f32 - self.price.at(column) * progress;
        layer.keep((next, used, dropped));
    }

    /// The sets of `state`.
    fn trace(&self, steps: &[Step], state: &State<P>, wanted: Wanted, begin: usize) -> Found {
        let mut order = Vec::new();
        let mut trail = state.trail;
        while let Some(step) = steps.get(trail as usize) {
            order.push(step);
            trail = step.before;
        }
        let m = wanted.length;
        let mut lines: Vec<Vec<usize>> = vec![Vec::new(); self.slots];
        for step in order.into_iter().rev() {
            for (slot, line) in lines.iter_mut().enumerate() {
                if step.dropped >> slot & 1 == 1 {
                    line.truncate(line.len() / m * m);
                }
                if step.used >> slot & 1 == 1 {
                    line.push(begin + step.column as usize);
                }
            }
        }
        let complete = self.is_complete(state, wanted);
        let sets = (state.sets as usize).min(wanted.sets);
        let chains =
            |set: usize, line: &Vec<usize>| line.get(set * m..(set + 1) * m).map(<[usize]>::to_vec);
        let set = |set: usize| -> Vec<SlotChain> {
            let lines = lines.iter().enumerate();
            lines.filter_map(|(slot, line)| Some((slot, chains(set, line)?))).collect()
        };
        let mut found: Vec<Vec<SlotChain>> = (0..sets).map(set).collect();
        if complete && wanted.rest > 0 {
            let mut last = set(sets);
            last.truncate(wanted.rest);
            found.push(last);
        }
        let last = found.iter().flatten().filter_map(|(_, columns)| columns.last()).max();
        let end = last.map_or(begin, |column| column + 1);
        Found { sets: found, cost: state.cost, end, complete }
    }
}

impl<const P: usize> Layer<P> {
    fn keep(&mut self, reached: Reached<P>) {
        let place = *self.index.entry(reached.0.key).or_insert(self.reached.len());
        match self.reached.get_mut(place) {
            None => self.reached.push(reached),
            Some(known) if reached.0.score < known.0.score => *known = reached,
            Some(_) => {}
        }
    }
}
