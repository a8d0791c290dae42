// SPDX-License-Identifier: Apache-2.0
//! The grid of nodes (ToR by slot) from which placement builds its sets.

use lightloom_fabric::dcn::Order;
use lightloom_fabric::fabric::Fabric;
use lightloom_fabric::khop::{Position, Shape};
use lightloom_units::id::NodeId;
use rayon::prelude::*;

use super::sliding::{Found, Grid, Price, Search, Wanted};
use super::{Chain, Survey, spare};

/// Above these limits, placement cuts chains along the line and ignores columns.
const MOST_SLOTS: u32 = 64;
const LONGEST: usize = 1_024;

/// Columns × states per column. Limits the run time of the dynamic program.
const EFFORT: usize = 500_000;

/// On a closed line, the first column is arbitrary, and chains can wrap between sub-lines.
pub(super) struct Columns<'a> {
    fabric: &'a Fabric,
    survey: &'a Survey<'a>,
    first: usize,
    slots: usize,
    perfect: bool,
    usable: Vec<u64>,
    runs: Option<Vec<usize>>,
}

impl<'a> Columns<'a> {
    pub(super) fn new(
        fabric: &'a Fabric,
        survey: &'a Survey<'a>,
        free: &[bool],
        longest: usize,
    ) -> Option<Self> {
        let per_tor = fabric.dcn.nodes_per_tor();
        let fits = (2..=MOST_SLOTS).contains(&per_tor) && fabric.hbd.nodes() >= per_tor;
        if fabric.order != Order::SubLines || !fits {
            return None;
        }
        let tors = fabric.dcn.tors(fabric.hbd.nodes()) as usize;
        let (slots, perfect) = (per_tor as usize, survey.all_fibres_work());
        let runs = spare::are_wanted(fabric).then(|| spare::runs(survey, free, longest));
        let usable = Vec::new();
        let mut columns = Self { fabric, survey, first: 0, slots, perfect, usable, runs };
        columns.read(tors, free);
        Some(columns)
    }

    fn read(&mut self, tors: usize, free: &[bool]) {
        let usable = (0..tors).map(|column| {
            let slots = (0..self.slots).filter(|slot| {
                let position = self.position(column, *slot);
                position.is_some_and(|position| self.survey.is_usable(position, free))
            });
            slots.fold(0_u64, |bits, slot| bits | 1 << slot)
        });
        self.usable = usable.collect();
    }

    pub(super) fn turned(mut self, free: &[bool]) -> Self {
        let nodes = self.fabric.hbd.nodes() as usize;
        let closed = self.fabric.hbd.shape() == Shape::Ring && nodes.is_multiple_of(self.slots);
        if closed {
            self.first = self.after_longest_gap();
            self.read(self.count(), free);
        }
        self
    }

    fn after_longest_gap(&self) -> usize {
        let full = u64::MAX >> (64 - self.slots);
        let complete: Vec<usize> =
            (0..self.count()).filter(|column| self.usable[*column] == full).collect();
        let (Some(&first), Some(&last)) = (complete.first(), complete.last()) else { return 0 };
        let pairs = complete.windows(2).map(|pair| (pair[1] - pair[0], pair[1]));
        let over_end = std::iter::once((first + self.count() - last, first));
        pairs
            .chain(over_end)
            .max_by_key(|(gap, column)| (*gap, usize::MAX - column))
            .map_or(0, |(gap, column)| if gap > 1 { column } else { 0 })
    }

    pub(super) fn count(&self) -> usize {
        self.usable.len()
    }

    fn position(&self, column: usize, slot: usize) -> Option<Position> {
        let tors = self.fabric.dcn.tors(self.fabric.hbd.nodes()) as usize;
        let tor = self.first + column;
        let (tor, slot) =
            if tor < tors { (tor, slot) } else { (tor - tors, (slot + 1) % self.slots) };
        let node = tor * self.slots + slot;
        (node < self.fabric.hbd.nodes() as usize)
            .then(|| self.fabric.hbd.position_of(NodeId::from_index(node)))
    }

    pub(super) fn chains(&self, set: &[(usize, Vec<usize>)]) -> Vec<Chain> {
        let chains = set.iter().map(|(slot, columns)| {
            columns.iter().filter_map(|column| self.position(*column, *slot)).collect()
        });
        chains.collect()
    }

    pub(super) fn aligned_sets(&self, wanted: &[Wanted]) -> Option<Vec<Found>> {
        let found = self.attempt(wanted, Price::even(0.01), self.widths().0);
        (is_complete(&found) && cost(&found) == 0).then_some(found)
    }

    pub(super) fn sets(&self, wanted: &[Wanted]) -> Vec<Found> {
        let (coarse, fine) = self.widths();
        let cheap = self.attempt(wanted, Price::even(0.01), coarse);
        if is_complete(&cheap) && cost(&cheap) == 0 {
            return cheap;
        }
        let ladder: Vec<f32> = (0..11).map(|step| 0.25 * 2_f32.powi(step)).collect();
        let tries = self.attempts(wanted, ladder.iter().map(|price| Price::even(*price)), coarse);
        let Some(high) = tries.iter().position(|found| is_complete(found)) else {
            return best(tries, cheap);
        };
        let low = if high == 0 { 0.01 } else { ladder[high - 1] };
        self.refine(wanted, low, ladder[high], fine, best(tries, cheap))
    }

    /// Bisects the price per column. The first columns get the higher price.
    fn refine(
        &self,
        wanted: &[Wanted],
        mut low: f32,
        mut high: f32,
        width: usize,
        mut found: Vec<Found>,
    ) -> Vec<Found> {
        for parts in [4_i16, 4] {
            let ratio = high / low;
            let between: Vec<f32> = (1..=parts)
                .map(|part| low * ratio.powf(f32::from(part) / f32::from(parts)))
                .collect();
            let tries =
                self.attempts(wanted, between.iter().map(|price| Price::even(*price)), width);
            if let Some(enough) = tries.iter().position(|found| is_complete(found)) {
                high = between[enough];
                low = if enough == 0 { low } else { between[enough - 1] };
            } else {
                (low, high) = (high, high * 1.5);
            }
            found = best(tries, found);
        }
        let until = (1..=4).map(|part| self.count() * part / 5);
        let prices = until.map(|until| Price { before: high, until, after: low });
        best(self.attempts(wanted, prices, width), found)
    }

    fn widths(&self) -> (usize, usize) {
        let fine = (EFFORT / self.count().max(1)).clamp(48, 300);
        (fine / 3, fine)
    }

    fn attempts(
        &self,
        wanted: &[Wanted],
        prices: impl Iterator<Item = Price>,
        width: usize,
    ) -> Vec<Vec<Found>> {
        let prices: Vec<Price> = prices.collect();
        prices.par_iter().map(|price| self.attempt(wanted, *price, width)).collect()
    }

    fn attempt(&self, wanted: &[Wanted], price: Price, width: usize) -> Vec<Found> {
        if wanted.iter().any(|wanted| wanted.length > LONGEST) {
            return wanted.iter().map(|_| Found::default()).collect();
        }
        match self.slots {
            0..=4 => self.attempt_with::<4>(wanted, price, width),
            5..=8 => self.attempt_with::<8>(wanted, price, width),
            9..=16 => self.attempt_with::<16>(wanted, price, width),
            _ => self.attempt_with::<64>(wanted, price, width),
        }
    }

    fn attempt_with<const P: usize>(
        &self,
        wanted: &[Wanted],
        price: Price,
        width: usize,
    ) -> Vec<Found> {
        let search = Search::<_, P> { grid: self, slots: self.slots, price, width };
        let (mut start, mut all) = (0, Vec::with_capacity(wanted.len()));
        for wanted in wanted {
            let found = search.run(start..self.count(), *wanted);
            start = found.end.max(start);
            all.push(found);
        }
        all
    }
}

impl Grid for Columns<'_> {
    fn reach(&self) -> usize {
        if self.runs.is_some() { 1 } else { usize::from(self.fabric.hbd.k()) }
    }
    fn usable(&self, column: usize) -> u64 {
        self.usable[column]
    }
    fn joined(&self, column: usize, slot: usize, back: usize) -> bool {
        self.perfect
            || self.position(column - back, slot).is_some_and(|position| {
                i8::try_from(back).is_ok_and(|hop| self.survey.has_fibre(position, hop))
            })
    }
    fn begins(&self, column: usize, slot: usize, length: usize) -> bool {
        self.runs.as_ref().is_none_or(|runs| {
            let first = self.position(column, slot);
            first.is_some_and(|first| runs[first.index()] >= length)
        })
    }
}

fn is_complete(found: &[Found]) -> bool {
    found.iter().all(|found| found.complete)
}

fn cost(found: &[Found]) -> u32 {
    found.iter().map(|found| found.cost).sum()
}

fn sets(found: &[Found]) -> usize {
    found.iter().map(|found| found.sets.len()).sum()
}

fn best(tries: Vec<Vec<Found>>, known: Vec<Found>) -> Vec<Found> {
    let best = std::iter::once(known).chain(tries).min_by_key(|found| {
        let complete = is_complete(found);
        (!complete, if complete { 0 } else { usize::MAX - sets(found) }, cost(found))
    });
    best.expect("one is known")
}
