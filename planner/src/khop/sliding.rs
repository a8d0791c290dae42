// SPDX-License-Identifier: Apache-2.0
//! Finds sets of chains along columns of nodes. This is the dynamic program behind placement.
//!
//! A column is one ToR and a slot is one sub-line. Each slot holds consecutive chains, and the j-th
//! chains of all slots form the j-th set. The program advances column by column and decides in each
//! column which slots use their node. A column that all slots use for the same set is free. Any
//! other column costs one crossing hop per run of slots that use it, counted around the set's inner
//! ring. A slot can be ahead of others by up to one chain, so that a failed node does not delay the
//! other sub-lines. A column that holds the pass-through node (`spare`) of every chain is free, so
//! the program prefers columns that not all slots use for them. At most one set, the cheapest, may
//! have fewer chains; ties go to the first.
//!
//! Each column is rewarded at a price set by the caller. A low price favours cheap sets that span
//! more columns; a high price favours more sets. At each column the program keeps the states with
//! the lowest cost minus reward.

use std::collections::BTreeSet;
use std::ops::Range;

use rustc_hash::FxHashMap;

pub(super) trait Grid: Sync {
    fn reach(&self) -> usize;
    /// Bit i is set if the node of slot i in this column is usable.
    fn usable(&self, column: usize) -> u64;
    fn joined(&self, column: usize, slot: usize, back: usize) -> bool;
    fn begins(&self, column: usize, slot: usize, length: usize) -> bool;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) length: usize,
    pub(super) sets: usize,
    pub(super) rest: usize,
    pub(super) passes: bool,
}

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

pub(super) type SlotChain = (usize, Vec<usize>);

#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) sets: Vec<Vec<SlotChain>>,
    pub(super) cost: u32,
    pub(super) end: usize,
    pub(super) complete: bool,
}

/// Crossing hops that a column adds to a ring of `slots` groups, of which `used` have a node in it.
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
    /// Nodes placed in each slot since the oldest open set began.
    placed: [u16; P],
    idle: [u8; P],
    /// Bit i is set if the last hop of slot i rules out an equal next hop.
    long: u64,
    /// Bit i is set if the open chain of slot i already has its pass-through node.
    passed: u64,
    rest: bool,
}

#[derive(Clone, Copy)]
struct State<const P: usize> {
    key: Key<P>,
    cost: u32,
    open: [u32; 2],
    /// Cost of each open set if it becomes the partial set.
    as_rest: [u32; 2],
    sets: u32,
    trail: u32,
    score: f32,
}

type Reached<const P: usize> = (State<P>, Move);

#[derive(Clone, Copy, Default)]
struct Move {
    used: u64,
    dropped: u64,
    passing: u64,
    closes: bool,
}

struct Step {
    before: u32,
    column: u32,
    taken: Move,
}

const NO_TRAIL: u32 = u32::MAX;

pub(super) struct Search<'a, G, const P: usize> {
    pub(super) grid: &'a G,
    pub(super) slots: usize,
    pub(super) price: Price,
    pub(super) width: usize,
}

struct Layer<const P: usize> {
    reached: Vec<Reached<P>>,
    index: FxHashMap<Key<P>, usize>,
}

impl<G: Grid, const P: usize> Search<'_, G, P> {
    pub(super) fn run(&self, columns: Range<usize>, wanted: Wanted) -> Found {
        let key = Key { placed: [0; P], idle: [0; P], long: 0, passed: 0, rest: false };
        let (open, as_rest, trail) = ([0; 2], [0; 2], NO_TRAIL);
        let mut states = vec![State { key, cost: 0, open, as_rest, sets: 0, trail, score: 0.0 }];
        let mut steps: Vec<Step> = Vec::new();
        let mut layer = Layer { reached: Vec::new(), index: FxHashMap::default() };
        let begin = columns.start;
        for column in columns {
            let done = states.iter().filter(|state| self.is_complete(state, wanted));
            if let Some(best) = done.min_by_key(|state| state.cost) {
                return self.trace(&steps, best, wanted, begin);
            }
            for state in &states {
                self.expand(state, column, wanted, &mut layer);
            }
            layer.index.clear();
            self.thin(&mut layer.reached, self.price.at(column) * wanted.length as f32);
            states.clear();
            for (mut state, taken) in layer.reached.drain(..) {
                if taken.used | taken.dropped != 0 {
                    let column = u32::try_from(column - begin).expect("bounded by the nodes");
                    steps.push(Step { before: state.trail, column, taken });
                    state.trail = u32::try_from(steps.len() - 1).expect("bounded");
                }
                states.push(state);
            }
        }
        self.last(&steps, &states, wanted, begin)
    }

    fn last(&self, steps: &[Step], states: &[State<P>], wanted: Wanted, begin: usize) -> Found {
        let best = states.iter().min_by_key(|state| {
            let complete = self.is_complete(state, wanted);
            (!complete, if complete { 0 } else { u32::MAX - state.sets }, state.cost)
        });
        best.map_or_else(Found::default, |best| self.trace(steps, best, wanted, begin))
    }

    fn is_complete(&self, state: &State<P>, wanted: Wanted) -> bool {
        let sets = state.sets as usize;
        let has_rest = wanted.rest == 0 || state.key.rest;
        sets > wanted.sets
            || sets == wanted.sets
                && (has_rest || self.in_oldest(state, wanted.length) >= wanted.rest)
    }

    fn in_oldest(&self, state: &State<P>, length: usize) -> usize {
        let placed = &state.key.placed[..self.slots];
        placed.iter().filter(|placed| usize::from(**placed) >= length).count()
    }

    fn thin(&self, reached: &mut Vec<Reached<P>>, set_price: f32) {
        let best = reached.iter().map(|state| state.0.score).fold(f32::INFINITY, f32::min);
        reached.retain(|state| state.0.score <= best + 2.0 * set_price);
        if reached.len() > self.width {
            reached.select_nth_unstable_by(self.width - 1, |a, b| a.0.score.total_cmp(&b.0.score));
            reached.truncate(self.width);
        }
    }

    fn expand(&self, state: &State<P>, column: usize, wanted: Wanted, layer: &mut Layer<P>) {
        let length = wanted.length;
        let usable = self.grid.usable(column);
        let (mut can, mut forced, mut begins) = (0_u64, 0_u64, 0_u64);
        for slot in 0..self.slots {
            let bit = 1 << slot;
            let inside = usize::from(state.key.placed[slot]) % length != 0;
            begins |=
                u64::from(usable & bit != 0 && self.grid.begins(column, slot, length)) << slot;
            let fits = if inside {
                usable & bit != 0 && self.goes_on(&state.key, column, slot)
            } else {
                begins & bit != 0
            };
            if fits && usize::from(state.key.placed[slot]) < 2 * length {
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
            can |= dropped & begins;
        }
        let forced = forced & !dropped;
        let taken = Move { used: forced, dropped, ..Move::default() };
        self.take_each(&state, column, wanted, taken, layer);
        let mut above = None;
        let mut before = forced;
        while let Some(level) = self.level_above(&state, can, above) {
            let slots = (0..self.slots)
                .filter(|slot| can >> slot & 1 == 1 && state.key.placed[*slot] <= level);
            let used = slots.fold(forced, |used, slot| used | 1 << slot);
            if used != before {
                self.take_each(&state, column, wanted, Move { used, ..taken }, layer);
            }
            (before, above) = (used, Some(level));
        }
    }

    /// If not all slots use the column for a set, its pass-through nodes can be placed either by
    /// all slots that still need one, or only by the slots that would otherwise run out of nodes.
    fn take_each(
        &self,
        state: &State<P>,
        column: usize,
        wanted: Wanted,
        taken: Move,
        layer: &mut Layer<P>,
    ) {
        if !wanted.passes {
            return self.take(state, column, wanted, taken, layer);
        }
        let (mut last, mut sets) = (0_u64, [0_u64; 2]);
        for slot in (0..self.slots).filter(|slot| taken.used >> slot & 1 == 1) {
            let placed = usize::from(state.key.placed[slot]);
            sets[usize::from(placed >= wanted.length)] |= 1 << slot;
            last |= u64::from(placed % wanted.length + 1 == wanted.length) << slot;
        }
        let open = taken.used & !state.key.passed;
        let full = u64::MAX >> (64 - self.slots);
        let early = sets.map(|used| if used == full { 0 } else { used & open & !last });
        for choice in 0..4_u8 {
            let chosen = [choice & 1 == 1, choice & 2 == 2];
            let passes = [0, 1].map(|set| if chosen[set] { early[set] } else { 0 });
            // Without an early pass-through node, this is the choice already tried.
            if (0..2).all(|set| !chosen[set] || early[set] != 0) {
                let passing = (last & open) | passes[0] | passes[1];
                self.take(state, column, wanted, Move { passing, ..taken }, layer);
            }
        }
    }

    fn goes_on(&self, key: &Key<P>, column: usize, slot: usize) -> bool {
        let (reach, back) = (self.grid.reach(), usize::from(key.idle[slot]) + 1);
        let excluded = excludes(reach, back) && key.long >> slot & 1 == 1;
        back <= reach && !excluded && self.grid.joined(column, slot, back)
    }

    fn level_above(&self, state: &State<P>, can: u64, above: Option<u16>) -> Option<u16> {
        let slots = (0..self.slots).filter(|slot| can >> slot & 1 == 1);
        let levels = slots.map(|slot| state.key.placed[slot]);
        levels.filter(|level| above.is_none_or(|above| *level > above)).min()
    }

    /// Each freed node adds one crossing hop to the set, but a set without nodes is free.
    fn give_up(&self, state: &mut State<P>, slots: u64, length: usize) {
        let mut lost = 0;
        for slot in (0..self.slots).filter(|slot| slots >> slot & 1 == 1) {
            let inside = state.key.placed[slot] % u16::try_from(length).expect("a chain is short");
            lost += u32::from(inside);
            state.key.placed[slot] -= inside;
            state.key.begin_again(slot);
        }
        if state.key.placed[..self.slots].iter().all(|placed| *placed == 0) {
            state.cost -= state.open[0] + state.open[1];
            (state.open, state.as_rest) = ([0; 2], [0; 2]);
        } else {
            state.cost += lost;
            state.open[0] += lost;
            state.as_rest[0] += lost;
        }
    }

    fn take(
        &self,
        state: &State<P>,
        column: usize,
        wanted: Wanted,
        taken: Move,
        layer: &mut Layer<P>,
    ) {
        let length = wanted.length;
        let mut next = *state;
        let mut sets = [0_u64; 2];
        for slot in 0..self.slots {
            let placed = usize::from(state.key.placed[slot]);
            let inside = placed % length;
            if taken.used >> slot & 1 == 0 {
                next.key.idle[slot] += u8::from(inside > 0);
                continue;
            }
            sets[usize::from(placed >= length)] |= 1 << slot;
            let back = usize::from(state.key.idle[slot]) + 1;
            let goes_on = inside + 1 < length;
            let long = excludes(self.grid.reach(), back) && inside > 0 && goes_on;
            let passed = goes_on && (state.key.passed | taken.passing) >> slot & 1 == 1;
            next.key.begin_again(slot);
            next.key.long |= u64::from(long) << slot;
            next.key.passed |= u64::from(passed) << slot;
            next.key.placed[slot] += 1;
        }
        for (set, used) in sets.map(|used| used & !taken.passing).into_iter().enumerate() {
            let cost = stretches(used, self.slots);
            next.cost += cost;
            next.open[set] += cost;
            let used = used.count_ones() as usize;
            next.as_rest[set] += u32::from(0 < used && used < wanted.rest);
        }
        if self.in_oldest(&next, length) == self.slots {
            self.close_oldest(&mut next, length);
            next.sets += 1;
        } else if !next.key.rest
            && wanted.rest > 0
            && self.in_oldest(&next, length) >= wanted.rest
            && self.in_oldest(&next, length) > self.in_oldest(state, length)
        {
            let mut closed = next;
            closed.key.rest = true;
            closed.cost = closed.cost - closed.open[0] + closed.as_rest[0];
            self.close_oldest(&mut closed, length);
            self.keep(closed, column, wanted, Move { closes: true, ..taken }, layer);
        }
        self.keep(next, column, wanted, taken, layer);
    }

    fn close_oldest(&self, state: &mut State<P>, length: usize) {
        let length = u16::try_from(length).expect("a chain is short");
        for slot in 0..self.slots {
            if let Some(beyond) = state.key.placed[slot].checked_sub(length) {
                state.key.placed[slot] = beyond;
            } else {
                state.key.placed[slot] = 0;
                state.key.begin_again(slot);
            }
        }
        state.open = [state.open[1], 0];
        state.as_rest = [state.as_rest[1], 0];
    }

    fn keep(
        &self,
        mut next: State<P>,
        column: usize,
        wanted: Wanted,
        taken: Move,
        layer: &mut Layer<P>,
    ) {
        let placed: u32 = next.key.placed[..self.slots].iter().map(|n| u32::from(*n)).sum();
        let rest = if next.key.rest { wanted.rest * wanted.length } else { 0 };
        let beside = (placed as usize + rest) as f32 / self.slots as f32;
        let progress = next.sets as f32 * wanted.length as f32 + beside;
        next.score = next.cost as f32 - self.price.at(column) * progress;
        layer.keep((next, taken));
    }

    fn trace(&self, steps: &[Step], state: &State<P>, wanted: Wanted, begin: usize) -> Found {
        let mut order = Vec::new();
        let mut trail = state.trail;
        while let Some(step) = steps.get(trail as usize) {
            order.push(step);
            trail = step.before;
        }
        let m = wanted.length;
        let mut lines: Vec<Vec<usize>> = vec![Vec::new(); self.slots];
        let (mut found, mut rest) = (Vec::new(), None);
        for step in order.into_iter().rev() {
            for (slot, line) in lines.iter_mut().enumerate() {
                if step.taken.dropped >> slot & 1 == 1 {
                    line.truncate(line.len() / m * m);
                }
                if step.taken.used >> slot & 1 == 1 {
                    line.push(begin + step.column as usize);
                }
            }
            if step.taken.closes {
                rest = Some(take_set(&mut lines, m));
            } else if lines.iter().all(|line| line.len() >= m) {
                found.push(take_set(&mut lines, m));
            }
        }
        let beyond = found.split_off(found.len().min(wanted.sets)).into_iter().next();
        let complete = self.is_complete(state, wanted);
        if complete && wanted.rest > 0 {
            let rest = rest.or(beyond).unwrap_or_else(|| take_set(&mut lines, m));
            found.push(Self::narrowed(&rest, wanted.rest));
        }
        let last = found.iter().flatten().filter_map(|(_, columns)| columns.last()).max();
        let end = last.map_or(begin, |column| column + 1);
        Found { sets: found, cost: state.cost, end, complete }
    }

    fn narrowed(set: &[SlotChain], count: usize) -> Vec<SlotChain> {
        let best = (0..set.len()).min_by_key(|first| {
            let window = set.iter().cycle().skip(*first).take(count);
            window.flat_map(|chain| &chain.1).collect::<BTreeSet<&usize>>().len()
        });
        set.iter().cycle().skip(best.unwrap_or(0)).take(count).cloned().collect()
    }
}

fn take_set(lines: &mut [Vec<usize>], length: usize) -> Vec<SlotChain> {
    let mut set = Vec::new();
    for (slot, line) in lines.iter_mut().enumerate() {
        if line.len() >= length {
            set.push((slot, line.drain(..length).collect()));
        } else {
            line.clear();
        }
    }
    set
}

/// Whether a hop over `back` places rules out an equal hop on the other side of the node.
fn excludes(reach: usize, back: usize) -> bool {
    reach > 1 && reach % 2 == 1 && back == reach
}

impl<const P: usize> Key<P> {
    fn begin_again(&mut self, slot: usize) {
        self.idle[slot] = 0;
        self.long &= !(1 << slot);
        self.passed &= !(1 << slot);
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
