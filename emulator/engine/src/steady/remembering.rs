// SPDX-License-Identifier: Apache-2.0
//! Runs islands ahead of time and caches their results.
//!
//! ```text
//!   starts ──▶ same as an earlier one? ──yes──▶ reuse its result, shifted in time
//!                      └──no──▶ wait until a flow can end ──▶ run ahead to the end ──▶ plan its
//!                                                             completions, cache the result
//!   disturbed, or meets others ──▶ one island from the earliest start, as above
//! ```
//! Results are exact, because a run depends only on the description and on the time since its start.

use std::collections::{BTreeMap, BTreeSet};

use lightloom_units::{Picoseconds, SimTime};
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::apart::{Apart, Asked, IslandAct};
use super::class::Class;
use super::description::IslandChange;
use super::landing::{Knots, Tie, acts_from};
use super::queue::{From, PlannedAct};
use super::{Entangled, LocalProbe};

/// Exceeds the end of any flow that has a path.
const AHEAD: Picoseconds = Picoseconds::from_millis(2_000);
/// A single engine is faster if the repeated packet-hops exceed both this number and the first-time packet-hops.
const MOST_REDONE: u64 = 100_000_000;
pub(super) const FEW_REDONE: u64 = 1_000_000;

type PendingClass = Vec<(u64, IslandChange)>;

/// A class that has yet to run, because none of its flows can have ended.
#[derive(Debug)]
pub(super) struct Unrun {
    acts: PendingClass,
    /// Earliest end of a flow, relative to the start of the class.
    wait: u64,
}

impl<P: LocalProbe> Apart<P> {
    pub(super) fn is_quiet(&self, island: u32) -> bool {
        let island = &self.islands[island as usize];
        let quiet = self.classes[island.class as usize].quiet_from();
        quiet.is_some_and(|from| from + island.shift <= self.present())
    }

    /// Changing a link without flows has no effect.
    pub(super) fn matters(&mut self, asked: Asked) -> bool {
        let Asked::Change(link, _) = asked else { return true };
        let Some(copy) = self.copy_of(link) else { return false };
        if self.is_quiet(copy.island) {
            self.islands[copy.island as usize].retired = true;
            return false;
        }
        true
    }

    pub(super) fn land_remembering(
        &mut self,
        asked: Vec<Asked>,
        mut knots: Knots,
    ) -> Result<(), Entangled> {
        let mut sets: Vec<(BTreeSet<u32>, Vec<IslandAct>)> = Vec::new();
        let mut places: FxHashMap<u32, usize> = FxHashMap::default();
        for asked in asked {
            let tie = match asked {
                Asked::Change(link, _) => match self.copy_of(link) {
                    Some(copy) => Tie::Island(copy.island),
                    None => continue,
                },
                Asked::Flow(flow)
                | Asked::Gate(flow, _)
                | Asked::Cancel(flow)
                | Asked::Reroute(flow, _) => self.flow_tie(flow),
            };
            let place = *places.entry(knots.place(tie)).or_insert(sets.len());
            if place == sets.len() {
                sets.push((BTreeSet::new(), Vec::new()));
            }
            self.done += 1;
            if let Tie::Island(island) = tie {
                sets[place].0.insert(island);
            }
            sets[place].1.push((self.now, self.done, asked));
        }
        let ties: Vec<Tie> = knots.places.keys().copied().collect();
        for tie in ties {
            let Tie::Island(island) = tie else { continue };
            if let Some(place) = places.get(&knots.place(tie)) {
                sets[*place].0.insert(island);
            }
        }
        self.begin_or_grow(sets)
    }

    fn begin_or_grow(
        &mut self,
        sets: Vec<(BTreeSet<u32>, Vec<IslandAct>)>,
    ) -> Result<(), Entangled> {
        let first = self.classes.len();
        let mut waiting: Vec<PendingClass> = Vec::new();
        for (islands, asked) in sets {
            let mut tied = islands.iter().map(|island| &self.islands[*island as usize]);
            if tied.any(|island| island.superseded || island.retired) {
                return Err(Entangled);
            }
            let (begin, past) = self.supersede(&islands, asked);
            self.begin_like(begin, past, first, &mut waiting);
        }
        self.run_new(first, waiting)?;
        if self.is_faster_whole() { Err(Entangled) } else { Ok(()) }
    }

    fn is_faster_whole(&mut self) -> bool {
        if self.redone > MOST_REDONE && self.redone > self.ran {
            return true;
        }
        if self.redone <= self.redone_limit {
            return false;
        }
        self.redone_limit = self.hops().max(FEW_REDONE);
        self.redone > self.redone_limit
    }

    fn begin_like(
        &mut self,
        begin: SimTime,
        asked: Vec<IslandAct>,
        first: usize,
        waiting: &mut Vec<PendingClass>,
    ) {
        let island = self.islands.len() as u32;
        let description = self.describe(island, begin, asked);
        if let Some(&class) = self.memory.get(&description) {
            let known = &self.classes[class as usize];
            let (shift, quiet) = (begin.0 - known.begin, known.quiet_from());
            if class as usize >= first {
                return self.join(island, class, 0);
            }
            if let Some(unrun) = self.unrun.get(&class) {
                let due = SimTime(begin.0 + unrun.wait);
                self.queue.plan(self.now, due, PlannedAct::RunIslands);
                return self.join(island, class, shift);
            }
            if let Some(from) = quiet {
                self.busy_until = self.busy_until.max(from + shift);
                self.join(island, class, shift);
                let news = self.classes[class as usize].news.clone();
                for news in news {
                    self.plan_news(island, news, From::Ahead(island));
                }
                return;
            }
        }
        let class = self.new_class(island, &description, begin);
        waiting.push(acts_from(&description, begin));
        let new = self.classes.len() as u32;
        self.classes.push(class);
        self.memory.insert(description, new);
        self.join(island, new, 0);
    }

    fn join(&mut self, island: u32, class: u32, shift: u64) {
        let home = &mut self.islands[island as usize];
        (home.class, home.shift) = (class, shift);
        self.classes[class as usize].members.push(island);
    }

    fn run_new(&mut self, first: usize, waiting: Vec<PendingClass>) -> Result<(), Entangled> {
        let mut ready = BTreeMap::new();
        for (place, acts) in waiting.into_iter().enumerate() {
            let (index, class) = ((first + place) as u32, &self.classes[first + place]);
            match class.earliest_end(&acts).filter(|end| *end > self.now) {
                Some(end) => {
                    let wait = end.0 - class.begin;
                    self.unrun.insert(index, Unrun { acts, wait });
                    self.queue.plan(self.now, end, PlannedAct::RunIslands);
                }
                None => drop(ready.insert(index, (acts, self.now))),
            }
        }
        self.run_ahead(ready)
    }

    pub(super) fn run_due(&mut self) -> Result<(), Entangled> {
        let ends = self.unrun.iter().map(|(class, unrun)| {
            (*class, SimTime(self.classes[*class as usize].begin + unrun.wait))
        });
        let due: Vec<_> = ends.filter(|(_, end)| *end <= self.now).collect();
        let mut ready = BTreeMap::new();
        for (class, end) in due {
            if let Some(Unrun { acts, .. }) = self.unrun.remove(&class) {
                ready.insert(class, (acts, end));
            }
        }
        self.run_ahead(ready)
    }

    fn run_ahead(
        &mut self,
        mut ready: BTreeMap<u32, (PendingClass, SimTime)>,
    ) -> Result<(), Entangled> {
        let Some(first) = ready.keys().next().copied() else { return Ok(()) };
        let indices: Vec<u32> = ready.keys().copied().collect();
        let classes = (first..).zip(&mut self.classes[first as usize..]);
        let mut pairs: Vec<_> =
            classes.filter_map(|(index, class)| Some((class, ready.remove(&index)?))).collect();
        let run = |(class, (acts, from)): &mut (&mut Class<P>, (PendingClass, SimTime))| {
            let last = acts.last().map_or(0, |(after, _)| *after);
            let again = last > 0 && class.begin + last == from.0;
            (again, class.run_ahead(std::mem::take(acts), *from, *from + AHEAD))
        };
        let hops: Vec<(bool, u64)> = if self.settings.threads > 1 && pairs.len() > 1 {
            pairs.par_iter_mut().map(run).collect()
        } else {
            pairs.iter_mut().map(run).collect()
        };
        for (again, hops) in hops {
            *(if again { &mut self.redone } else { &mut self.ran }) += hops;
        }
        for index in indices {
            let class = &self.classes[index as usize];
            let (news, members) = (class.news.clone(), class.members.clone());
            let shifts = members.iter().map(|member| self.islands[*member as usize].shift);
            let latest = shifts.max().unwrap_or_default();
            match class.quiet_from() {
                Some(from) => self.busy_until = self.busy_until.max(from + latest),
                None if latest > 0 => return Err(Entangled),
                None => self.live.push(index),
            }
            for member in members {
                for news in &news {
                    self.plan_news(member, *news, From::Ahead(member));
                }
            }
        }
        Ok(())
    }

    fn supersede(
        &mut self,
        islands: &BTreeSet<u32>,
        asked: Vec<IslandAct>,
    ) -> (SimTime, Vec<IslandAct>) {
        let mut past: Vec<IslandAct> = Vec::new();
        let mut begin = self.now;
        for island in islands {
            let gone = &mut self.islands[*island as usize];
            (gone.retired, gone.superseded) = (true, true);
            past.append(&mut gone.past);
            let links = std::mem::take(&mut gone.links);
            let batches = gone.batches.clone();
            let class = &mut self.classes[gone.class as usize];
            begin = begin.min(SimTime(class.begin + gone.shift));
            class.members.retain(|member| member != island);
            if class.members.is_empty() {
                self.unrun.remove(&gone.class);
            }
            for link in links.iter().step_by(2) {
                let copies = self.copies.get_mut(&(link.0 >> 1));
                copies.into_iter().for_each(|copies| copies.retain(|copy| copy.island != *island));
            }
            for batch in batches {
                self.batches[batch.index()].place = None;
            }
        }
        // Each link keeps its own history of changes.
        past.extend(asked);
        past.retain(|(.., asked)| !matches!(asked, Asked::Change(..)));
        past.sort_by_key(|(at, number, _)| (*at, *number));
        (begin, past)
    }

    pub(super) fn settle(&mut self) -> Result<(), Entangled> {
        if !self.remembers {
            return Ok(());
        }
        let islands = 0..self.islands.len() as u32;
        let open = islands.filter(|island| !self.islands[*island as usize].retired);
        let ahead: Vec<u32> = open.filter(|island| !self.is_quiet(*island)).collect();
        for island in ahead {
            let (begin, past) = self.supersede(&BTreeSet::from([island]), Vec::new());
            let new = self.islands.len() as u32;
            let description = self.describe(new, begin, past);
            let class = self.classes.len() as u32;
            let mut alone = self.new_class(new, &description, begin);
            alone.run_ahead(acts_from(&description, begin), self.now, self.now);
            self.classes.push(alone);
            self.join(new, class, 0);
        }
        Ok(())
    }
}
