// SPDX-License-Identifier: Apache-2.0
//! Determines which fibre ends are connected, by switching light on ends without circuits.
//!
//! In each round, every module selects at most one fibre. An end that receives light is connected
//! to one of the senders; an end without light is not connected to any of them. If modules do not
//! report their neighbour's name, each further round halves the number of candidates.

mod findings;

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use serde::{Deserialize, Serialize};

pub use findings::{CablingFinding, FibreEnds, Swap, findings, swaps};

use crate::sightings::end_name;
use crate::state::{DeviceName, FibreEnd, Observation, Position, Slot, SwitchState, at};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum LightSource {
    End { end: String, power_mdbm: i32 },
    Stranger { power_mdbm: i32 },
    Nothing,
    Untried { why: String },
}

#[derive(Clone, Debug)]
struct EndRow {
    candidates: FixedBitSet,
    power_mdbm: Option<i32>,
    source: Option<LightSource>,
}

#[derive(Clone, Debug)]
struct ProbedGroup {
    device: DeviceName,
    slot: Slot,
    ends: Vec<usize>,
    rest: Position,
}

#[derive(Clone, Debug)]
pub struct Commission {
    ends: Vec<FibreEnd>,
    named: BTreeMap<String, usize>,
    group_of: Vec<usize>,
    groups: Vec<ProbedGroup>,
    rows: Vec<EndRow>,
    planned: Vec<(usize, usize)>,
    far: BTreeMap<String, String>,
    left_out: BTreeSet<DeviceName>,
    halves: Vec<Vec<Option<usize>>>,
    rounds: usize,
}

impl Commission {
    /// `ends` must not have circuits; `rest` contains the positions without outgoing light.
    pub fn new(ends: Vec<FibreEnd>, planned: &[(FibreEnd, FibreEnd)], rest: &SwitchState) -> Self {
        let mut groups: Vec<ProbedGroup> = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut group_of = Vec::new();
        for (number, (device, slot, _)) in ends.iter().enumerate() {
            let group = *numbers.entry((device, *slot)).or_insert_with(|| {
                let (device, slot, ends) = (device.clone(), *slot, Vec::new());
                let rest = rest.get(&device).map_or(Position::DARK, |rest| at(rest, slot));
                groups.push(ProbedGroup { device, slot, ends, rest });
                groups.len() - 1
            });
            groups[group].ends.push(number);
            group_of.push(group);
        }
        let number: BTreeMap<&FibreEnd, usize> = ends.iter().zip(0..).collect();
        let both = planned.iter().flat_map(|(a, b)| [(a, b), (b, a)]);
        let far = both.map(|(end, far)| (end_name(end), end_name(far))).collect();
        let planned = planned.iter().filter_map(|(a, b)| Some((*number.get(a)?, *number.get(b)?)));
        let planned = planned.collect();
        let rows = group_of.iter().map(|group| {
            let mut candidates = FixedBitSet::with_capacity(ends.len());
            candidates.insert_range(..);
            groups[*group].ends.iter().for_each(|own| candidates.remove(*own));
            EndRow { candidates, power_mdbm: None, source: None }
        });
        let rows = rows.collect();
        let named = ends.iter().map(end_name).zip(0..).collect();
        let (left_out, halves) = (BTreeSet::new(), Vec::new());
        Self { ends, named, group_of, groups, rows, planned, far, left_out, halves, rounds: 0 }
    }

    pub fn resume(&mut self, found: &BTreeMap<String, LightSource>) {
        for end in 0..self.ends.len() {
            if let Some(source @ LightSource::End { .. }) = found.get(&end_name(&self.ends[end])) {
                self.assign(end, source.clone());
            }
        }
    }

    pub fn leave_out(&mut self, device: &DeviceName, why: &str) {
        let ends: Vec<usize> =
            (0..self.ends.len()).filter(|end| self.ends[*end].0 == *device).collect();
        for end in ends {
            if self.rows[end].source.is_none() {
                self.rows[end].source = Some(LightSource::Untried { why: why.to_owned() });
            }
            self.exclude(end);
        }
        self.halves.clear();
        self.left_out.insert(device.clone());
    }

    pub fn left_out(&self) -> &BTreeSet<DeviceName> {
        &self.left_out
    }

    pub fn rounds(&self) -> usize {
        self.rounds
    }

    pub fn progress(&self) -> (usize, usize) {
        (self.rows.iter().filter(|row| row.source.is_some()).count(), self.rows.len())
    }

    pub fn next_round(&mut self) -> Option<SwitchState> {
        let on = self.as_planned().or_else(|| self.half()).or_else(|| self.search())?;
        self.rounds += 1;
        let mut fabric = SwitchState::new();
        let moved = self.groups.iter().zip(on);
        for (group, on) in moved.filter(|(group, _)| !self.left_out.contains(&group.device)) {
            let position = on.map_or(group.rest, |end| self.ends[end].2);
            fabric.entry(group.device.clone()).or_default().insert(group.slot, position);
        }
        Some(fabric)
    }

    pub fn at_rest(&self) -> SwitchState {
        let mut fabric = SwitchState::new();
        let moved = self.groups.iter().filter(|group| !self.left_out.contains(&group.device));
        for group in moved {
            fabric.entry(group.device.clone()).or_default().insert(group.slot, group.rest);
        }
        fabric
    }

    pub fn heard(&mut self, read: &BTreeMap<DeviceName, Observation>, least_mdbm: i32) {
        let mut on = FixedBitSet::with_capacity(self.ends.len());
        for group in &self.groups {
            let Some(seen) = read.get(&group.device) else { continue };
            let stands = at(&seen.positions, group.slot);
            on.extend(group.ends.iter().copied().filter(|end| self.ends[*end].2 == stands));
        }
        for end in on.ones() {
            if self.rows[end].source.is_some() {
                continue;
            }
            let (device, slot, _) = &self.ends[end];
            let seen = &read[device];
            let power_mdbm = seen.power_mdbm.get(slot).copied();
            let Some(power_mdbm) = power_mdbm.filter(|power| *power >= least_mdbm) else {
                self.rows[end].candidates.difference_with(&on);
                continue;
            };
            self.rows[end].power_mdbm = Some(power_mdbm);
            match seen.neighbours.get(slot) {
                Some(name) => {
                    self.assign(end, LightSource::End { end: name.clone(), power_mdbm });
                }
                None => self.rows[end].candidates.intersect_with(&on),
            }
        }
        self.conclude();
    }

    pub fn found(&self) -> BTreeMap<String, LightSource> {
        let ends = self.named.iter();
        ends.map(|(end, number)| (end.clone(), self.source(end, &self.rows[*number]))).collect()
    }

    fn source(&self, end: &str, row: &EndRow) -> LightSource {
        match &row.source {
            None => {
                let left = row.candidates.count_ones(..);
                LightSource::Untried { why: format!("it may be connected to any of {left} ends") }
            }
            // A dark end is not evidence about the fibre if the far end did not send light.
            Some(LightSource::Nothing) => match self.far.get(end).filter(|far| !self.is_tried(far))
            {
                Some(far) => {
                    LightSource::Untried { why: format!("its far end {far} was not tried") }
                }
                None => LightSource::Nothing,
            },
            Some(source) => source.clone(),
        }
    }

    fn is_tried(&self, end: &str) -> bool {
        let row = self.named.get(end).map(|number| &self.rows[*number].source);
        row.is_some_and(|source| !matches!(source, Some(LightSource::Untried { .. })))
    }

    fn conclude(&mut self) {
        loop {
            let mut changed = false;
            for end in 0..self.rows.len() {
                let row = &self.rows[end];
                if row.source.is_some() {
                    continue;
                }
                let source = match (row.power_mdbm, row.candidates.count_ones(..)) {
                    (Some(power_mdbm), 1) => {
                        let other = row.candidates.ones().next().expect("one is left");
                        LightSource::End { end: end_name(&self.ends[other]), power_mdbm }
                    }
                    (Some(power_mdbm), 0) => LightSource::Stranger { power_mdbm },
                    (None, 0) => LightSource::Nothing,
                    _ => continue,
                };
                self.assign(end, source);
                changed = true;
            }
            let unassigned = self.rows.iter().filter(|row| row.source.is_none());
            let asked =
                unassigned.fold(FixedBitSet::with_capacity(self.ends.len()), |mut all, row| {
                    all.union_with(&row.candidates);
                    all
                });
            let joined: Vec<usize> = asked.ones().filter(|end| self.is_joined(*end)).collect();
            changed |= !joined.is_empty();
            joined.into_iter().for_each(|end| self.exclude(end));
            if !changed {
                return;
            }
        }
    }

    fn lit_by(&self, end: usize) -> Option<usize> {
        match &self.rows[end].source {
            Some(LightSource::End { end, .. }) => self.named.get(end).copied(),
            _ => None,
        }
    }

    fn is_joined(&self, end: usize) -> bool {
        self.lit_by(end).is_some_and(|by| self.lit_by(by) == Some(end))
    }

    fn assign(&mut self, end: usize, source: LightSource) {
        self.rows[end].source = Some(source);
    }

    fn exclude(&mut self, end: usize) {
        for row in self.rows.iter_mut().filter(|row| row.source.is_none()) {
            row.candidates.remove(end);
        }
    }

    fn as_planned(&mut self) -> Option<Vec<Option<usize>>> {
        let mut on = vec![None; self.groups.len()];
        let rows = &self.rows;
        self.planned.retain(|(a, b)| rows[*a].source.is_none() || rows[*b].source.is_none());
        let group_of = &self.group_of;
        let mut later = Vec::new();
        for (a, b) in self.planned.drain(..) {
            if [a, b].into_iter().all(|end| on[group_of[end]].is_none_or(|at| at == end)) {
                [a, b].into_iter().for_each(|end| on[group_of[end]] = Some(end));
            } else {
                later.push((a, b));
            }
        }
        self.planned = later;
        on.iter().any(Option::is_some).then_some(on)
    }

    fn half(&mut self) -> Option<Vec<Option<usize>>> {
        if self.halves.is_empty() {
            let mut open = (0..self.rows.len()).filter(|end| {
                let row = &self.rows[*end];
                row.source.is_none() && row.power_mdbm.is_some()
            });
            let others = open.clone();
            let first = open.next()?;
            let mut on: Vec<Option<usize>> = vec![None; self.groups.len()];
            on[self.group_of[first]] = Some(first);
            let may = self.rows[first].candidates.ones();
            let others =
                others.flat_map(|end| std::iter::once(end).chain(self.rows[end].candidates.ones()));
            for end in may.chain(others) {
                on[self.group_of[end]].get_or_insert(end);
            }
            self.halves = halves(&on);
        }
        self.halves.pop()
    }

    fn is_open(&self, end: usize) -> bool {
        self.rows[end].source.is_none()
    }

    fn search(&self) -> Option<Vec<Option<usize>>> {
        let first = (0..self.rows.len()).find(|end| self.is_open(*end))?;
        let second = self.rows[first].candidates.ones().next()?;
        let mut on: Vec<Option<usize>> = vec![None; self.groups.len()];
        let mut lit = FixedBitSet::with_capacity(self.ends.len());
        for end in [first, second] {
            on[self.group_of[end]] = Some(end);
            lit.insert(end);
        }
        for (number, group) in self.groups.iter().enumerate() {
            if on[number].is_some() {
                continue;
            }
            let pairs = group.ends.iter().map(|&end| {
                let asks = match self.rows[end].source {
                    None => self.rows[end].candidates.intersection(&lit).count(),
                    Some(_) => 0,
                };
                let open = lit.ones().filter(|end| self.is_open(*end));
                let asked = open.filter(|other| self.rows[*other].candidates.contains(end));
                (asks + asked.count(), end)
            });
            if let Some((1.., end)) = pairs.max() {
                on[number] = Some(end);
                lit.insert(end);
            }
        }
        Some(on)
    }
}

fn halves(on: &[Option<usize>]) -> Vec<Vec<Option<usize>>> {
    let bits = usize::BITS - on.len().saturating_sub(1).leading_zeros();
    let sides = (0..bits).flat_map(|bit| [(bit, 0), (bit, 1)]);
    let halves = sides.map(|(bit, side)| {
        let ends = on.iter().enumerate();
        ends.map(|(number, end)| end.filter(|_| number >> bit & 1 == side)).collect()
    });
    halves.collect()
}

#[cfg(test)]
mod tests;
